"""Blocks: about 64 KB of entries, columnar inside.

`BlockBuilder` collects entries and encodes them; `Block` is a decoded, checked, immutable block whose
columns are pointers into one buffer. The bytes are specified in FORMAT.md and on top of block.pyx.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from hummock.key cimport Slice


cdef class Block:
    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t size_bytes     # memory held, for cache accounting
    cdef Slice prefix                       # bytes that every user key of this block begins with
    cdef const uint32_t* suffix_offsets     # rows + 1 positions in `suffixes`
    cdef const uint8_t* suffixes            # user keys less `prefix`
    cdef const uint64_t* epochs             # rows of them, or one when `one_epoch`
    cdef bint one_epoch
    cdef const uint8_t* tombstones          # bitmap of rows, bit set = delete; NULL: none in this block
    cdef const uint32_t* value_offsets      # rows + 1 positions in `values`
    cdef const uint8_t* values
    cdef bint unique_keys                   # no user key stands here twice
    cdef uint64_t max_epoch                 # of the epochs here
    cdef uint64_t* heads                    # head_of each suffix, made on the first point search; owned
    cdef uint8_t* memory                    # pooled buffer that everything above points into

    cdef Py_ssize_t lower_bound(self, Slice user_key, uint64_t epoch) noexcept nogil
    # row of the first entry at or after (user_key, epoch) in full key order; `rows` when there is none


cdef class BlockBuilder:
    cdef readonly Py_ssize_t rows
    cdef int add(self, Slice user_key, uint64_t epoch, Slice value) except -1 nogil  # REQUIRES ascending full keys
    cdef Py_ssize_t raw_bytes(self) noexcept nogil          # size of the payload if finished now, before compression
