"""Which rows of a chunk share a key.

Keys are compared in the normal form of their values, NULL equal to NULL. Within one chunk only: groups that
live longer are the business of `relational.state`.
"""

import numpy as np

from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from relational.chunk.column cimport Column, ColumnView
from relational.chunk.data_chunk cimport DataChunk, mask_pointer
from relational.chunk.normal_form cimport add_hashes, equal_rows

cdef Py_ssize_t assign(
    const ColumnView** views, int count, Py_ssize_t rows, const uint8_t* visible, const uint64_t* hashes,
    int32_t* slots, uint64_t mask, int32_t* ids, int32_t* firsts
) noexcept nogil:
    """Numbers the groups in order of appearance; `slots` (mask + 1 zeros) holds group + 1. Returns their count."""
    cdef Py_ssize_t row, groups = 0
    cdef uint64_t slot
    cdef int32_t group
    for row in range(rows):
        if visible != NULL and not visible[row]:
            ids[row] = -1
            continue
        slot = hashes[row] & mask
        while True:
            group = slots[slot] - 1
            if group < 0:
                slots[slot] = <int32_t>(groups + 1)
                firsts[groups] = <int32_t>row
                ids[row] = <int32_t>groups
                groups += 1
                break
            if hashes[firsts[group]] == hashes[row] and equal_rows(
                    views, firsts[group], views, row, count, False):
                ids[row] = group
                break
            slot = (slot + 1) & mask
    return groups


def group_rows(DataChunk chunk, key_columns):
    """(ids int32[capacity], firsts int32[groups]): the group of each row, and the first row of each group.

    Groups are numbered in order of appearance; a hidden row has -1. Without key columns all rows are one group.
    """
    cdef list columns = [chunk.columns[index] for index in key_columns]
    cdef int count = len(columns), i
    cdef Py_ssize_t rows = chunk.capacity, groups
    cdef uint64_t slots = 16
    cdef uint64_t[::1] hashes = np.zeros(rows + 1, dtype=np.uint64)
    ids = np.empty(rows, dtype=np.int32)
    firsts = np.empty(rows, dtype=np.int32)
    cdef int32_t[::1] id_view = ids, first_view = firsts
    cdef const ColumnView** views = <const ColumnView**>malloc((count + 1) * sizeof(ColumnView*))
    cdef int32_t* table = NULL
    while slots < 2 * <uint64_t>rows:
        slots *= 2
    table = <int32_t*>calloc(slots, sizeof(int32_t))
    try:
        if views == NULL or table == NULL:
            raise MemoryError("no memory to group a chunk")
        for i in range(count):
            views[i] = &(<Column>columns[i]).view
            add_hashes(views[i], 0, rows, &hashes[0])
        if rows == 0:
            return ids, firsts
        groups = assign(views, count, rows, mask_pointer(chunk.visibility), &hashes[0], table, slots - 1,
                        &id_view[0], &first_view[0])
    finally:
        free(views)
        free(table)
    return ids, firsts[:groups]
