"""The numbers of few groups among many: those of the rows at hand, counted from 0."""

from libc.stdint cimport int32_t, uint32_t, uint64_t

import numpy as np

cdef enum:
    FIRST_SLOTS = 16


def renumber(const int32_t[::1] groups not None):
    """(int32[rows]: the number of each row's group among those of all rows, by first appearance; int32[n]: the groups
    by these numbers.) `groups`: any numbers."""
    cdef Py_ssize_t rows = groups.shape[0], size = FIRST_SLOTS, row
    cdef int32_t count = 0, number
    cdef uint64_t at
    cdef int shift = 60
    while size < 2 * rows:
        size *= 2
        shift -= 1
    table, numbers, distinct = np.full(size, -1, np.int32), np.empty(rows, np.int32), np.empty(rows, np.int32)
    cdef int32_t[::1] slots = table, out = numbers, found = distinct
    with nogil:
        for row in range(rows):
            at = (<uint64_t><uint32_t>groups[row] * <uint64_t>0x9E3779B97F4A7C15) >> shift
            number = slots[at]
            while number >= 0 and found[number] != groups[row]:
                at = (at + 1) & <uint64_t>(size - 1)
                number = slots[at]
            if number < 0:
                number = slots[at] = count
                found[count] = groups[row]
                count += 1
            out[row] = number
    return numbers, distinct[:count].copy()
