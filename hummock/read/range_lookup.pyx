"""Rows of many short ranges of one view in one call: under each of many prefixes, or from each of many keys.

Joins and groups need a few rows under each of a thousand keys: one iterator is sought for each range, only where a file
may hold it, and all rows are appended to one pair of columns. Ranges are read in slices, so that the first blocks of
all ranges of a slice fit in memory. In each run only those files are sought that may hold rows of a range, by their
filters where these contain prefixes.
"""

import numpy as np

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcpy

from hummock.base.key cimport SPILL_MASK, Slice, compare_bytes
from hummock.columnar.binary_column cimport BinaryColumn
from hummock.iterator.base cimport FORWARD, REVERSE, HummockIterator
from hummock.iterator.batch_collector cimport BatchCollector
from hummock.iterator.merge cimport MergeIterator
from hummock.iterator.user cimport UserIterator
from hummock.read.run_cursor cimport RunCursor
from hummock.read.sorted_run cimport SortedRun
from hummock.read.view cimport ReadView

from hummock.state_store import DEFAULT

cdef Py_ssize_t MOST_RANGES = 1024          # per slice
cdef Py_ssize_t FEWEST_RANGES = 16
cdef Py_ssize_t GATHERED_BYTES = 64 << 20   # of blocks that one slice may hold, approximately
cdef Py_ssize_t BLOCK_BYTES = 80 << 10      # assumed size of a block
cdef Py_ssize_t SPARE_ROWS = 8              # beyond a run's share of a range's rows


cdef class RangeCollector:
    """At most `limit` rows for each range, in the order of the ranges. `source` reads a range that encloses all."""
    cdef UserIterator source
    cdef BatchCollector collector
    cdef BinaryColumn starts            # or prefixes, see `by_prefix`
    cdef BinaryColumn ends              # a null: no end; None: see `by_prefix`
    cdef bint by_prefix                 # a range ends where keys no longer begin with its start; else it has no end
    cdef Py_ssize_t row                 # the range that `source` is positioned for
    cdef Py_ssize_t most                # limit of rows per range
    cdef Py_ssize_t done                # rows so far
    cdef int32_t[::1] counts
    cdef uint8_t* upper                 # buffer for the end of any prefix's range; owned

    def __cinit__(self, UserIterator source not None, BinaryColumn starts not None, BinaryColumn ends=None,
                  bint by_prefix=False, limit=None):
        cdef Py_ssize_t row, longest = 0
        self.source, self.collector = source, BatchCollector(source)
        self.starts, self.ends, self.by_prefix = starts, ends, by_prefix
        self.most = INT32_MAX if limit is None else min(max(limit, 0), INT32_MAX)
        self.counts = np.zeros(starts.rows, np.int32)
        for row in range(starts.rows):
            longest = starts.at(row).size if starts.at(row).size > longest else longest
        self.upper = <uint8_t*>malloc(<size_t>longest + 1)
        if self.upper == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.upper)

    cdef void set_bounds(self) noexcept nogil:
        self.source.start = self.starts.at(self.row)
        self.source.end.data, self.source.end.size = NULL, 0
        if self.by_prefix:
            self.source.end = successor(self.source.start, self.upper)
        elif self.ends is not None and not self.ends.is_null(self.row):
            self.source.end = self.ends.at(self.row)

    cdef int add(self, Py_ssize_t first, Py_ssize_t rows, const uint8_t* among, Py_ssize_t children) except -1:
        """Adds the rows of `rows` ranges from `first` on. REQUIRES that all before it were added.

        among[row * children + i]: child i of the source's MergeIterator may hold rows of that range; NULL: all may.
        """
        cdef Py_ssize_t row
        with nogil:
            for row in range(first, first + rows):
                if not self.starts.is_null(row) and (
                        among == NULL or memchr(among, 1, <size_t>children) != NULL):
                    self.row = row
                    self.set_bounds()
                    self.source.among = among if children > 1 else NULL
                    self.collector.started = False
                    self.collector.fill(
                        self.collector.keys, self.collector.values,
                        self.done + self.most if self.most < INT32_MAX - self.done else INT32_MAX, INT32_MAX)
                    if self.source.valid and self.collector.keys.rows - self.done < self.most:
                        with gil:
                            raise OverflowError(f"the rows of {self.starts.rows} ranges pass 2 GiB")
                    self.counts[row] = <int32_t>(self.collector.keys.rows - self.done)
                    self.done = self.collector.keys.rows
                if among != NULL:
                    among += children
        return 0

    cdef tuple finish(self):
        owners = np.repeat(np.arange(self.starts.rows, dtype=np.int32), self.counts)
        return owners, self.collector.finish()


def read_prefixes(ReadView view not None, BinaryColumn prefixes not None, epoch, bint reverse=False,
                  limit=None) -> tuple:
    """(int32[n]: the row of `prefixes` of each result row, KvBatch of those n rows), in the order of `prefixes`.

    The rows under each prefix in scan order, at most `limit` of each; none under a null. Raises EpochTooOld,
    OverflowError when the answer passes 2 GiB.
    """
    cdef bint is_any = prefixes.rows > 0
    start, end = bounds_of(prefixes) if is_any else (b"", b"")
    return read_ranges(view, start, end, prefixes, None, True, epoch, reverse, limit)


