"""Search for the version of a key in one block: the four strategies of all point reads, cheapest first.

by cache slot     fixed-width blocks: reads the slot, one or two lines of key prefixes and the value, never the `Block`
by hash           other cached blocks: one line of their hash index, then offsets, suffix and value; finds the newest
                  version of a key or does not decide
by key prefixes   any block: interpolation search among the first 8 bytes behind the common prefix, in two steps between
                  which other searches can run; whole keys are compared where the key prefixes do not decide
by whole keys     blocks that are searched too few times for key prefixes to be computed

Each returns the row of the newest version up to an epoch, or a `SearchResult`. All REQUIRE that no block before this
one in the file holds such a version.
"""

from libc.stdint cimport uint8_t, uint64_t

from hummock.base.key cimport Slice, begins_with, compare_bytes, head_of, same_bytes
from hummock.sstable.block cimport Block
from hummock.sstable.cache.block_cache cimport CacheSlot
from hummock.sstable.hash_index cimport entry_of, row_of_entry, suffix_of_entry, value_of_entry
from hummock.sstable.interpolation_search cimport row_at, row_near
from hummock.sstable.prefetch cimport PrefetchList, enqueue, enqueue_value, issue


cdef enum SearchResult:
    NOT_HERE = -1               # the file holds no version of the key up to the epoch
    NEXT_BLOCK = -2             # all rows are before the key: the next block may begin with it
    UNDECIDED = -3              # this strategy does not suffice
    NEEDS_IO = -4               # the file or the block is not in memory


cdef inline Py_ssize_t row_by_slot(CacheSlot* slot, double share, Slice key, uint64_t newest) noexcept nogil:
    """By cache slot, from the row at fraction `share`. REQUIRES that the slot holds a block throughout."""
    cdef Py_ssize_t prefix = slot.prefix_size, row
    cdef uint64_t head
    if not may_be_fixed_width(slot, key, newest):
        return UNDECIDED
    head = head_of(key.data + prefix, key.size - prefix)
    row = row_near_guess(slot, head, row_at(share, slot.rows))
    return NEXT_BLOCK if row == slot.rows else fixed_width_match(slot, row, head, key)


cdef inline Py_ssize_t inner_row_by_slot(CacheSlot* slot, double share, Slice key, uint64_t newest) noexcept nogil:
    """The same for a block that was only predicted, which need not be the one that may hold the key: UNDECIDED unless
    rows before and behind the key exclude all other blocks.
    """
    cdef Py_ssize_t prefix = slot.prefix_size, row
    cdef uint64_t head
    if not may_be_fixed_width(slot, key, newest):
        return UNDECIDED
    head = head_of(key.data + prefix, key.size - prefix)
    row = row_near_guess(slot, head, row_at(share, slot.rows))
    return fixed_width_match(slot, row, head, key) if 0 < row < slot.rows else UNDECIDED


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
        return UNDECIDED
    return row


cdef inline Slice fixed_width_value(CacheSlot* slot, Py_ssize_t row) noexcept nogil:
    cdef Slice out
    out.data = <const uint8_t*>slot.heads - slot.values_before + row * slot.each_value
    out.size = slot.each_value
    return out


cdef inline Py_ssize_t begin_by_hash(void* block, uint64_t hash) noexcept nogil:
    """Step 1: the row that the hash index names, or UNDECIDED; prefetches what step 2 and the caller read."""
    cdef uint64_t entry
    cdef Py_ssize_t row
    cdef PrefetchList lines
    if (<Block>block).buckets == NULL:
        return UNDECIDED
    entry = entry_of((<Block>block).buckets, (<Block>block).bucket_count, hash)
    if entry == 0:
        return UNDECIDED
    row, lines.count = row_of_entry(entry), 0
    enqueue(&lines, (<Block>block).suffix_offsets + row)
    enqueue(&lines, (<Block>block).value_offsets + row)
    if not (<Block>block).one_epoch:
        enqueue(&lines, (<Block>block).epochs + row)
    enqueue(&lines, (<Block>block).suffixes + suffix_of_entry(entry))
    enqueue_value(&lines, (<Block>block).values + value_of_entry(entry), (<Block>block).value_bytes)
    issue(&lines)
    return row


cdef inline Py_ssize_t finish_by_hash(void* block, Py_ssize_t row, Slice key, uint64_t newest) noexcept nogil:
    """Step 2: `row` if it is a version of the key up to the epoch, else UNDECIDED."""
    if row < 0 or not begins_with(key, (<Block>block).prefix):
        return UNDECIDED
    return row if (<Block>block).is_version_of(row, key, newest, 0) else UNDECIDED


cdef struct HeadSearch:             # a search by key prefixes between its steps
    uint64_t head                   # prefix of the key, behind the block's common prefix
    Py_ssize_t row                  # the first whose key prefix is not below `head`; or a SearchResult


cdef inline void begin_by_heads(void* block, double share, Slice key, HeadSearch* out) noexcept nogil:
    """Step 1: searches from the row at fraction `share`, and prefetches what step 2 reads."""
    cdef Py_ssize_t prefix = (<Block>block).prefix.size, rows = (<Block>block).rows
    cdef const uint64_t* heads = (<Block>block).ready_heads()
    if not begins_with(key, (<Block>block).prefix):
        out.row = beside_prefix(key, (<Block>block).prefix)
        return
    out.head = head_of(key.data + prefix, key.size - prefix)
    out.row = row_near(heads, rows, out.head, row_at(share, rows))
    if out.row == rows:
        out.row = NEXT_BLOCK
    elif heads[out.row] != out.head:
        out.row = NOT_HERE
    else:
        (<Block>block).prefetch_row(out.row)


cdef inline Py_ssize_t finish_by_heads(void* block, HeadSearch* search, Slice key, uint64_t newest) noexcept nogil:
    """Step 2, which decides."""
    cdef Py_ssize_t row = search.row, prefix = (<Block>block).prefix.size
    cdef Slice suffix
    if row < 0 or (<Block>block).is_version_of(row, key, newest, 8):
        return row
    suffix.data, suffix.size = key.data + prefix, key.size - prefix
    return version_at(block, (<Block>block).search_equal_heads(suffix, search.head, newest, row), key, newest)


cdef inline Py_ssize_t row_by_heads(void* block, double share, Slice key, uint64_t newest) noexcept nogil:
    cdef HeadSearch search
    (<Block>block).prefetch_row(row_at(share, (<Block>block).rows))
    begin_by_heads(block, share, key, &search)
    return finish_by_heads(block, &search, key, newest)


cdef inline Py_ssize_t row_by_keys(void* block, Slice key, uint64_t newest) noexcept nogil:
    cdef Py_ssize_t prefix = (<Block>block).prefix.size
    cdef Slice suffix
    if not begins_with(key, (<Block>block).prefix):
        return beside_prefix(key, (<Block>block).prefix)
    suffix.data, suffix.size = key.data + prefix, key.size - prefix
    return version_at(block, (<Block>block).search_rows(suffix, newest, 0, (<Block>block).rows), key, newest)


cdef inline Py_ssize_t version_at(void* block, Py_ssize_t row, Slice key, uint64_t newest) noexcept nogil:
    """`row`, which is the first at or after the target, if it is a version of the key."""
    if row == (<Block>block).rows:
        return NEXT_BLOCK
    return row if (<Block>block).is_version_of(row, key, newest, 0) else NOT_HERE


cdef inline Py_ssize_t beside_prefix(Slice key, Slice prefix) noexcept nogil:
    return NOT_HERE if compare_bytes(key, prefix) < 0 else NEXT_BLOCK
