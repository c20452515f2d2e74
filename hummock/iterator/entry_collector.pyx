"""EntryCollector: all entries of an iterator as columns, versions and tombstones included, for exports and inspection.

`BatchCollector` is its counterpart for rows.
"""

from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.string cimport memcpy

from hummock.base.key cimport copy_bytes
from hummock.columnar.binary_column cimport BinaryColumnBuilder
from hummock.columnar.buffer_pool cimport ByteBuffer
from hummock.iterator.base cimport FORWARD, Entry, HummockIterator

import numpy as np

cdef enum:
    PULL_ENTRIES = 256


cdef class EntryCollector:
    """Reads a forward iterator from its first entry on. `values_bytes`: expected in a batch, to allocate it at once."""
    cdef HummockIterator source
    cdef Py_ssize_t values_bytes
    cdef bint is_started

    def __cinit__(self, HummockIterator source not None, Py_ssize_t values_bytes=0):
        if source.direction != FORWARD:
            raise ValueError("entries are collected in ascending order: the source must be a forward iterator")
        self.source, self.values_bytes = source, values_bytes

    def next_batch(self, Py_ssize_t max_rows=65_536, Py_ssize_t max_bytes=64 << 20):
        """(keys, values, epochs: uint64[n]) of the next entries, or None at the end; a tombstone's value is null.

        A batch that exceeds `max_bytes` ends there, at most 255 entries later.
        """
        cdef Entry entries[PULL_ENTRIES]
        cdef Py_ssize_t rows = 0, count = 1, at
        cdef BinaryColumnBuilder keys = BinaryColumnBuilder(), values = BinaryColumnBuilder()
        cdef ByteBuffer epochs = ByteBuffer(8 * max_rows)
        keys.reserve(max_rows, 16 * max_rows)
        values.reserve(max_rows, self.values_bytes)
        with nogil:
            if not self.is_started:
                self.source.rewind()
                self.source.pulled, self.is_started = 0, True
            while count > 0 and rows < max_rows and keys.data_bytes + values.data_bytes < max_bytes:
                count = self.source.pull(entries, min(PULL_ENTRIES, max_rows - rows))
                epochs.reserve(8 * count)
                for at in range(count):
                    (<uint64_t*>epochs.data)[rows + at] = entries[at].epoch
                epochs.size += 8 * count
                append_keys(keys, entries, count)
                append_values(values, entries, count)
                rows += count
        return (keys.finish(), values.finish(), np.frombuffer(epochs, np.uint64)) if rows > 0 else None


cdef int append_keys(BinaryColumnBuilder keys, const Entry* entries, Py_ssize_t count) except -1 nogil:
    cdef Py_ssize_t at, added = 0
    cdef int32_t* ends
    cdef uint8_t* target
    for at in range(count):
        added += entries[at].user_key.size
    keys.reserve(count, added)
    ends, target = keys.offsets + keys.rows + 1, keys.data + keys.data_bytes
    for at in range(count):
        copy_bytes(target, entries[at].user_key.data, entries[at].user_key.size)
        target += entries[at].user_key.size
        ends[at] = <int32_t>(target - keys.data)
    keys.rows += count
    keys.data_bytes += added
    return 0


cdef int append_values(BinaryColumnBuilder values, const Entry* entries, Py_ssize_t count) except -1 nogil:
    cdef Py_ssize_t at, added = 0, deletes = 0
    cdef int32_t* ends
    cdef uint8_t* target
    for at in range(count):
        added += entries[at].value.size
        deletes += entries[at].value.data == NULL
    if deletes > 0 or values.validity != NULL:
        for at in range(count):
            if entries[at].value.data == NULL:
                values.append_null()
            else:
                values.append(entries[at].value)
        return 0
    values.reserve(count, added)
    ends, target = values.offsets + values.rows + 1, values.data + values.data_bytes
    for at in range(count):
        memcpy(target, entries[at].value.data, <size_t>entries[at].value.size)
        target += entries[at].value.size
        ends[at] = <int32_t>(target - values.data)
    values.rows += count
    values.data_bytes += added
    return 0
