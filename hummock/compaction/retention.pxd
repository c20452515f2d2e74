"""RetentionIterator: which versions of a key are still worth a place in a file."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from hummock.iterator.base cimport HummockIterator
from hummock.key cimport Slice


cdef struct VnodeMark:                  # of one vnode of a table
    uint16_t vnode
    Slice key                           # table key; owner: RetentionIterator.held


cdef struct TableRetention:             # what the task says of one table
    uint32_t table_id
    bint is_dropped
    bint is_descending
    uint64_t oldest                     # versions before this pure epoch are expired
    VnodeMark* marks                    # ascending by vnode; goes into RetentionIterator.marks
    Py_ssize_t mark_count


cdef class RetentionIterator(HummockIterator):
    cdef HummockIterator child          # forward, every version of a key together
    cdef uint64_t watermark             # pure epoch that every reader is at or above
    cdef bint drop_tombstones           # no run outside the child can hold a key of it
    cdef list held                      # bytes that `marks` point into
    cdef TableRetention* tables         # ascending; owned
    cdef Py_ssize_t table_count
    cdef VnodeMark* marks               # of all tables; owned
    cdef readonly uint64_t dropped_rows # entries passed over so far
    cdef uint8_t* key                   # the user key at hand; owned
    cdef Py_ssize_t key_size            # -1 before the first
    cdef Py_ssize_t key_capacity
    cdef uint64_t place                 # table id and vnode of that key, 48 bits; all ones before the first
    cdef uint64_t oldest                # of that key's table; 0: it keeps versions of any age
    cdef bint is_table_dropped
    cdef bint is_descending
    cdef const VnodeMark* mark          # of that key's vnode, or NULL
    cdef uint64_t last_pure             # pure epoch of the last version of that key
    cdef bint is_below                  # a version at or below the watermark was seen of that key
    cdef bint is_dropped                # the table of that key is dropped, or no reader looks there any more

    cdef int settle(self) except -1 nogil           # the child's entry or the first one after it that stays
    cdef bint stays(self) except -1 nogil           # whether the child's entry does; notes its key and epoch
    cdef int note_key(self) except -1 nogil
    cdef void enter_vnode(self, uint64_t place) noexcept nogil
    cdef bint is_passed(self, Slice user_key) noexcept nogil
