"""RowLists: for each key number the row numbers that belong to it.

    one row: its number stands in the entry      several: side by side in a block of `numbers`, a power of two long

So whoever probes knows all rows of a key without touching one of them. Within a key rows stand in no order.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t

from relational.state.record_buffer cimport RecordBuffer

cdef enum:
    SIZES = 32              # of blocks: powers of two

cdef struct KeyEntry:
    int32_t rows            # of this key
    int32_t exponent        # its block holds 1 << exponent numbers; 0: there is none
    int64_t place           # of its block, in numbers; or the number of the only row
    uint32_t touched        # the owner's; 0 for a new key
    uint32_t unused


@cython.final
cdef class RowLists:
    cdef readonly Py_ssize_t keys
    cdef readonly Py_ssize_t empty_keys # keys without rows
    cdef readonly Py_ssize_t rows       # of all keys
    cdef RecordBuffer entries           # KeyEntry per key number
    cdef RecordBuffer numbers           # int32, in blocks
    cdef int64_t free_blocks[SIZES]     # first free block of each size, -1: none; a free block begins with the next

    cdef int grow(self, Py_ssize_t keys) except -1                          # keys without rows up to `keys`
    cdef int32_t add(self, int32_t key, int32_t row) except -1 nogil        # its place among the rows of the key
    cdef int32_t remove(self, int32_t key, int32_t place) noexcept nogil
    # the row that stands at `place` from now on, or -1; REQUIRES that there was one
    cdef int64_t take_block(self, int exponent) except -1 nogil
    cdef void give_block(self, KeyEntry* entry) noexcept nogil              # REQUIRES that it has one
    cdef int keep(self, const int32_t[::1] keys, int32_t* order) except -1
    # `keys` become 0, 1, 2 …, the rest is forgotten; order[r]: the row that becomes row r, keys one after the other

    cdef inline KeyEntry* entry(self, int64_t key) noexcept nogil:
        """Lives until `grow` or `keep`."""
        return <KeyEntry*>self.entries.data + key

    cdef inline const int32_t* block(self, const KeyEntry* entry) noexcept nogil:
        """The row numbers of a key that has a block. Lives until a row is added."""
        return <const int32_t*>self.numbers.data + entry.place
