"""The rows emitted by a flush of groups: an insert for a new group, a delete for a vanished one, else an update."""

import numpy as np

from libc.stdint cimport int32_t, uint8_t

cdef enum:
    INSERT = 0              # of relational.chunk's Op
    DELETE = 1
    UPDATE_HALF = 2         # the bit that distinguishes update halves from an insert and a delete


def plan(const uint8_t[::1] existed, const uint8_t[::1] exists, const uint8_t[::1] changed, bint only_new):
    """(picks int32[n], ops uint8[n], groups int32[n]) of the rows that describe the changes of groups, in their order.

    All arguments are uint8 per group. Pick i is the current state of the i-th group, ~i its former state; `groups` is i
    in both cases, None if each group has one row. An update is U- and U+, with `only_new` U+ alone.
    """
    cdef Py_ssize_t i, before, rows = 0, count = existed.shape[0]
    cdef bint was, is_now, is_same, has_one_each = True
    if exists.shape[0] != count or changed.shape[0] != count:
        raise ValueError(f"{count} groups, {exists.shape[0]} and {changed.shape[0]} flags")
    pick_array, op_array = np.empty((2, 2 * count + 1), np.int32), np.empty(2 * count + 1, np.uint8)
    cdef int32_t[::1] picks = pick_array[0], groups = pick_array[1]
    cdef uint8_t[::1] ops = op_array
    with nogil:
        for i in range(count):
            was, is_now = existed[i] != 0, exists[i] != 0
            is_same = was & is_now & (changed[i] == 0)
            before = rows
            # Written unconditionally, since the branch would be unpredictable
            groups[rows] = <int32_t>i
            picks[rows], ops[rows] = <int32_t>~i, <uint8_t>(DELETE + is_now * UPDATE_HALF)
            rows += was & ~(is_now & (is_same | only_new)) & 1
            picks[rows], groups[rows], ops[rows] = <int32_t>i, <int32_t>i, <uint8_t>(INSERT + was * UPDATE_HALF)
            rows += is_now & ~is_same & 1
            has_one_each &= rows == before + 1
    return pick_array[0, :rows], op_array[:rows], None if has_one_each else pick_array[1, :rows]
