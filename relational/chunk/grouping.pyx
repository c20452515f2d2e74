"""Which rows of a chunk share a key.

Keys are compared in the normal form of their values, NULL equal to NULL. Within one chunk only: groups that
live longer are the business of `relational.agg`.
"""

import numpy as np

from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from relational.chunk.canonical cimport add_hashes, equal_rows, is_plain_word
from relational.chunk.column cimport Column, ColumnView, LONG_WORK
from relational.chunk.data_chunk cimport DataChunk, mask_pointer
from relational.chunk.scalar cimport load64

cdef enum:
    FIRST_SLOTS = 1024
    FIRST_SHIFT = 54

cdef struct GroupSlot:
    uint64_t hash
    int32_t first           # row of the group
    int32_t group           # its number + 1; 0: the slot is free

cdef struct GroupTable:
    GroupSlot* slots        # a power of two of them
    int shift               # a hash shifted right by it is a place


cdef int widen(GroupTable* table) except -1 nogil:
    """Twice the slots; a place is the front of a hash, so the larger table is filled in order."""
    cdef uint64_t count = (<uint64_t>1 << (64 - table.shift)) if table.slots != NULL else FIRST_SLOTS // 2, i, at
    cdef int shift = table.shift - 1 if table.slots != NULL else FIRST_SHIFT
    cdef GroupSlot* slots = <GroupSlot*>calloc(2 * count, sizeof(GroupSlot))
    if slots == NULL:
        with gil:
            raise MemoryError("no memory to group a chunk")
    if table.slots != NULL:
        for i in range(count):
            if table.slots[i].group:
                at = table.slots[i].hash >> shift
                while slots[at].group:
                    at = (at + 1) & (2 * count - 1)
                slots[at] = table.slots[i]
        free(table.slots)
    table.slots, table.shift = slots, shift
    return 0


cdef Py_ssize_t assign(
    GroupTable* table, const ColumnView** views, int count, Py_ssize_t rows, const uint8_t* visible,
    const uint64_t* hashes, int32_t* ids, int32_t* firsts
) except -1 nogil:
    """Numbers the groups in order of appearance. Returns how many there are."""
    cdef Py_ssize_t row, groups = 0, room = 0
    cdef uint64_t at, mask = 0
    cdef GroupSlot* slot
    cdef bint is_word = count == 1 and views[0].validity == NULL and is_plain_word(views[0].kind)
    for row in range(rows):
        if visible != NULL and not visible[row]:
            ids[row] = -1
            continue
        if groups == room:
            widen(table)
            mask = (<uint64_t>1 << (64 - table.shift)) - 1
            room = <Py_ssize_t>(mask + 1) // 2
        at = hashes[row] >> table.shift
        while True:
            slot = &table.slots[at]
            if slot.group == 0:
                slot.hash, slot.first, slot.group = hashes[row], <int32_t>row, <int32_t>groups + 1
                firsts[groups] = <int32_t>row
                groups += 1
                break
            if slot.hash == hashes[row]:
                if is_word:
                    if load64(views[0].values + 8 * row) == load64(views[0].values + 8 * <Py_ssize_t>slot.first):
                        break
                elif equal_rows(views, slot.first, views, row, count, False):
                    break
            at = (at + 1) & mask
        ids[row] = slot.group - 1
    return groups


def hash_rows(columns, Py_ssize_t rows):
    """uint64[rows]: a hash of each row of Columns; rows that SQL calls equal, NULL equal to NULL, have the same."""
    cdef Column column
    hashes = np.zeros(rows, dtype=np.uint64)
    cdef uint64_t[::1] out = hashes
    for column in columns:
        if rows and rows < LONG_WORK:
            add_hashes(&column.view, 0, rows, &out[0])
        elif rows:
            with nogil:
                add_hashes(&column.view, 0, rows, &out[0])
    return hashes


def group_rows(DataChunk chunk, key_columns):
    """(ids int32[capacity], firsts int32[groups]): the group of each row, and the first row of each group.

    Groups are numbered in order of appearance; a hidden row has -1. Without key columns all rows are one group.
    """
    cdef list columns = [chunk.columns[index] for index in key_columns]
    cdef int count = len(columns), i
    cdef Py_ssize_t rows = chunk.capacity, groups = 0
    cdef uint64_t[::1] hashes
    cdef int32_t[::1] id_view, first_view
    cdef const uint8_t* visible = mask_pointer(chunk.visibility)
    cdef const ColumnView** views
    cdef GroupTable table
    ids, firsts = np.empty(rows, dtype=np.int32), np.empty(rows, dtype=np.int32)
    if rows == 0:
        return ids, firsts
    id_view, first_view, hashes = ids, firsts, hash_rows(columns, rows)
    table.slots, table.shift = NULL, 0
    views = <const ColumnView**>malloc((count + 1) * sizeof(ColumnView*))
    if views == NULL:
        raise MemoryError("no memory to group a chunk")
    for i in range(count):
        views[i] = &(<Column>columns[i]).view
    try:
        with nogil:
            groups = assign(&table, views, count, rows, visible, &hashes[0], &id_view[0], &first_view[0])
    finally:
        free(views)
        free(table.slots)
    return ids, firsts[:groups]
