"""ExactSumKernel: SUM and AVG of SMALLINT, INT, BIGINT and NUMERIC, exact under any retraction.

The sum is kept in 128 bits, which no rows of a table can fill with 64-bit integers; every addition is
checked. Whether a result fits its type is asked when it is read, so that a sum may leave the range of its type
and come back. An average is rounded half away from zero to the scale of its type. Over no rows both are NULL.
"""

cimport cython
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from relational.chunk.column cimport BIGINT, Column, INT, NUMERIC, is_null
from relational.chunk.column_builder cimport ColumnBuilder
from relational.state.agg_kernels cimport check_picks, int64_at, new_column, put_int64, put_null
from relational.state.int128 cimport (
    add_int64, add_int128, average, fits_int64, lies_within, low_int64, power_of_ten,
)

from relational.errors import EvaluationError

cdef extern from * nogil:
    void __builtin_prefetch(const void*, ...) noexcept

cdef enum:
    AHEAD = 16


@cython.final
cdef class ExactSumKernel(AggKernel):
    """Record: ExactSum."""

    def __init__(self, spec, bint strict=False):
        super().__init__(spec, strict)
        self.width = sizeof(ExactSum)
        self.is_average = spec.kind == "avg"
        self.is_bigint = spec.output_type.kind == BIGINT
        power_of_ten(spec.output_type.precision or 0, self.limit)
        self.more_digits = (spec.output_type.scale or 0) - (spec.input_type.scale or 0)
        if not self.is_bigint and spec.output_type.kind != NUMERIC:
            raise ValueError(f"{spec.kind} of {spec.input_type} as {spec.output_type}")
        if self.more_digits < 0 or (self.more_digits > 0 and not self.is_average):
            raise ValueError(f"{spec.kind} of {spec.input_type} as {spec.output_type}: wrong scale")

    def outputs(self, const int32_t[::1] picks):
        """The sums or averages; NULL for no rows and, unless strict, for what does not fit."""
        cdef Py_ssize_t row, rows = picks.shape[0], overflows = 0
        cdef ColumnBuilder out = new_column(self.spec.output_type, rows)
        cdef ExactSum* state
        check_picks(self, picks)
        with nogil:
            for row in range(rows):
                state = <ExactSum*>self.picked(picks[row])
                if state.count == 0:
                    put_null(out, row)
                elif self.put_result(out, row, state) < 0:
                    put_null(out, row)
                    overflows += 1
        self.count_overflow(overflows)
        return out.finish()

    def state_columns(self, const int32_t[::1] picks):
        """Sum as NUMERIC of 38 digits, and count."""
        cdef Py_ssize_t row, rows = picks.shape[0]
        cdef ColumnBuilder sums = new_column(self.spec.state_types[0], rows)
        cdef ColumnBuilder counts = new_column(self.spec.state_types[1], rows)
        cdef ExactSum* state
        check_picks(self, picks)
        with nogil:
            for row in range(rows):
                state = <ExactSum*>self.picked(picks[row])
                sums.present[row] = 1
                memcpy(sums.values + 16 * row, state.sum, 16)
                put_int64(counts, row, state.count)
        return [sums.finish(), counts.finish()]

    cdef bint same_output(self, const void* a, const void* b) noexcept nogil:
        cdef const ExactSum* x = <const ExactSum*>a
        cdef const ExactSum* y = <const ExactSum*>b
        cdef int64_t left[2]
        cdef int64_t right[2]
        if x.count == 0 or y.count == 0:
            return x.count == y.count
        if not self.is_average:
            return x.sum[0] == y.sum[0] and x.sum[1] == y.sum[1]
        if (average(x.sum, x.count, self.more_digits, left) < 0
                or average(y.sum, y.count, self.more_digits, right) < 0):
            return False
        return left[0] == right[0] and left[1] == right[1]

    cdef int put_result(self, ColumnBuilder out, Py_ssize_t row, const ExactSum* state) noexcept nogil:
        """Writes the result of a group with rows; -1 where it does not fit."""
        cdef int64_t result[2]
        memcpy(result, state.sum, 16)
        if self.is_average and average(state.sum, state.count, self.more_digits, result) < 0:
            return -1
        if self.is_bigint:
            if not fits_int64(result):
                return -1
            put_int64(out, row, low_int64(result))
            return 0
        if not lies_within(result, self.limit):
            return -1
        out.present[row] = 1
        memcpy(out.values + 16 * row, result, 16)
        return 0

    cdef int add(self, const int32_t* ids, const int8_t* weights, Py_ssize_t rows, Column argument) except -1:
        cdef ExactSum* states = <ExactSum*>self.states.data
        cdef const uint8_t* values = argument.view.values
        cdef int kind = argument.view.kind, failed = 0
        cdef Py_ssize_t row, wrong = -1
        cdef ExactSum* state
        if argument.data_type != self.spec.input_type:
            raise ValueError(f"{self.spec.kind} of {self.spec.input_type} given {argument.data_type}")
        with nogil:
            for row in range(rows):
                if row + AHEAD < rows and ids[row + AHEAD] >= 0:
                    __builtin_prefetch(states + ids[row + AHEAD], 1)
                if weights[row] == 0:
                    continue
                state = states + ids[row]
                if kind == BIGINT:
                    failed = add_int64(state.sum, (<const int64_t*>values)[row], weights[row])
                elif kind == NUMERIC:
                    failed = add_int128(state.sum, values + 16 * row, weights[row])
                elif kind == INT:
                    failed = add_int64(state.sum, (<const int32_t*>values)[row], weights[row])
                else:
                    failed = add_int64(state.sum, (<const int16_t*>values)[row], weights[row])
                if failed:
                    wrong = row
                    break
                state.count += weights[row]
        if wrong >= 0:
            raise EvaluationError(f"{self.spec.kind} of {self.spec.input_type} leaves 128 bits", row=wrong)
        return 0

    cdef int read_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows,
                         list columns) except -1:
        cdef Column sums = columns[0], counts = columns[1]
        cdef ExactSum* states = <ExactSum*>self.states.data
        cdef Py_ssize_t row
        with nogil:
            for row in range(rows):
                if (found == NULL or found[row]) and not is_null(&sums.view, row):
                    memcpy(states[ids[row]].sum, sums.view.values + 16 * row, 16)
                    states[ids[row]].count = int64_at(counts, row)
        return 0
