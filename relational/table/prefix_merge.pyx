"""The first rows under many key prefixes: the store's answer with this epoch's operations laid over it."""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcmp

import numpy as np

from hummock.base.key cimport Slice, compare_bytes
from hummock.columnar.binary_column cimport BinaryColumn
from hummock.columnar.buffer_pool cimport ByteBuffer
from hummock.columnar.write_batch cimport KvBatch
from relational.table.mem_table cimport Entry, MemTable
from relational.table.operation cimport INSERTED, UNTOUCHED, UPDATED
from relational.table.overlay cimport BatchWriter


def first_rows(MemTable mem not None, BinaryColumn prefixes not None, const int32_t[::1] owners,
               KvBatch stored not None, Py_ssize_t limit, Py_ssize_t fetched):
    """(int32 prefix row of each result row, KvBatch, int32 unfinished prefixes): the first `limit` rows under
    each prefix, as the table is now.

    `stored` has at most `fetched` rows under each prefix, in order; row i belongs to prefix owners[i],
    ascending. A prefix is unfinished where deletes left fewer than `limit` of `fetched` rows: nothing is
    returned of it, ask again with more.
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
    """Appends the first rows under `prefix`, returns their number; -1, having appended none, if the store may
    hold more rows that belong among them. REQUIRES the mem table sorted.
    """
    cdef bint is_whole = end - row < fetched, is_touched
    cdef Py_ssize_t place = mem.lower_bound(prefix), kept_rows = out.keys.rows, count = 0
    cdef const Entry* entry
    cdef Slice key
    cdef int order
    while count < limit:
        is_touched = False
        if place < mem.sorted_rows:
            key = mem.key_at(place)
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
        entry = mem.entry_at(place)
        if entry.state == UNTOUCHED:
            place += 1
            continue
        if entry.state == INSERTED or entry.state == UPDATED:
            out.put(key, mem.value(entry))
            count += 1
        place += 1
        row += order == 0
    if count == limit or is_whole:
        return count
    out.cut(kept_rows)
    return -1
