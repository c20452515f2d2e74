"""DirtyGroups: which groups an epoch has touched, and what a flush tells of them.

The first touch of a group in an epoch makes it dirty; that is the moment to save its state. At the flush a
group that is new becomes an insert, one that is gone a delete, one that changed an update. Clean groups that
were touched longest ago are the first to be evicted.
"""

import numpy as np

cimport cython
from libc.string cimport memcpy

cdef extern from * nogil:
    void __builtin_prefetch(const void*, ...) noexcept

cdef enum:
    AHEAD = 16
    INSERT = 0              # of relational.chunk's Op
    DELETE = 1
    UPDATE_HALF = 2         # the bit by which the halves of an update differ from an insert and a delete


@cython.final
cdef class DirtyGroups:
    """A group is dirty while the epoch that last touched it is the present one; `dirty` lists those."""

    def __init__(self):
        self.touched, self.dirty = ByteBuffer(), ByteBuffer()
        self.epoch = 1

    @property
    def count(self):
        """Dirty groups."""
        return self.dirty.size // sizeof(int32_t)

    @property
    def size_bytes(self):
        return self.touched.size + self.dirty.size

    def grow(self, Py_ssize_t groups):
        """Clean groups, as if touched in the epoch before, up to `groups`."""
        cdef Py_ssize_t group
        if groups <= self.groups:
            return
        self.touched.reserve((groups - self.groups) * sizeof(uint32_t))
        for group in range(self.groups, groups):
            (<uint32_t*>self.touched.data)[group] = self.epoch - 1
        self.touched.size = groups * sizeof(uint32_t)
        self.groups = groups

    def touch(self, const int32_t[::1] ids):
        """Makes `ids` (negative: skipped) dirty; returns those that were not before, once each, int32[n]."""
        cdef Py_ssize_t row, rows = ids.shape[0], before = self.dirty.size
        cdef uint32_t* touched = <uint32_t*>self.touched.data
        cdef int32_t* dirty
        cdef int32_t count = <int32_t>(before // sizeof(int32_t)), group
        self.dirty.reserve(rows * sizeof(int32_t))
        dirty = <int32_t*>self.dirty.data
        with nogil:
            for row in range(rows):
                if row + AHEAD < rows and ids[row + AHEAD] >= 0:
                    __builtin_prefetch(touched + ids[row + AHEAD], 1)
                group = ids[row]
                if group >= 0 and touched[group] != self.epoch:
                    touched[group] = self.epoch
                    dirty[count] = group
                    count += 1
        self.dirty.size = count * sizeof(int32_t)
        return self.dirty_from(before // sizeof(int32_t))

    def dirty_from(self, Py_ssize_t start=0):
        """The dirty groups from place `start` on, in the order of their first touch, as a copy: int32[n]."""
        cdef Py_ssize_t count = self.dirty.size // sizeof(int32_t) - start
        out = np.empty(max(count, 0), np.int32)
        cdef int32_t[::1] view = out
        if count > 0:
            memcpy(&view[0], self.dirty.data + start * sizeof(int32_t), count * sizeof(int32_t))
        return out

    def finish(self):
        """Ends the epoch: no group is dirty."""
        self.dirty.size = 0
        self.epoch += 1

    def latest(self, Py_ssize_t wanted, exists):
        """At most `wanted` of the groups that exist (uint8[groups]), those touched last, ascending: int32[n]."""
        living = np.flatnonzero(exists)
        if len(living) > wanted:
            first = len(living) - wanted
            touched = np.frombuffer(self.touched, np.uint32)[living]
            oldest_first = np.argpartition(touched, first) if wanted else np.empty(0, np.int64)
            living = np.sort(living[oldest_first[first:]])
        return living.astype(np.int32)

    def keep(self, const int32_t[::1] ids):
        """What is known of `ids` becomes groups 0, 1, 2 …, the rest is forgotten. REQUIRES that none is dirty."""
        cdef ByteBuffer kept = ByteBuffer(ids.shape[0] * sizeof(uint32_t))
        cdef Py_ssize_t row
        for row in range(ids.shape[0]):
            (<uint32_t*>kept.data)[row] = (<uint32_t*>self.touched.data)[ids[row]]
        kept.size = ids.shape[0] * sizeof(uint32_t)
        self.touched = kept
        self.groups = ids.shape[0]


def plan(const uint8_t[::1] existed, const uint8_t[::1] exists, const uint8_t[::1] changed, bint only_new):
    """(picks int32[n], ops uint8[n]) of the rows that tell what became of groups, in their order.

    All uint8 per group. Pick i is the i-th group as it is now, ~i as it was. An update is U- and U+, with
    `only_new` U+ alone.
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
            # Written whether or not they count, since no branch here could be foreseen
            picks[rows], ops[rows] = <int32_t>~i, <uint8_t>(DELETE + is_now * UPDATE_HALF)
            rows += was & ~(is_now & (is_same | only_new)) & 1
            picks[rows], ops[rows] = <int32_t>i, <uint8_t>(INSERT + was * UPDATE_HALF)
            rows += is_now & ~is_same & 1
    return pick_array[:rows], op_array[:rows]
