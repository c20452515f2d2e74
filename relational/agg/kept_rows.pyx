"""KeptRowsKernel: how many rows a group keeps for a call that collects, and how many bytes they have.

The rows are elsewhere. The argument is the size of a row in bytes, NULL for a row that is not kept, so a group that has
become too large is known before its rows are read.
"""

import numpy as np

cimport cython
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from relational.agg.kernels cimport AggKernel, check_picks, int64_at, new_column, put_int64
from relational.chunk.column cimport Column
from relational.chunk.column_builder cimport ColumnBuilder

cdef struct KeptRows:
    int64_t rows
    int64_t bytes


@cython.final
cdef class KeptRowsKernel(AggKernel):
    """State: KeptRows, stored as two BIGINTs."""

    def __init__(self, spec, bint strict=False):
        super().__init__(spec, strict)
        self.width = sizeof(KeptRows)

    def sizes(self, const int32_t[::1] picks):
        """int64[2, picks]: rows and bytes."""
        cdef Py_ssize_t row
        cdef const KeptRows* state
        out = np.empty((2, picks.shape[0]), np.int64)
        cdef int64_t[:, ::1] found = out
        check_picks(self, picks)
        for row in range(picks.shape[0]):
            state = <const KeptRows*>self.picked(picks[row])
            found[0, row], found[1, row] = state.rows, state.bytes
        return out

    def state_columns(self, const int32_t[::1] picks):
        """Rows and bytes."""
        cdef Py_ssize_t row, count = picks.shape[0]
        cdef ColumnBuilder rows = new_column(self.state_types[0], count), sizes = new_column(self.state_types[1], count)
        cdef const KeptRows* state
        check_picks(self, picks)
        with nogil:
            for row in range(count):
                state = <const KeptRows*>self.picked(picks[row])
                put_int64(rows, row, state.rows)
                put_int64(sizes, row, state.bytes)
        return [rows.finish_column(), sizes.finish_column()]

    cdef int add(self, const int32_t* ids, const int8_t* weights, Py_ssize_t first, Py_ssize_t rows) except -1 nogil:
        cdef const int64_t* sizes = <const int64_t*>self.view.values
        cdef KeptRows* state
        cdef Py_ssize_t row
        for row in range(rows):
            state = <KeptRows*>self.state(ids[row])
            state.rows += weights[row]
            state.bytes += weights[row] * sizes[first + row]
        return 0

    cdef int read_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows,
                         list columns) except -1:
        cdef Column counts = columns[0], sizes = columns[1]
        cdef KeptRows* state
        cdef Py_ssize_t row
        with nogil:
            for row in range(rows):
                if found == NULL or found[row]:
                    state = <KeptRows*>self.state(ids[row])
                    state.rows, state.bytes = int64_at(counts, row), int64_at(sizes, row)
        return 0
