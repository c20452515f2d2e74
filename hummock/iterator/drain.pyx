"""Collects all entries of an iterator into columns: for inspecting runs and for benchmarks of merges."""

from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.string cimport memcpy

from hummock.columnar.binary_column cimport BinaryColumnBuilder
from hummock.columnar.buffer_pool cimport ByteBuffer
from hummock.iterator.base cimport Entry, HummockIterator, copy_key

import numpy as np

cdef enum:
    PULL_ENTRIES = 256
cdef Py_ssize_t FIRST_ROWS = 1024


def drain(HummockIterator source not None, Py_ssize_t rows_hint=FIRST_ROWS, Py_ssize_t bytes_hint=0) -> tuple:
    """(keys, values, epochs: uint64[n]) of all entries, in forward order; a tombstone's value is null.

    The hints are the expected numbers of rows and of bytes of values.
    """
    cdef Entry entries[PULL_ENTRIES]
    cdef Py_ssize_t rows = 0, count = 1, at
    cdef BinaryColumnBuilder keys = BinaryColumnBuilder(), values = BinaryColumnBuilder()
    cdef ByteBuffer epochs = ByteBuffer(8 * rows_hint)
    keys.reserve(rows_hint, 16 * rows_hint)
    values.reserve(rows_hint, bytes_hint)
    with nogil:
        source.rewind()
        source.pulled = 0
        while count > 0:
            count = source.pull(entries, PULL_ENTRIES)
            epochs.reserve(8 * count)
            for at in range(count):
                (<uint64_t*>epochs.data)[rows + at] = entries[at].epoch
            epochs.size += 8 * count
            append_keys(keys, entries, count)
            append_values(values, entries, count)
            rows += count
    return keys.finish(), values.finish(), np.frombuffer(epochs, np.uint64)


cdef int append_keys(BinaryColumnBuilder keys, const Entry* entries, Py_ssize_t count) except -1 nogil:
    cdef Py_ssize_t at, added = 0
    cdef int32_t* ends
    cdef uint8_t* target
    for at in range(count):
        added += entries[at].user_key.size
    keys.reserve(count, added)
    ends, target = keys.offsets + keys.rows + 1, keys.data + keys.data_bytes
    for at in range(count):
        copy_key(target, entries[at].user_key.data, entries[at].user_key.size)
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
