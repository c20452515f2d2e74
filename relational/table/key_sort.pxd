"""Sorting row indices by their keys."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from hummock.base.key cimport Slice, head_of

cdef extern from * nogil:
    uint64_t __builtin_bswap64(uint64_t) noexcept

cdef struct KeyItem:        # one key: its first 16 bytes as integers, and its row
    uint64_t high           # bytes 0..7 after the skipped ones, big endian, short keys padded with zeros
    uint64_t low            # bytes 8..15
    int64_t row

ctypedef Slice (*KeySource)(void* owner, int64_t row) noexcept nogil

cdef enum:
    ITEM_BYTES = 16         # bytes of a key stored in its item

cdef inline void write_bytes(const KeyItem* item, uint8_t* out) noexcept nogil:
    """The ITEM_BYTES bytes of the key after the skipped ones, padded with zeros."""
    cdef uint64_t high = __builtin_bswap64(item.high), low = __builtin_bswap64(item.low)
    memcpy(out, &high, 8)
    memcpy(out + 8, &low, 8)

cdef inline KeyItem item_of(Slice key, Py_ssize_t skip, int64_t row) noexcept nogil:
    cdef const uint8_t* data = key.data + skip
    cdef Py_ssize_t size = key.size - skip
    cdef KeyItem item
    item.high = head_of(data, size) if size > 0 else 0
    item.low = 0
    if size >= 16:
        item.low = head_of(data + 8, 8)
    elif size > 8:                      # the last 8 bytes, less those that `high` has
        item.low = head_of(data + size - 8, 8) << (8 * (16 - size))
    item.row = row
    return item

cdef inline bint are_heads_equal(const KeyItem* a, const KeyItem* b) noexcept nogil:
    return a.high == b.high and a.low == b.low

cdef int compare_items(const KeyItem* a, const KeyItem* b, KeySource keys, void* owner,
                       Py_ssize_t skip) noexcept nogil
# negative, 0 or positive; the keys are read only if their 16 bytes are equal
cdef void sort_items(KeyItem* items, KeyItem* scratch, Py_ssize_t count, KeySource keys, void* owner,
                     Py_ssize_t skip) noexcept nogil
# ascending by the keys' bytes from `skip` on, stable; `scratch` has a capacity of `count` items
