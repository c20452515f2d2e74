"""Search in a cached block by what its place says, where rows are so alike that nothing else need be read."""

from libc.stdint cimport uint8_t, uint64_t

from hummock.base.key cimport Slice, head_of, same_bytes
from hummock.sstable.cache.block_cache cimport CachePlace
from hummock.sstable.interpolation_search cimport row_near

cdef enum:
    ELSEWHERE = -3              # the block itself must be asked
    NOT_HERE = -1


cdef inline Py_ssize_t plain_row(CachePlace* place, Py_ssize_t guess, Slice key, uint64_t newest) noexcept nogil:
    """The row of the key as readers at `newest` see it, NOT_HERE, ELSEWHERE; `rows`: it may begin the next block.

    REQUIRES that `place` holds a block, and goes on holding it, and that no block before it holds the key.
    """
    cdef Py_ssize_t prefix = place.prefix_size, row
    cdef uint64_t head
    if not may_be_plain(place, key, newest):
        return ELSEWHERE
    head = head_of(key.data + prefix, key.size - prefix)
    row = near_row(place, head, guess)
    return row if row == place.rows else plain_match(place, row, head, key)


cdef inline Py_ssize_t inner_row(CachePlace* place, Py_ssize_t guess, Slice key, uint64_t newest) noexcept nogil:
    """The same of whatever block; ELSEWHERE unless rows before and behind the key show that no other may hold it."""
    cdef Py_ssize_t prefix = place.prefix_size, row
    cdef uint64_t head
    if not may_be_plain(place, key, newest):
        return ELSEWHERE
    head = head_of(key.data + prefix, key.size - prefix)
    row = near_row(place, head, guess)
    return plain_match(place, row, head, key) if 0 < row < place.rows else ELSEWHERE


cdef inline bint may_be_plain(CachePlace* place, Slice key, uint64_t newest) noexcept nogil:
    return place.is_plain and key.size == place.prefix_size + <Py_ssize_t>place.each_suffix and (
        place.epoch <= newest and same_bytes(key.data, place.prefix, place.prefix_size))


cdef inline Py_ssize_t near_row(CachePlace* place, uint64_t head, Py_ssize_t guess) noexcept nogil:
    """`row_near`; where a head is all of a key the row before may stay far away."""
    if place.each_suffix <= 8 and place.heads[guess] == head:
        return guess
    return row_near(place.heads, place.rows, head, guess)


cdef inline Py_ssize_t plain_match(CachePlace* place, Py_ssize_t row, uint64_t head, Slice key) noexcept nogil:
    cdef Py_ssize_t each = place.each_suffix
    if place.heads[row] != head:
        return NOT_HERE
    if each > 8 and not same_bytes(
            plain_value(place, 0).data - (<Py_ssize_t>place.rows - row) * each + 8,
            key.data + place.prefix_size + 8, each - 8):
        return ELSEWHERE
    return row


cdef inline Slice plain_value(CachePlace* place, Py_ssize_t row) noexcept nogil:
    cdef Slice out
    out.data = <const uint8_t*>place.heads - place.values_before + row * place.each_value
    out.size = place.each_value
    return out
