"""RetentionIterator: which versions of a key are still worth a place in a file."""

cimport cython
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from hummock.iterator.base cimport Entry, HummockIterator
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


@cython.final
cdef class RetentionIterator(HummockIterator):
    cdef HummockIterator child          # forward, every version of a key together
    cdef uint64_t watermark             # pure epoch that every reader is at or above
    cdef bint drop_tombstones           # no run outside the child can hold a key of it
    cdef list held                      # bytes that `marks` point into
    cdef TableRetention* tables         # ascending; owned
    cdef Py_ssize_t table_count
    cdef VnodeMark* marks               # of all tables; owned
    cdef readonly uint64_t dropped_rows # entries passed over so far
    cdef Entry last                     # the newest entry that was judged; its key is in `key` between two moves
    cdef bint has_last
    cdef bint is_pulled                 # `pull` was called
    cdef uint8_t* key                   # owned
    cdef Py_ssize_t key_capacity
    cdef uint64_t place                 # table id and vnode of that key, 48 bits; all ones before the first
    cdef uint64_t oldest                # of that key's table; 0: it keeps versions of any age
    cdef bint is_table_dropped
    cdef bint is_descending
    cdef const VnodeMark* mark          # of that key's vnode, or NULL
    cdef bint is_below                  # a version at or below the watermark was seen of that key
    cdef bint is_dropped                # the table of that key is dropped, or no reader looks there any more

    cdef int settle(self) except -1 nogil           # the child's entry or the first one after it that stays
    cdef bint stays(self, const Entry* entry) noexcept nogil    # REQUIRES that the one before it is noted
    cdef int save_key(self) except -1 nogil         # keeps `last` beyond the next move
    cdef void enter_vnode(self, uint64_t place) noexcept nogil
    cdef bint is_passed(self, Slice user_key) noexcept nogil
