"""Many short ranges of one view in one call: the rows under each of many prefixes, or from each of many keys.

Ranges are read in slices, so that the blocks in which the rows of a slice begin may all be held at once. Of each
run only those files are sought that may hold rows of a range, by their filters where these know prefixes.
"""

import numpy as np

from libc.stdint cimport uint8_t, uint64_t

from hummock.base.key cimport SPILL_MASK
from hummock.columnar.binary_column cimport BinaryColumn
from hummock.iterator.base cimport FORWARD, REVERSE, HummockIterator
from hummock.iterator.merge cimport MergeIterator
from hummock.iterator.user cimport UserIterator
from hummock.read.prefixes cimport RangeCollector
from hummock.read.run_cursor cimport RunCursor
from hummock.read.view cimport ReadView, SortedRun

from hummock.read.prefixes import bounds_of
from hummock.state_store import DEFAULT

cdef Py_ssize_t MOST_RANGES = 1024          # of one slice
cdef Py_ssize_t FEWEST_RANGES = 16
cdef Py_ssize_t GATHERED_BYTES = 64 << 20   # of blocks that one slice may hold, about
cdef Py_ssize_t BLOCK_BYTES = 80 << 10      # what a block is taken for
cdef Py_ssize_t SPARE_ROWS = 8              # beyond a run's share of a range's rows


def read_prefixes(ReadView view not None, BinaryColumn prefixes not None, epoch, bint reverse=False,
                  limit=None) -> tuple:
    """(int32[n]: the row of `prefixes` of each result row, KvBatch of those n rows), in the order of `prefixes`.

    The rows under each prefix in scan order, at most `limit` of each. Raises EpochTooOld, OverflowError when the
    answer passes 2 GiB.
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
    """`start` and `end` hold all ranges between them."""
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
    """Over what `source` may hold between the bounds; None: nothing."""
    if reverse or not isinstance(source, SortedRun):
        return view.child(source, start, end, newest, REVERSE if reverse else FORWARD, DEFAULT)
    return RunCursor(source, newest) if (<SortedRun>source).min_epoch <= newest else None


cdef int prepare(
    SortedRun run, HummockIterator child, RangeCollector rows, Py_ssize_t first, Py_ssize_t count, uint64_t newest,
    uint8_t* among, Py_ssize_t stride
) except -1:
    """Asks filters and gathers blocks for a slice of the ranges."""
    cdef Py_ssize_t wanted
    if rows.by_prefix:
        run.mark(rows.starts, first, count, newest, among, stride)
    if isinstance(child, RunCursor):
        (<RunCursor>child).turn = &rows.row
        wanted = rows.most if stride == 1 else 2 * rows.most // stride + SPARE_ROWS
        (<RunCursor>child).aim(rows.starts, first, count, min(wanted, rows.most), among, stride)
    return 0
