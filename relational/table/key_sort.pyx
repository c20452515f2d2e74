"""Sorting row indices by their keys.

Keys that are sorted together share a prefix (one table, few vnodes, small numbers), so most of their leading bytes are
equal. The first 16 bytes of each key are kept with its row; a radix sort passes only over the byte positions in which
some keys differ, and the keys themselves are read only where those 16 bytes are equal.
"""

from libc.stdint cimport uint8_t
from libc.string cimport memcpy, memset

from hummock.base.key cimport compare_bytes, head_of

cdef enum:
    INSERTION_ROWS = 24     # below this many rows insertion sort is faster than counting


cdef KeyItem item_of(Slice key, Py_ssize_t skip, int64_t row) noexcept nogil:
    cdef KeyItem item
    item.high = head_of(key.data + skip, key.size - skip) if key.size > skip else 0
    item.low = head_of(key.data + skip + 8, key.size - skip - 8) if key.size > skip + 8 else 0
    item.row = row
    return item


cdef int compare_items(const KeyItem* a, const KeyItem* b, KeySource keys, void* owner,
                       Py_ssize_t skip) noexcept nogil:
    cdef Slice x, y
    if a.high != b.high:
        return -1 if a.high < b.high else 1
    if a.low != b.low:
        return -1 if a.low < b.low else 1
    x, y = keys(owner, a.row), keys(owner, b.row)
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
    sort_by_heads(items, scratch, count)
    while start < count:
        end = start + 1
        while end < count and items[end].high == items[start].high and items[end].low == items[start].low:
            end += 1
        if end - start > 1:
            merge_sort(items + start, scratch, end - start, keys, owner, skip)
        start = end


cdef void sort_by_heads(KeyItem* items, KeyItem* scratch, Py_ssize_t count) noexcept nogil:
    """LSD radix sort over the byte positions in which the key prefixes differ."""
    cdef uint64_t high = 0, low = 0
    cdef KeyItem* source = items
    cdef KeyItem* target = scratch
    cdef Py_ssize_t row
    cdef int byte
    for row in range(1, count):
        high |= items[row].high ^ items[0].high
        low |= items[row].low ^ items[0].low
    for byte in range(16):
        if ((low >> (8 * byte)) if byte < 8 else (high >> (8 * (byte - 8)))) & 0xFF:
            scatter(source, target, count, byte)
            source, target = target, source
    if source != items:
        memcpy(items, source, count * sizeof(KeyItem))


cdef inline uint8_t digit(const KeyItem* item, int byte) noexcept nogil:
    return <uint8_t>((item.low >> (8 * byte)) if byte < 8 else (item.high >> (8 * (byte - 8))))


cdef void scatter(const KeyItem* source, KeyItem* target, Py_ssize_t count, int byte) noexcept nogil:
    cdef Py_ssize_t starts[256]
    cdef Py_ssize_t row, start = 0, here
    cdef int value
    memset(starts, 0, sizeof(starts))
    for row in range(count):
        starts[digit(source + row, byte)] += 1
    for value in range(256):
        here = starts[value]
        starts[value] = start
        start += here
    for row in range(count):
        value = digit(source + row, byte)
        target[starts[value]] = source[row]
        starts[value] += 1


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
