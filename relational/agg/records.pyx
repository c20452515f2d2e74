"""GroupRecords: the records of an aggregation's groups, the groups touched in an epoch, and their former records.

The first touch of a group in an epoch makes it dirty and saves its record. At the flush a new group becomes an insert,
a vanished one a delete, a changed one an update. Records are scattered over memory, so they are gathered once before
results are read; rows of the results are then selected by picks: i for the i-th gathered record, ~i for the i-th saved
one.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove, memset

from hummock.base.prefetch cimport prefetch, prefetch_for_write
from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.hash.age cimport AGES, age_of
from relational.hash.record_arena cimport RecordArena

cdef enum:
    AHEAD = 16
    GROWN_AT_ONCE = 1024        # groups from which on the GIL is released: their memory may be new to the process
    LINE = 64                   # bytes; a record does not cross a line unless it is longer than one
    KEPT_BYTES = 4 << 20        # more memory for saved records returns to the pool at the end of an epoch


cdef Py_ssize_t padded(Py_ssize_t width) noexcept:
    """Rounds up to a power of two, or to whole lines."""
    cdef Py_ssize_t out = 8
    while out < width and out < LINE:
        out *= 2
    return out if width <= out else (width + LINE - 1) // LINE * LINE


cdef class GroupRecords:
    """A group is dirty while its mark is set; `dirty` lists the dirty groups. Untouched records are all zero."""

    def __init__(self, Py_ssize_t width):
        """Records of at least `width` bytes."""
        self.width = padded(width)
        self.records, self.saved, self.gathered = RecordArena(), RecordArena(), ByteBuffer()
        self.marks, self.dirty, self.touched = RecordArena(), ByteBuffer(), ByteBuffer()
        self.epoch = 1
        self.records.extend(self.width)

    @property
    def count(self):
        """The number of dirty groups."""
        return self.dirty.size // sizeof(int32_t)

    @property
    def size_bytes(self):
        """Memory used."""
        return (self.records.capacity + self.saved.capacity + self.gathered.capacity + self.marks.capacity
                + self.dirty.capacity + self.touched.capacity)

    def grow(self, Py_ssize_t groups):
        """Adds zero records up to `groups`, clean and never touched."""
        if groups - self.groups < GROWN_AT_ONCE:
            self.grow_to(groups)
        else:
            with nogil:
                self.grow_to(groups)

    cdef int grow_to(self, Py_ssize_t groups) except -1 nogil:
        cdef Py_ssize_t more = groups - self.groups
        if more <= 0:
            return 0
        self.records.extend(more * self.width)
        self.marks.extend((groups + 63) // 64 * 8 - self.marks.size)
        self.touched.reserve(more * sizeof(uint32_t))
        memset(<uint32_t*>self.touched.data + self.groups, 0, <size_t>more * sizeof(uint32_t))
        self.touched.size = groups * sizeof(uint32_t)
        self.groups = groups
        return 0

    def touch(self, const int32_t[::1] ids not None):
        """Marks `ids` (negative: skipped) as dirty."""
        if ids.shape[0]:
            self.mark(&ids[0], ids.shape[0])

    def gather(self, const int32_t[::1] ids not None, Py_ssize_t first_saved=0):
        """Gathers the current records of `ids`; their records before this epoch are saved from index `first_saved` on.
        """
        self.gathered.size = 0
        self.first_saved = first_saved
        self.gathered.reserve(ids.shape[0] * self.width)
        self.gathered.size = ids.shape[0] * self.width
        if ids.shape[0]:
            with nogil:
                self.copy_records(&ids[0], ids.shape[0], self.gathered.data)

    def dirty_groups(self):
        """The dirty groups in the order of their first touch, as a copy: int32[n]."""
        return np.frombuffer(self.dirty.to_bytes(), np.int32)

    def finished_since(self, uint32_t epoch, Py_ssize_t first):
        """How many of the `first` dirty groups were dirty in an epoch that has ended, from number `epoch` on."""
        cdef const int32_t* dirty = <const int32_t*>self.dirty.data
        cdef const uint32_t* touched = <const uint32_t*>self.touched.data
        cdef Py_ssize_t row, rows = min(first, <Py_ssize_t>(self.dirty.size // sizeof(int32_t))), count = 0
        if self.epoch == epoch:
            return 0
        with nogil:
            for row in range(rows):
                if row + AHEAD < rows:
                    prefetch(touched + dirty[row + AHEAD])
                count += touched[dirty[row]] >= epoch
        return count

    def finish(self, Py_ssize_t first=-1):
        """Ends the epoch: no group is dirty, nothing is saved or gathered. Or ends it for the `first` dirty groups: the
        others remain dirty, with their records before this epoch."""
        cdef Py_ssize_t rows = self.dirty.size // sizeof(int32_t), saved = self.saved.size
        with nogil:
            self.finish_first(rows if first < 0 else min(first, rows))
        self.gathered.size = 0
        self.epoch += 1
        if self.dirty.size:
            return
        self.expected = 0
        if self.saved.capacity > KEPT_BYTES:
            self.expected, self.saved = saved, RecordArena()

    cdef void finish_first(self, Py_ssize_t count) noexcept nogil:
        """Makes the first dirty groups clean."""
        cdef const int32_t* dirty = <const int32_t*>self.dirty.data
        cdef uint64_t* marks = <uint64_t*>self.marks.data
        cdef Py_ssize_t row
        for row in range(count):
            if row + AHEAD < count:
                prefetch_for_write(self.touched.data + 4 * <int64_t>dirty[row + AHEAD])
            marks[dirty[row] >> 6] &= ~(<uint64_t>1 << (dirty[row] & 63))
            (<uint32_t*>self.touched.data)[dirty[row]] = self.epoch
        self.dirty.size -= count * sizeof(int32_t)
        self.saved.size -= count * self.width
        memmove(self.dirty.data, self.dirty.data + count * sizeof(int32_t), <size_t>self.dirty.size)
        memmove(self.saved.data, self.saved.data + count * self.width, <size_t>self.saved.size)

    def resave(self):
        """Saves the current records of the dirty groups as those before this epoch."""
        self.saved.size = self.gathered.size = 0
        if self.dirty.size:
            self.save(<const int32_t*>self.dirty.data, self.count)

    def reset(self, const int32_t[::1] ids not None):
        """Zeroes the records of `ids`."""
        cdef Py_ssize_t row
        for row in range(ids.shape[0]):
            memset(self.record(ids[row]), 0, self.width)

    def latest(self, Py_ssize_t wanted, exists):
        """At most `wanted` of the existing groups (bool[groups]), the last touched ones, ascending: int32[n]. Those
        that were last touched AGES epochs ago or earlier count as equally old."""
        cdef const uint8_t[::1] living = exists.view(np.uint8)
        cdef const uint32_t* touched = <const uint32_t*>self.touched.data
        cdef Py_ssize_t group, groups = living.shape[0], kept = 0, oldest, skipped
        cdef int32_t[::1] out
        cdef int64_t[::1] counts
        if groups > self.groups:
            raise IndexError(f"group {groups - 1} of {self.groups}")
        by_age = np.zeros(AGES, np.int64)
        counts = by_age
        with nogil:
            for group in range(groups):
                counts[age_of(self.epoch, touched[group])] += living[group]
        totals = np.cumsum(by_age)
        oldest = min(int(np.searchsorted(totals, wanted, "right")), <Py_ssize_t>AGES - 1)
        skipped = max(<Py_ssize_t>totals[oldest] - wanted, <Py_ssize_t>0)   # of those of the oldest age, the first ones
        found = np.empty(min(wanted, int(totals[AGES - 1])), np.int32)
        out = found
        with nogil:
            for group in range(groups):
                if not living[group] or age_of(self.epoch, touched[group]) > oldest:
                    continue
                if age_of(self.epoch, touched[group]) == oldest and skipped > 0:
                    skipped -= 1
                    continue
                out[kept] = <int32_t>group
                kept += 1
        return found

    def keep(self, const int32_t[::1] ids not None):
        """Renumbers the groups `ids` to 0, 1, 2 …, and discards the others. REQUIRES that none is dirty, and that `ids`
        ascend: records move to lower numbers, in their own memory."""
        self.move(ids, 0)
        self.shrink(ids.shape[0])

    def move(self, const int32_t[::1] ids not None, Py_ssize_t first):
        """Moves the records of the groups `ids` to the numbers from `first` on, in parts of what `keep` does: REQUIRES
        that those of earlier parts were lower, and `shrink` after the last part."""
        cdef uint32_t* touched = <uint32_t*>self.touched.data
        cdef Py_ssize_t row, rows = ids.shape[0]
        if rows and (ids[0] < first or ids[rows - 1] >= self.groups or (np.diff(ids) <= 0).any()):
            raise ValueError(f"{rows} of {self.groups} groups are kept, in another order than theirs")
        with nogil:
            for row in range(rows):
                if row + AHEAD < rows:
                    prefetch(self.record(ids[row + AHEAD]))
                if ids[row] != first + row:
                    memcpy(self.record(first + row), self.record(ids[row]), <size_t>self.width)
                    touched[first + row] = touched[ids[row]]

    def shrink(self, Py_ssize_t groups):
        """Discards the groups from number `groups` on, and what is saved and gathered. REQUIRES that none is dirty."""
        self.records.size, self.touched.size = (groups + 1) * self.width, groups * sizeof(uint32_t)
        self.marks.size = (groups + 63) // 64 * 8
        self.records.trim()
        self.groups = groups
        self.saved, self.gathered, self.dirty = RecordArena(), ByteBuffer(), ByteBuffer()

    cdef int mark(self, const int32_t* ids, Py_ssize_t rows) except -1 nogil:
        cdef uint64_t* marks = <uint64_t*>self.marks.data
        cdef int32_t* dirty
        cdef Py_ssize_t row, before = self.dirty.size // sizeof(int32_t), count = before
        cdef int64_t group
        cdef uint64_t word
        self.dirty.reserve(rows * sizeof(int32_t))
        dirty = <int32_t*>self.dirty.data
        for row in range(rows):
            group = ids[row]
            prefetch_for_write(self.record(group))
            if group < 0:
                continue
            word = marks[group >> 6]
            marks[group >> 6] = word | (<uint64_t>1 << (group & 63))
            dirty[count] = <int32_t>group
            count += 1 & ~(word >> (group & 63))
        self.dirty.size = count * sizeof(int32_t)
        return self.save(dirty + before, count - before)

    cdef int save(self, const int32_t* ids, Py_ssize_t rows) except -1 nogil:
        if rows == 0:
            return 0
        if self.saved.size == 0 and self.expected:
            self.saved.reserve(self.expected)
        self.saved.reserve(rows * self.width)
        self.copy_records(ids, rows, self.saved.data + self.saved.size)
        self.saved.size += rows * self.width
        return 0

    cdef int copy_records(self, const int32_t* ids, Py_ssize_t rows, uint8_t* target) except -1 nogil:
        """Copies the current records of `ids`."""
        cdef Py_ssize_t row
        for row in range(rows):
            if row + AHEAD < rows:
                prefetch(self.record(ids[row + AHEAD]))
            if self.width == 32:            # count and one sum, an inlined copy
                memcpy(target, self.record(ids[row]), 32)
            elif self.width == 64:
                memcpy(target, self.record(ids[row]), 64)
            else:
                memcpy(target, self.record(ids[row]), <size_t>self.width)
            target += self.width
        return 0
