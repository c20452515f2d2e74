"""HummockIterator: the contract that every iterator over full keys keeps.

An iterator has one direction for life. Forward it walks user keys ascending and, within one, epochs
descending; in reverse it walks exactly backwards. `next` is one step my way, `seek` ends on the first
entry at or beyond the target, my way. Nothing here takes the GIL except to fetch a block or to raise.
"""

from libc.stdint cimport int8_t, uint64_t

from hummock.key cimport Slice

cdef enum Direction:
    FORWARD = 1
    REVERSE = -1


cdef class HummockIterator:
    cdef readonly Direction direction   # fixed at construction
    cdef readonly bint valid            # positioned at an entry
    cdef Slice user_key                 # of the current entry; lives until the next move of this iterator
    cdef uint64_t epoch                 # with the spill offset in its low 16 bits
    cdef Slice value                    # same lifetime; data is NULL for a tombstone, never NULL for a put

    cdef int rewind(self) except -1 nogil                                   # the first entry, my way
    cdef int seek(self, Slice user_key, uint64_t epoch) except -1 nogil     # first entry at or beyond, my way
    cdef int next(self) except -1 nogil                                     # REQUIRES valid
