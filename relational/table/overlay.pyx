"""Combines sorted batches of rows: merges several ranges, and overlays changes on the rows of the store.

Within a table the vnode is a function of the rest of the key, so rows of several vnodes are ordered by the bytes after
`table id | vnode`: those are the first `skip` bytes, which every comparison here ignores. With `reverse` the batches
are in descending order, and so are the results.

`first_rows` overlays a mem table on the first rows of the store under many key prefixes. `rows_of_changes` turns the
changes of a store into rows with ops, which a table decodes into a StreamChunk.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

import numpy as np

from hummock.base.key cimport Slice, compare_bytes, slice_of
from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from hummock.columnar.buffer_pool cimport ByteBuffer
from hummock.columnar.write_batch cimport KvBatch
from relational.chunk.stream_chunk cimport DELETE, INSERT, UPDATE_DELETE, UPDATE_INSERT
from relational.table.batch_rows cimport BatchRows, key_source, number_of
from relational.table.batch_writer cimport BatchWriter
from relational.table.key_sort cimport KeyItem, item_of, sort_items
from relational.table.mem_table cimport INSERTED, UNTOUCHED, UPDATED, Entry, MemTable

cdef int compare_tails(Slice a, Slice b, Py_ssize_t skip) noexcept nogil:
    a.data += skip
    a.size -= skip
    b.data += skip
    b.size -= skip
    return compare_bytes(a, b)


def rows_until(
    KvBatch batch not None, Py_ssize_t start, bytes bound not None, Py_ssize_t skip, bint reverse=False
):
    """The first row from `start` on whose key is after the key `bound` in the batch's order."""
    cdef Py_ssize_t low = start, high = batch.keys.rows, middle
    cdef Slice limit
    cdef int sign = -1 if reverse else 1
    limit = slice_of(bound)
    while low < high:
        middle = (low + high) >> 1
        if compare_tails(batch.keys.at(middle), limit, skip) * sign <= 0:
            low = middle + 1
        else:
            high = middle
    return low


def merged(list batches not None, starts, ends, Py_ssize_t skip, bint reverse=False):
    """The rows [starts[i], ends[i]) of each KvBatch i merged, ordered by their keys without `skip` bytes."""
    cdef BatchRows sources = BatchRows()
    cdef BatchWriter out = BatchWriter()
    cdef ByteBuffer items = ByteBuffer(), scratch = ByteBuffer()
    cdef Py_ssize_t rows = 0, key_bytes = 0, value_bytes = 0, i, row, first, last
    cdef KeyItem* item
    cdef KvBatch batch
    for i in range(len(batches)):
        batch = batches[i]
        sources.add(batch)
        first, last = starts[i], ends[i]
        if not 0 <= first <= last <= batch.keys.rows:
            raise IndexError(f"rows [{first}, {last}) of a batch of {batch.keys.rows}")
        items.reserve((last - first) * sizeof(KeyItem))
        item = <KeyItem*>(items.data + items.size)
        for row in range(first, last):
            item[row - first] = item_of(batch.keys.at(row), skip, number_of(i, row))
        items.size += (last - first) * sizeof(KeyItem)
        rows += last - first
        key_bytes += batch.keys.offsets[last] - batch.keys.offsets[first]
        value_bytes += batch.values.offsets[last] - batch.values.offsets[first]
    scratch.reserve(rows * sizeof(KeyItem))
    with nogil:
        sort_items(<KeyItem*>items.data, <KeyItem*>scratch.data, rows, key_source, <void*>sources.source(), skip)
        out.keys.reserve(rows, key_bytes)
        out.values.reserve(rows, value_bytes)
        sources.gather(<const KeyItem*>items.data, rows, reverse, out)
    return out.finish()


def overlay(KvBatch rows, KvBatch changes not None, Py_ssize_t position, Py_ssize_t skip, bint reverse=False):
    """(`rows` with the changes from `position` on applied, the position after the applied changes).

    Changes replace, add and (null value) delete rows. Those beyond the last row are not applied, since the next batch
    may contain their rows; with `rows` None, which means that no more follow, all are applied.
    """
    cdef BatchWriter out = BatchWriter()
    cdef Py_ssize_t row = 0, count = 0 if rows is None else rows.keys.rows, change = position
    cdef Py_ssize_t changed = changes.keys.rows
    cdef int order, sign = -1 if reverse else 1
    with nogil:
        while row < count or (rows is None and change < changed):
            order = -1
            if change < changed:
                order = 1
                if row < count:
                    order = compare_tails(rows.keys.at(row), changes.keys.at(change), skip) * sign
            if order < 0:
                out.copy_row(rows, row)
                row += 1
                continue
            if not changes.values.is_null(change):
                out.copy_row(changes, change)
            change += 1
            row += order == 0
    return out.finish(), change


