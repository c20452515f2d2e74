"""Sorting row numbers by their keys."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from hummock.base.key cimport Slice

cdef extern from * nogil:
    uint64_t __builtin_bswap64(uint64_t) noexcept

cdef struct KeyItem:        # one key: its first 16 bytes as numbers, and whose it is
    uint64_t high           # bytes 0..7 after the skipped ones, big endian, short keys padded with zeros
    uint64_t low            # bytes 8..15
    int64_t row

ctypedef Slice (*KeySource)(void* owner, int64_t row) noexcept nogil

cdef enum:
    ITEM_BYTES = 16         # of a key that are in its item

cdef inline void write_bytes(const KeyItem* item, uint8_t* out) noexcept nogil:
    """The ITEM_BYTES bytes of the key behind the skipped ones, zeros where it ended before."""
    cdef uint64_t high = __builtin_bswap64(item.high), low = __builtin_bswap64(item.low)
    memcpy(out, &high, 8)
    memcpy(out + 8, &low, 8)

cdef KeyItem item_of(Slice key, Py_ssize_t skip, int64_t row) noexcept nogil
cdef int compare_items(const KeyItem* a, const KeyItem* b, KeySource keys, void* owner,
                       Py_ssize_t skip) noexcept nogil
# negative, 0 or positive; keys are read only where 16 bytes do not decide
cdef void sort_items(KeyItem* items, KeyItem* scratch, Py_ssize_t count, KeySource keys, void* owner,
                     Py_ssize_t skip) noexcept nogil
# ascending by the keys' bytes from `skip` on, stable; `scratch` has room for `count` items
