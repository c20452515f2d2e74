"""Search in a cached block by what its place says, where rows are so alike that nothing else need be read."""

from libc.stdint cimport uint8_t, uint64_t

from hummock.key cimport Slice, head_of, same_bytes
from hummock.sstable.block_cache cimport CachePlace
from hummock.sstable.head_search cimport row_near

cdef enum:
    ELSEWHERE = -3              # the block itself must be asked
    NOT_HERE = -1


cdef inline Py_ssize_t plain_row(CachePlace* place, Py_ssize_t guess, Slice key, uint64_t newest) noexcept nogil:
    """The row of the key as readers at `newest` see it, NOT_HERE, ELSEWHERE; `rows`: it may begin the next block.

    REQUIRES that `place` holds a block, and goes on holding it.
    """
    cdef Py_ssize_t rows = place.rows, prefix = place.prefix_size, each = place.each_suffix, row
    cdef uint64_t head
    if not place.is_plain or key.size != prefix + each or place.epoch > newest or (
            not same_bytes(key.data, place.prefix, prefix)):
        return ELSEWHERE
    head = head_of(key.data + prefix, each)
    row = row_near(place.heads, rows, head, guess)
    if row == rows:
        return rows
    if place.heads[row] != head:
        return NOT_HERE
    if each > 8 and not same_bytes(
            plain_value(place, 0).data - (rows - row) * each + 8, key.data + prefix + 8, each - 8):
        return ELSEWHERE
    return row


cdef inline Slice plain_value(CachePlace* place, Py_ssize_t row) noexcept nogil:
    cdef Slice out
    out.data = <const uint8_t*>place.heads - place.values_before + row * place.each_value
    out.size = place.each_value
    return out
