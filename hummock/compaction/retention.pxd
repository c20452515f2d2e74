"""RetentionIterator: which versions of a key are still worth a place in a file."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from hummock.iterator.base cimport HummockIterator
from hummock.key cimport Slice


cdef class RetentionIterator(HummockIterator):
    cdef HummockIterator child          # forward, every version of a key together
    cdef uint64_t watermark             # pure epoch that every reader is at or above
    cdef bint drop_tombstones           # no run outside the child can hold a key of it
    cdef uint32_t* dropped              # table ids, ascending; owned
    cdef Py_ssize_t dropped_count
    cdef readonly uint64_t dropped_rows # entries passed over so far
    cdef uint8_t* key                   # the user key at hand; owned
    cdef Py_ssize_t key_size            # -1 before the first
    cdef Py_ssize_t key_capacity
    cdef uint64_t last_pure             # pure epoch of the last version of that key
    cdef bint is_below                  # a version at or below the watermark was seen of that key
    cdef bint is_dropped                # the table of that key is dropped

    cdef int settle(self) except -1 nogil           # the child's entry or the first one after it that stays
    cdef bint stays(self) except -1 nogil           # whether the child's entry does; notes its key and epoch
    cdef int note_key(self) except -1 nogil
