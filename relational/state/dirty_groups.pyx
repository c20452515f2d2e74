"""DirtyGroups: which groups an epoch has touched, and which of them were known before it.

The first touch of a group in an epoch makes it dirty; that is the moment to save its state. At the flush a
group that is new becomes an insert, one that is gone a delete, one that changed an update. Clean groups that
were touched longest ago are the first to be evicted.
"""

import numpy as np

cimport cython
from libc.stdint cimport int64_t
from libc.string cimport memcpy

cdef extern from * nogil:
    void __builtin_prefetch(const void*, ...) noexcept

cdef enum Operation:        # of relational.chunk's Op
    INSERT = 0
    DELETE = 1
    UPDATE_INSERT = 2
    UPDATE_DELETE = 3

cdef enum:
    AHEAD = 16


@cython.final
cdef class DirtyGroups:
    """A group has one mark; `dirty` lists the groups whose mark has a place."""

    def __init__(self):
        self.marks, self.dirty = ByteBuffer(), ByteBuffer()
        self.epoch = 1

    @property
    def count(self):
        """Dirty groups."""
        return self.dirty.size // sizeof(int32_t)

    @property
    def size_bytes(self):
        return self.marks.size + self.dirty.size

    def grow(self, Py_ssize_t groups):
        """Clean marks, of groups that did not exist before, up to `groups`."""
        cdef Py_ssize_t group
        cdef GroupMark* mark
        if groups <= self.groups:
            return
        self.marks.reserve((groups - self.groups) * sizeof(GroupMark))
        for group in range(self.groups, groups):
            mark = <GroupMark*>self.marks.data + group
            mark.place, mark.touched, mark.existed = -1, self.epoch, 0
        self.marks.size = groups * sizeof(GroupMark)
        self.groups = groups

    def touch(self, const int32_t[::1] ids):
        """Makes `ids` (negative: skipped) dirty; returns those that were not before, once each, int32[n]."""
        cdef Py_ssize_t row, rows = ids.shape[0], before = self.dirty.size
        cdef GroupMark* marks = <GroupMark*>self.marks.data
        cdef int32_t* dirty
        cdef int32_t count = <int32_t>(before // sizeof(int32_t)), group
        self.dirty.reserve(rows * sizeof(int32_t))
        dirty = <int32_t*>self.dirty.data
        with nogil:
            for row in range(rows):
                if row + AHEAD < rows and ids[row + AHEAD] >= 0:
                    __builtin_prefetch(marks + ids[row + AHEAD], 1)
                group = ids[row]
                if group >= 0 and marks[group].place < 0:
                    marks[group].place = count
                    marks[group].touched = self.epoch
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

    def mark_existing(self, const int32_t[::1] ids, const uint8_t[::1] exists):
        """Says which of `ids` have a row downstream already: uint8[n]."""
        cdef Py_ssize_t row
        for row in range(ids.shape[0]):
            (<GroupMark*>self.marks.data)[ids[row]].existed = exists[row]

    def plan(self, Py_ssize_t first, const uint8_t[::1] exists, const uint8_t[::1] changed, bint only_new):
        """(picks int32[n], ops uint8[n]) of the rows that tell of this epoch, in the order of first touch.

        `exists`, `changed`: uint8 for each dirty group from place `first` on. Pick i is the i-th of them as it
        is now, ~i as it was. An update is U- and U+, with `only_new` U+ alone.
        """
        cdef Py_ssize_t i, rows = 0, count = self.places(first, exists.shape[0])
        cdef const int32_t* dirty = <const int32_t*>self.dirty.data + first
        cdef GroupMark* marks = <GroupMark*>self.marks.data
        cdef uint8_t existed
        pick_array, op_array = np.empty(2 * count, np.int32), np.empty(2 * count, np.uint8)
        cdef int32_t[::1] picks = pick_array
        cdef uint8_t[::1] ops = op_array
        with nogil:
            for i in range(count):
                if i + AHEAD < count:
                    __builtin_prefetch(marks + dirty[i + AHEAD])
                existed = marks[dirty[i]].existed
                if existed and exists[i] and not changed[i]:
                    continue
                if existed and not (exists[i] and only_new):
                    picks[rows], ops[rows] = <int32_t>~i, UPDATE_DELETE if exists[i] else DELETE
                    rows += 1
                if exists[i]:
                    picks[rows], ops[rows] = <int32_t>i, UPDATE_INSERT if existed else INSERT
                    rows += 1
        return pick_array[:rows], op_array[:rows]

    def settle(self, Py_ssize_t first, const uint8_t[::1] exists):
        """The dirty groups from place `first` on exist downstream as `exists` (uint8 each) says."""
        cdef Py_ssize_t i, count = self.places(first, exists.shape[0])
        cdef const int32_t* dirty = <const int32_t*>self.dirty.data + first
        cdef GroupMark* mark
        with nogil:
            for i in range(count):
                if i + AHEAD < count:
                    __builtin_prefetch(<GroupMark*>self.marks.data + dirty[i + AHEAD], 1)
                mark = <GroupMark*>self.marks.data + dirty[i]
                mark.place, mark.existed = -1, exists[i]

    def finish(self):
        """Ends the epoch: no group is dirty. REQUIRES that all of them were settled."""
        self.dirty.size = 0
        self.epoch += 1

    cdef Py_ssize_t places(self, Py_ssize_t first, Py_ssize_t count) except -1:
        """`count`. IndexError unless there are so many dirty groups from place `first` on."""
        if first < 0 or count > <Py_ssize_t>(self.dirty.size // sizeof(int32_t)) - first:
            raise IndexError(f"{count} groups from place {first} of {self.count} dirty ones")
        return count

    def latest(self, Py_ssize_t wanted):
        """At most `wanted` groups that exist downstream, those touched last, ascending: int32[n]. REQUIRES
        that none is dirty.
        """
        touched = np.empty(self.groups, np.int64)
        cdef int64_t[::1] ages = touched
        cdef const GroupMark* mark
        cdef Py_ssize_t group
        for group in range(self.groups):
            mark = <const GroupMark*>self.marks.data + group
            ages[group] = <int64_t>mark.touched if mark.existed else -1
        living = np.flatnonzero(touched >= 0)
        if len(living) > wanted:
            first = len(living) - wanted
            oldest_first = np.argpartition(touched[living], first) if wanted else np.empty(0, np.int64)
            living = np.sort(living[oldest_first[first:]])
        return living.astype(np.int32)

    def keep(self, const int32_t[::1] ids):
        """The marks of `ids` become groups 0, 1, 2 …, others are forgotten. REQUIRES that none is dirty."""
        cdef ByteBuffer kept = ByteBuffer(ids.shape[0] * sizeof(GroupMark))
        cdef Py_ssize_t row
        for row in range(ids.shape[0]):
            (<GroupMark*>kept.data)[row] = (<GroupMark*>self.marks.data)[ids[row]]
        kept.size = ids.shape[0] * sizeof(GroupMark)
        self.marks = kept
        self.groups = ids.shape[0]
