"""JoinProbe: the matches of located rows, in bounded batches, in the order of the rows.

A probe may be suspended and resumed, however many matches one row has, until the ids of the index change. Matches are
determined when a batch is built: if the caller changes the index meanwhile, neither order nor completeness holds.
"""

import numpy as np

cimport cython
from libc.stdint cimport int32_t
from libc.string cimport memcpy

from hummock.base.prefetch cimport prefetch
from relational.join.join_index cimport JoinIndex
from relational.join.row_lists cimport KeyEntry, RowLists, has_block, is_empty

cdef enum:
    AHEAD = 16


@cython.final
cdef class JoinProbe:
    """Iterates (probe_rows int32[n], row_ids int32[n]), 0 < n <= batch_rows."""

    cdef readonly JoinIndex index
    cdef readonly Py_ssize_t generation # of the index when the probe started
    cdef readonly Py_ssize_t batch_rows # maximum matches per batch
    cdef const int32_t[::1] ids         # key id per probe row, -1: no match
    cdef Py_ssize_t row                 # the next probe row
    cdef int32_t position               # of its first match not returned yet

    def __init__(self, JoinIndex index not None, const int32_t[::1] ids not None, Py_ssize_t batch_rows=65_536):
        """`ids` as returned by `index.locate`. IndexError for ids out of range."""
        if batch_rows <= 0:
            raise ValueError(f"batches of {batch_rows} rows")
        if ids.shape[0] and not -1 <= np.min(ids) <= np.max(ids) < index.keys:
            raise IndexError(f"key numbers {np.min(ids)} to {np.max(ids)} of {index.keys}")
        self.index, self.ids, self.batch_rows, self.generation = index, ids, batch_rows, index.generation

    def __iter__(self):
        return self

    def __next__(self):
        """RuntimeError once the index's ids have changed."""
        cdef int32_t[::1] probes, rows
        cdef RowLists lists = self.index.lists
        cdef Py_ssize_t count
        if self.generation != self.index.generation:
            raise RuntimeError("a probe outlived the numbers of its join index")
        if self.row >= self.ids.shape[0]:
            raise StopIteration
        probe_rows, row_ids = np.empty(self.batch_rows, np.int32), np.empty(self.batch_rows, np.int32)
        probes, rows = probe_rows, row_ids
        with nogil:
            count = self.fill(lists, &probes[0], &rows[0])
        if count == 0:
            raise StopIteration
        return probe_rows[:count], row_ids[:count]

    cdef Py_ssize_t fill(self, RowLists lists, int32_t* probe_rows, int32_t* row_ids) noexcept nogil:
        """Appends the next matches; returns their number."""
        cdef Py_ssize_t row = self.row, rows = self.ids.shape[0], out = 0, taken, i
        cdef int32_t count
        cdef const int32_t* ids = &self.ids[0]
        cdef const KeyEntry* entry
        while row < rows and out < self.batch_rows:
            if row + AHEAD < rows:
                prefetch(lists.entry(ids[row + AHEAD]))
            if row + AHEAD // 2 < rows and ids[row + AHEAD // 2] >= 0:
                entry = lists.entry(ids[row + AHEAD // 2])
                if has_block(entry):
                    prefetch(lists.head(entry))
            if ids[row] < 0:
                row += 1
                continue
            entry = lists.entry(ids[row])
            if not has_block(entry):
                probe_rows[out], row_ids[out] = <int32_t>row, entry.start
                out += not is_empty(entry)
                row += 1
                continue
            count = lists.head(entry).rows
            taken = min(<Py_ssize_t>count - self.position, self.batch_rows - out)
            for i in range(taken):
                probe_rows[out + i] = <int32_t>row
            memcpy(row_ids + out, lists.row_ids(entry) + self.position, <size_t>taken * sizeof(int32_t))
            out += taken
            self.position += <int32_t>taken
            if self.position >= count:
                self.position = 0
                row += 1
        self.row = row
        return out
