"""Sorting row indices by their keys.

Keys that are sorted together share a prefix (one table, few vnodes, small numbers), so most of their leading bytes are
equal. The first 16 bytes of each key are kept with its row. A radix sort, from the most significant bits down, looks
only at bits in which some keys differ. The keys themselves are read only where those 16 bytes are equal: three or more
such keys are sorted in the same way by the 16 bytes behind all that they have in common.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from hummock.base.key cimport Slice, compare_bytes, shared_size
from hummock.base.prefetch cimport prefetch
from hummock.columnar.binary_column cimport BinaryColumn
from hummock.columnar.buffer_pool cimport ByteBuffer

cdef extern from * nogil:
    int __builtin_clzll(unsigned long long) noexcept

cdef enum:
    DEEPEST = 256           # bytes of keys, behind which they are compared
    INSERTION_ROWS = 24     # below this many rows insertion sort is faster than counting
    DEEPER_ROWS = 3         # below this many rows with equal prefixes keys are compared
    CACHED_ROWS = 8192      # up to this many items and their copies stay in the cache
    CACHED_BITS = 8         # by which more items are split
    MOST_BITS = 11
    MOST_PARTS = 2048       # values of so many bits


def sorted_rows(BinaryColumn keys not None):
    """int32[rows]: the rows in the order of their keys, equal ones as they come."""
    cdef Py_ssize_t row, rows = keys.rows
    cdef ByteBuffer items = ByteBuffer(), scratch = ByteBuffer()
    out = np.empty(rows, np.int32)
    cdef int32_t[::1] found = out
    with nogil:
        items.reserve(rows * sizeof(KeyItem))
        scratch.reserve(rows * sizeof(KeyItem))
        for row in range(rows):
            (<KeyItem*>items.data)[row] = item_of(keys.at(row), 0, row)
        sort_items(<KeyItem*>items.data, <KeyItem*>scratch.data, rows, key_at, <void*>keys, 0)
        for row in range(rows):
            found[row] = <int32_t>(<KeyItem*>items.data)[row].row
    return out


cdef Slice key_at(void* keys, int64_t row) noexcept nogil:
    return (<BinaryColumn>keys).at(row)


cdef int compare_items(const KeyItem* a, const KeyItem* b, KeySource keys, void* owner,
                       Py_ssize_t skip) noexcept nogil:
    cdef Slice x, y
    if a.high != b.high:
        return -1 if a.high < b.high else 1
    if a.low != b.low:
        return -1 if a.low < b.low else 1
    x, y = keys(owner, a.row), keys(owner, b.row)
    if x.size >= skip + ITEM_BYTES and y.size >= skip + ITEM_BYTES:
        skip += ITEM_BYTES
    x.data += skip
    x.size -= skip
    y.data += skip
    y.size -= skip
    return compare_bytes(x, y)


cdef void sort_items(KeyItem* items, KeyItem* scratch, Py_ssize_t count, KeySource keys, void* owner,
                     Py_ssize_t skip) noexcept nogil:
    cdef Py_ssize_t start = 0, end
    if count <= INSERTION_ROWS:
        insert_each(items, count, keys, owner, skip)
        return
    sort_by_heads(items, scratch, count, False)
    while start < count:
        end = start + 1
        while end < count and items[end].high == items[start].high and items[end].low == items[start].low:
            end += 1
        if end - start > 1 and not sort_deeper(items + start, scratch, end - start, keys, owner, skip):
            merge_sort(items + start, scratch, end - start, keys, owner, skip)
        start = end


cdef bint sort_deeper(KeyItem* items, KeyItem* scratch, Py_ssize_t count, KeySource keys, void* owner,
                      Py_ssize_t skip) noexcept nogil:
    """Sorts items of equal prefixes by the bytes of their keys behind all that these have in common, and gives them
    their prefixes back. False, with nothing done, for two items, behind DEEPEST bytes, and where a key ends within the
    prefix.
    """
    cdef uint64_t high = items[0].high, low = items[0].low
    cdef Py_ssize_t row, behind = skip + ITEM_BYTES, common = DEEPEST - behind
    cdef Slice first, key
    if count < DEEPER_ROWS or common < 0:
        return False
    for row in range(count):
        key = keys(owner, items[row].row)
        common = min(common, key.size - behind)
        prefetch(key.data + min(behind, key.size))
    if common < 0:
        return False
    first = keys(owner, items[0].row)
    for row in range(1, count):
        common = shared_size(first.data + behind, keys(owner, items[row].row).data + behind, common)
    behind += common
    for row in range(count):
        items[row] = item_of(keys(owner, items[row].row), behind, items[row].row)
    sort_items(items, scratch, count, keys, owner, behind)
    for row in range(count):
        items[row].high, items[row].low = high, low
    return True


cdef void sort_by_heads(KeyItem* source, KeyItem* other, Py_ssize_t count, bint to_other) noexcept nogil:
    """Sorts by the key prefixes, stable: in place, or into `other`. The items are split by the highest bits in which
    they differ, and then each part, by as many bits as leave about one item in each.
    """
    cdef uint64_t high = 0, low = 0
    cdef uint32_t starts[MOST_PARTS + 1]
    cdef Py_ssize_t row, first
    cdef int part, top, bits, most = CACHED_BITS
    if count <= INSERTION_ROWS:
        insert_by_heads(source, count)
        if to_other:
            memcpy(other, source, count * sizeof(KeyItem))
        return
    for row in range(1, count):
        high |= source[row].high ^ source[0].high
        low |= source[row].low ^ source[0].low
    if high | low == 0:
        if to_other:
            memcpy(other, source, count * sizeof(KeyItem))
        return
    top = 64 - __builtin_clzll(high if high else low)
    if count <= CACHED_ROWS:
        most = min(64 - __builtin_clzll(<uint64_t>count - 1), <int>MOST_BITS)
    bits = min(most, top)
    scatter(source, other, count, high != 0, top - bits, bits, starts)
    first = 0
    for part in range(1 << bits):
        if starts[part] > first:
            sort_by_heads(other + first, source + first, starts[part] - first, not to_other)
        first = starts[part]


cdef void insert_by_heads(KeyItem* items, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t row, at
    cdef KeyItem item
    for row in range(1, count):
        item = items[row]
        at = row
        while at > 0 and (items[at - 1].high > item.high
                          or (items[at - 1].high == item.high and items[at - 1].low > item.low)):
            items[at] = items[at - 1]
            at -= 1
        items[at] = item


cdef void scatter(const KeyItem* source, KeyItem* target, Py_ssize_t count, bint by_high, int shift, int bits,
                  uint32_t* ends) noexcept nogil:
    """Moves the items to `target` by `bits` bits of `high` or `low` above the lowest `shift`, in their order; those
    with the value v end at ends[v]. `ends` has room for one number more than there are values.
    """
    cdef uint64_t mask = (<uint64_t>1 << bits) - 1
    cdef Py_ssize_t row
    cdef uint64_t value
    memset(ends, 0, ((1 << bits) + 1) * sizeof(uint32_t))
    if by_high:
        for row in range(count):
            ends[((source[row].high >> shift) & mask) + 1] += 1
    else:
        for row in range(count):
            ends[((source[row].low >> shift) & mask) + 1] += 1
    for row in range(1, 1 << bits):
        ends[row + 1] += ends[row]
    for row in range(count):
        value = ((source[row].high if by_high else source[row].low) >> shift) & mask
        target[ends[value]] = source[row]
        ends[value] += 1


cdef void insert_each(KeyItem* items, Py_ssize_t count, KeySource keys, void* owner,
                      Py_ssize_t skip) noexcept nogil:
    cdef Py_ssize_t row, at
    cdef KeyItem item
    for row in range(1, count):
        item = items[row]
        at = row
        while at > 0 and compare_items(items + at - 1, &item, keys, owner, skip) > 0:
            items[at] = items[at - 1]
            at -= 1
        items[at] = item


cdef void merge_sort(KeyItem* items, KeyItem* scratch, Py_ssize_t count, KeySource keys, void* owner,
                     Py_ssize_t skip) noexcept nogil:
    cdef Py_ssize_t left = count // 2, i = 0, j = 0, out = 0
    if count <= INSERTION_ROWS:
        insert_each(items, count, keys, owner, skip)
        return
    merge_sort(items, scratch, left, keys, owner, skip)
    merge_sort(items + left, scratch, count - left, keys, owner, skip)
    memcpy(scratch, items, left * sizeof(KeyItem))
    j = left
    while i < left:
        if j >= count or compare_items(scratch + i, items + j, keys, owner, skip) <= 0:
            items[out] = scratch[i]
            i += 1
        else:
            items[out] = items[j]
            j += 1
        out += 1
