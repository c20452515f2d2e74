"""Search in a cached fixed-width block by its cache slot alone."""

from libc.stdint cimport uint8_t, uint64_t

from hummock.base.key cimport Slice, head_of, same_bytes
from hummock.sstable.cache.block_cache cimport CacheSlot
from hummock.sstable.interpolation_search cimport row_near

cdef enum:
    ELSEWHERE = -3              # the slot does not suffice: search the block itself
    NOT_HERE = -1


cdef inline Py_ssize_t fixed_width_row(CacheSlot* slot, Py_ssize_t guess, Slice key, uint64_t newest) noexcept nogil:
    """The row of the key visible at `newest`, NOT_HERE or ELSEWHERE; `rows`: it may be the first of the next block.

    REQUIRES that `slot` holds a block throughout, and that no block before it holds the key.
    """
    cdef Py_ssize_t prefix = slot.prefix_size, row
    cdef uint64_t head
    if not may_be_fixed_width(slot, key, newest):
        return ELSEWHERE
    head = head_of(key.data + prefix, key.size - prefix)
    row = row_near_guess(slot, head, guess)
    return row if row == slot.rows else fixed_width_match(slot, row, head, key)


cdef inline Py_ssize_t inner_fixed_width_row(
    CacheSlot* slot, Py_ssize_t guess, Slice key, uint64_t newest
) noexcept nogil:
    """The same for any block; ELSEWHERE unless rows before and behind the key exclude all other blocks."""
    cdef Py_ssize_t prefix = slot.prefix_size, row
    cdef uint64_t head
    if not may_be_fixed_width(slot, key, newest):
        return ELSEWHERE
    head = head_of(key.data + prefix, key.size - prefix)
    row = row_near_guess(slot, head, guess)
    return fixed_width_match(slot, row, head, key) if 0 < row < slot.rows else ELSEWHERE


cdef inline bint may_be_fixed_width(CacheSlot* slot, Slice key, uint64_t newest) noexcept nogil:
    return slot.is_fixed_width and key.size == slot.prefix_size + <Py_ssize_t>slot.each_suffix and (
        slot.epoch <= newest and same_bytes(key.data, slot.prefix, slot.prefix_size))


cdef inline Py_ssize_t row_near_guess(CacheSlot* slot, uint64_t head, Py_ssize_t guess) noexcept nogil:
    """`row_near`, but does not read the row before if the key prefix is the whole suffix and matches at `guess`."""
    if slot.each_suffix <= 8 and slot.heads[guess] == head:
        return guess
    return row_near(slot.heads, slot.rows, head, guess)


cdef inline Py_ssize_t fixed_width_match(CacheSlot* slot, Py_ssize_t row, uint64_t head, Slice key) noexcept nogil:
    cdef Py_ssize_t each = slot.each_suffix
    if slot.heads[row] != head:
        return NOT_HERE
    if each > 8 and not same_bytes(
            fixed_width_value(slot, 0).data - (<Py_ssize_t>slot.rows - row) * each + 8,
            key.data + slot.prefix_size + 8, each - 8):
        return ELSEWHERE
    return row


cdef inline Slice fixed_width_value(CacheSlot* slot, Py_ssize_t row) noexcept nogil:
    cdef Slice out
    out.data = <const uint8_t*>slot.heads - slot.values_before + row * slot.each_value
    out.size = slot.each_value
    return out
