"""The rows emitted by a flush of groups: an insert for a new group, a delete for a vanished one, else an update."""

import numpy as np

from libc.stdint cimport int32_t, uint8_t

cdef enum:
    INSERT = 0              # of relational.chunk's Op
    DELETE = 1
    UPDATE_HALF = 2         # the bit that distinguishes update halves from an insert and a delete


def plan(const uint8_t[::1] existed, const uint8_t[::1] exists, const uint8_t[::1] changed, bint only_new):
    """(picks int32[n], ops uint8[n]) of the rows that describe the changes of groups, in the order of groups.

    All arguments are uint8 per group. Pick i is the current state of the i-th group, ~i its former state. An update is
    U- and U+, with `only_new` U+ alone.
    """
    cdef Py_ssize_t i, rows = 0, count = existed.shape[0]
    cdef bint was, is_now, is_same
    if exists.shape[0] != count or changed.shape[0] != count:
        raise ValueError(f"{count} groups, {exists.shape[0]} and {changed.shape[0]} flags")
    pick_array, op_array = np.empty(2 * count + 1, np.int32), np.empty(2 * count + 1, np.uint8)
    cdef int32_t[::1] picks = pick_array
    cdef uint8_t[::1] ops = op_array
    with nogil:
        for i in range(count):
            was, is_now = existed[i] != 0, exists[i] != 0
            is_same = was & is_now & (changed[i] == 0)
            # Written unconditionally, since the branch would be unpredictable
            picks[rows], ops[rows] = <int32_t>~i, <uint8_t>(DELETE + is_now * UPDATE_HALF)
            rows += was & ~(is_now & (is_same | only_new)) & 1
            picks[rows], ops[rows] = <int32_t>i, <uint8_t>(INSERT + was * UPDATE_HALF)
            rows += is_now & ~is_same & 1
    return pick_array[:rows], op_array[:rows]
