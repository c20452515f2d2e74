"""RetentionIterator: which versions of a key are still worth a place in a file."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from hummock.iterator.base cimport Entry, HummockIterator
from hummock.iterator.row_filter cimport RowRules, VnodeRule


@cython.final
cdef class RetentionIterator(HummockIterator):
    cdef HummockIterator child          # forward, every version of a key together
    cdef uint64_t watermark             # pure epoch that every reader is at or above
    cdef bint drop_tombstones           # no run outside the child can hold a key of it
    cdef RowRules rules                 # what readers at the watermark no longer see
    cdef uint32_t* dropped              # table ids, ascending; owned
    cdef Py_ssize_t dropped_count
    cdef readonly uint64_t dropped_rows # entries passed over so far
    cdef readonly uint64_t dropped_hash # their content hash
    cdef Entry last                     # the newest entry that was judged; its key is in `key` between two moves
    cdef bint has_last
    cdef bint is_pulled                 # `pull` was called
    cdef uint8_t* key                   # owned
    cdef Py_ssize_t key_capacity
    cdef uint64_t place                 # table id and vnode of that key, 48 bits; all ones before the first
    cdef VnodeRule rule                 # of that key's vnode
    cdef bint is_table_dropped
    cdef bint is_below                  # a version at or below the watermark was seen of that key
    cdef bint is_dropped                # the table of that key is dropped, or no reader looks there any more

    cdef int settle(self) except -1 nogil           # the child's entry or the first one after it that stays
    cdef bint stays(self, const Entry* entry) noexcept nogil    # REQUIRES that the one before it is noted
    cdef int save_key(self) except -1 nogil         # keeps `last` beyond the next move
    cdef void enter_vnode(self, uint64_t place) noexcept nogil