def read_starts(ReadView view not None, BinaryColumn starts not None, BinaryColumn ends, epoch,
                limit=None) -> tuple:
    """(int32[n]: the row of `starts` of each result row, KvBatch of those n rows), in the order of `starts`.

    The first `limit` rows from each start on, and before its end where `ends` has one that is not null. Raises
    what `read_prefixes` raises, and ValueError where `ends` has another number of rows.
    """
    if ends is not None and ends.rows != starts.rows:
        raise ValueError(f"{ends.rows} ends of {starts.rows} ranges")
    start = bounds_of(starts)[0] if starts.rows > 0 else b""
    return read_ranges(view, start, None, starts, ends, False, epoch, False, limit)


cdef tuple read_ranges(
    ReadView view, bytes start, bytes end, BinaryColumn starts, BinaryColumn ends, bint by_prefix, epoch,
    bint reverse, limit
):
    """REQUIRES that [start, end) encloses all ranges."""
    cdef list children = [], sources = []
    cdef uint64_t bound = view.checked(epoch), newest = bound | SPILL_MASK
    cdef Py_ssize_t first = 0, count, position
    cdef HummockIterator child
    cdef RangeCollector rows
    cdef uint8_t[:, ::1] among
    for source in view.owners if starts.rows > 0 else ():
        child = child_of(view, source, start, end, newest, reverse)
        if child is not None:
            children.append(child)
            sources.append(source)
    child = children[0] if len(children) == 1 else MergeIterator(children, REVERSE if reverse else FORWARD)
    rows = RangeCollector(UserIterator(child, start, end, bound, rules=view.rules), starts, ends, by_prefix, limit)
    count = min(max(GATHERED_BYTES // (BLOCK_BYTES * (len(children) + 1)), FEWEST_RANGES), MOST_RANGES, starts.rows)
    among = np.ones((count, max(len(children), 1)), np.uint8)
    while children and first < starts.rows:
        count = min(count, starts.rows - first)
        for position in range(len(children)):
            if isinstance(sources[position], SortedRun):
                prepare(sources[position], children[position], rows, first, count, newest, &among[0, position],
                        among.shape[1])
        rows.add(first, count, &among[0, 0], among.shape[1])
        first += count
    return rows.finish()


cdef HummockIterator child_of(ReadView view, source, bytes start, bytes end, uint64_t newest, bint reverse):
    """An iterator over what `source` may hold between the bounds; None: nothing."""
    if reverse or not isinstance(source, SortedRun):
        return view.child(source, start, end, newest, REVERSE if reverse else FORWARD, DEFAULT)
    return RunCursor(source, newest) if (<SortedRun>source).min_epoch <= newest else None


cdef int prepare(
    SortedRun run, HummockIterator child, RangeCollector rows, Py_ssize_t first, Py_ssize_t count, uint64_t newest,
    uint8_t* among, Py_ssize_t stride
) except -1:
    """Checks filters and fetches blocks for a slice of the ranges."""
    cdef Py_ssize_t wanted
    if rows.by_prefix:
        run.mark(rows.starts, first, count, newest, among, stride)
    if isinstance(child, RunCursor):
        (<RunCursor>child).turn = &rows.row
        wanted = rows.most if stride == 1 else 2 * rows.most // stride + SPARE_ROWS
        (<RunCursor>child).aim(rows.starts, first, count, min(wanted, rows.most), among, stride)
    return 0


def bounds_of(BinaryColumn prefixes not None) -> tuple:
    """(start, end) of the narrowest range of user keys that encloses every key under every prefix; end None: unbounded.

    REQUIRES at least one prefix.
    """
    cdef Slice least = prefixes.at(0), end, found
    cdef Py_ssize_t row, longest = 0
    cdef uint8_t* memory
    cdef uint8_t* other
    cdef bint is_open = False
    for row in range(prefixes.rows):
        longest = prefixes.at(row).size if prefixes.at(row).size > longest else longest
        least = prefixes.at(row) if compare_bytes(prefixes.at(row), least) < 0 else least
    memory, other = <uint8_t*>malloc(<size_t>longest + 1), <uint8_t*>malloc(<size_t>longest + 1)
    try:
        if memory == NULL or other == NULL:
            raise MemoryError
        end = successor(least, memory)
        for row in range(prefixes.rows):
            found = successor(prefixes.at(row), other)
            is_open = is_open or found.data == NULL
            if not is_open and compare_bytes(found, end) > 0:
                memory, other = other, memory
                end = found
        start = PyBytes_FromStringAndSize(<const char*>least.data, least.size)
        return start, None if is_open else PyBytes_FromStringAndSize(<const char*>end.data, end.size)
    finally:
        free(memory)
        free(other)


cdef Slice successor(Slice prefix, uint8_t* memory) noexcept nogil:
    """The smallest byte string after all that begin with `prefix`, in `memory`; data NULL when there is none."""
    cdef Slice out
    out.data, out.size = NULL, prefix.size
    while out.size > 0 and prefix.data[out.size - 1] == 0xFF:
        out.size -= 1
    if out.size > 0:
        memcpy(memory, prefix.data, <size_t>out.size)
        memory[out.size - 1] += 1
        out.data = memory
    return out