def first_rows(MemTable mem not None, BinaryColumn prefixes not None, const int32_t[::1] owners,
               KvBatch stored not None, Py_ssize_t limit, Py_ssize_t fetched):
    """(int32 prefix row of each result row, KvBatch, int32 unfinished prefixes): the first `limit` rows under each
    prefix, with the mem table applied.

    `stored` has at most `fetched` rows under each prefix, in order; row i belongs to prefix owners[i], ascending. A
    prefix is unfinished if deletes left fewer than `limit` of `fetched` rows: nothing is returned for it; the caller
    repeats the call with more.
    """
    cdef BatchWriter out = BatchWriter()
    cdef Py_ssize_t prefix, start = 0, end = 0, rows = stored.keys.rows
    numbers = np.zeros(prefixes.rows, np.int64)
    cdef int64_t[::1] found = numbers
    mem.sort_all()
    with nogil:
        for prefix in range(prefixes.rows):
            while end < rows and owners[end] == prefix:
                end += 1
            found[prefix] = merge_prefix(mem, prefixes.at(prefix), stored, start, end, limit, fetched, out)
            start = end
    if end != rows:
        raise ValueError(f"row {end} belongs to prefix {owners[end]} of {prefixes.rows}, or out of order")
    owned = np.repeat(np.arange(prefixes.rows, dtype=np.int32), np.maximum(numbers, 0))
    return owned, out.finish(), np.flatnonzero(numbers < 0).astype(np.int32)


cdef Py_ssize_t merge_prefix(MemTable mem, Slice prefix, KvBatch stored, Py_ssize_t row, Py_ssize_t end,
                             Py_ssize_t limit, Py_ssize_t fetched, BatchWriter out) except -2 nogil:
    """Appends the first rows under `prefix`, returns their number; -1, having appended none, if the store may contain
    more rows that belong among them. REQUIRES the mem table sorted.
    """
    cdef bint is_whole = end - row < fetched, is_touched
    cdef Py_ssize_t position = mem.lower_bound(prefix), kept_rows = out.keys.rows, count = 0
    cdef const Entry* entry
    cdef Slice key
    cdef int order
    while count < limit:
        is_touched = False
        if position < mem.sorted_rows:
            key = mem.key_at(position)
            is_touched = key.size >= prefix.size and memcmp(key.data, prefix.data, <size_t>prefix.size) == 0
        if row >= end and (not is_touched or not is_whole):
            break
        order = -1
        if is_touched:
            order = compare_bytes(stored.keys.at(row), key) if row < end else 1
        if order < 0:
            out.copy_row(stored, row)
            row += 1
            count += 1
            continue
        entry = mem.entry_at(position)
        if entry.state == UNTOUCHED:
            position += 1
            continue
        if entry.state == INSERTED or entry.state == UPDATED:
            out.put(key, mem.value(entry))
            count += 1
        position += 1
        row += order == 0
    if count == limit or is_whole:
        return count
    out.cut(kept_rows)
    return -1


def rows_of_changes(BinaryColumn keys not None, BinaryColumn old not None, BinaryColumn new not None) -> tuple:
    """(keys, values, ops: uint8[rows]): for each change the old row, then the new one, if present."""
    cdef BinaryColumnBuilder out_keys = BinaryColumnBuilder(), values = BinaryColumnBuilder()
    cdef uint8_t[::1] ops = np.empty(2 * keys.rows, np.uint8)
    cdef Py_ssize_t row, rows = 0
    cdef bint goes, comes
    with nogil:
        for row in range(keys.rows):
            goes, comes = not old.is_null(row), not new.is_null(row)
            if goes:
                ops[rows] = UPDATE_DELETE if comes else DELETE
                out_keys.append(keys.at(row))
                values.append(old.at(row))
                rows += 1
            if comes:
                ops[rows] = UPDATE_INSERT if goes else INSERT
                out_keys.append(keys.at(row))
                values.append(new.at(row))
                rows += 1
    return out_keys.finish(), values.finish(), np.asarray(ops)[:rows]
