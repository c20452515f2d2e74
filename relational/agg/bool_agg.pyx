"""BoolAggKernel: BOOL_AND and BOOL_OR, from the numbers of known and of true arguments, so that rows can be retracted.
"""

cimport cython
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from relational.agg.kernels cimport AggKernel, check_picks, int64_at, new_column, put_int64, put_null
from relational.chunk.column cimport Column, bit_at
from relational.chunk.column_builder cimport ColumnBuilder

cdef struct BoolCounts:
    int64_t count       # non-NULL arguments
    int64_t trues


@cython.final
cdef class BoolAggKernel(AggKernel):
    """State: BoolCounts, stored as two BIGINTs."""

    cdef bint is_and

    def __init__(self, spec, bint strict=False):
        super().__init__(spec, strict)
        self.width = sizeof(BoolCounts)
        self.is_and = spec.kind == "bool_and"

    def outputs(self, const int32_t[::1] picks):
        """Whether all, or any, arguments are true; NULL for none."""
        cdef Py_ssize_t row, rows = picks.shape[0]
        cdef ColumnBuilder out = new_column(self.spec.output_type, rows)
        cdef const BoolCounts* state
        check_picks(self, picks)
        with nogil:
            for row in range(rows):
                state = <const BoolCounts*>self.picked(picks[row])
                if state.count == 0:
                    put_null(out, row)
                else:
                    out.present[row] = 1
                    out.values[row] = self.holds(state)
        return out.finish_column()

    def state_columns(self, const int32_t[::1] picks):
        """The numbers of non-NULL and of true arguments."""
        cdef Py_ssize_t row, rows = picks.shape[0]
        cdef ColumnBuilder counts = new_column(self.state_types[0], rows), trues = new_column(self.state_types[1], rows)
        cdef const BoolCounts* state
        check_picks(self, picks)
        with nogil:
            for row in range(rows):
                state = <const BoolCounts*>self.picked(picks[row])
                put_int64(counts, row, state.count)
                put_int64(trues, row, state.trues)
        return [counts.finish_column(), trues.finish_column()]

    cdef inline bint holds(self, const BoolCounts* state) noexcept nogil:
        """REQUIRES an argument."""
        return state.trues == state.count if self.is_and else state.trues > 0

    cdef int add(self, const int32_t* ids, const int8_t* weights, Py_ssize_t first, Py_ssize_t rows) except -1 nogil:
        cdef BoolCounts* state
        cdef Py_ssize_t row
        for row in range(rows):
            state = <BoolCounts*>self.state(ids[row])
            state.count += weights[row]
            state.trues += weights[row] * bit_at(self.view.values, self.view.offset + first + row)
        return 0

    cdef int read_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows,
                         list columns) except -1:
        cdef Column counts = columns[0], trues = columns[1]
        cdef BoolCounts* state
        cdef Py_ssize_t row
        with nogil:
            for row in range(rows):
                if found == NULL or found[row]:
                    state = <BoolCounts*>self.state(ids[row])
                    state.count, state.trues = int64_at(counts, row), int64_at(trues, row)
        return 0

    cdef void combine(self, void* into, const void* other, int sign) noexcept nogil:
        (<BoolCounts*>into).count += sign * (<const BoolCounts*>other).count
        (<BoolCounts*>into).trues += sign * (<const BoolCounts*>other).trues

    cdef int merge_states(self, const int32_t* ids, Py_ssize_t rows, list columns) except -1:
        cdef Column counts = columns[0], trues = columns[1]
        cdef BoolCounts* state
        cdef Py_ssize_t row
        with nogil:
            for row in range(rows):
                state = <BoolCounts*>self.state(ids[row])
                state.count += int64_at(counts, row)
                state.trues += int64_at(trues, row)
        return 0

    cdef bint same_output(self, const void* a, const void* b) noexcept nogil:
        cdef const BoolCounts* x = <const BoolCounts*>a
        cdef const BoolCounts* y = <const BoolCounts*>b
        if x.count == 0 or y.count == 0:
            return x.count == y.count
        return self.holds(x) == self.holds(y)
