"""Variances and standard deviations, from the number of arguments, their sum and the sum of their squares.

Of whole and decimal numbers the sums are exact, so a result does not depend on what came and went, and is rounded once
or twice. Of floating numbers they are pairs of doubles, see `float_sum`; NaN and the infinities are counted beside
them, and make the result NaN.
"""

cimport cython
from libc.math cimport NAN, isfinite, isnan, sqrt
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from relational.agg.int128 cimport add_192, add_int64, add_int128, add_wide, join_wide, sign_of, split_wide
from relational.agg.kernels cimport (
    AggKernel, check_picks, int64_at, new_column, put_double, put_int64, put_null, put_wide,
)
from relational.agg.moments cimport add_double, add_square, exact_spread, float_spread, square_of
from relational.chunk.column cimport BIGINT, Column, INT, REAL, SMALLINT, is_null
from relational.chunk.column_builder cimport ColumnBuilder

cdef struct ExactMoments:
    int64_t sum[2]          # 128 bits, in units of the argument's scale
    int64_t squares[2]      # the low 128 of 192 bits
    int64_t above           # the others
    int64_t count           # non-NULL arguments

cdef struct FloatMoments:
    double sum[2]           # of finite arguments: rounded, and its rounding error
    double squares[2]
    int64_t finite
    int64_t others          # NaN and infinities


cdef class VarianceKernel(AggKernel):
    """Base: from the sum of squared deviations to the result."""

    cdef bint is_sample         # divided by n - 1 instead of n
    cdef bint is_root
    cdef double unit            # square of the unit of the argument's scale

    def __init__(self, spec, bint strict=False):
        super().__init__(spec, strict)
        self.is_sample, self.is_root = spec.kind.endswith("_samp"), spec.kind.startswith("stddev")
        self.unit = 10.0 ** (2 * (spec.input_type.scale or 0))

    def outputs(self, const int32_t[::1] picks):
        """The results, DOUBLE; NULL for no rows, and of a sample also for one."""
        cdef Py_ssize_t row, rows = picks.shape[0]
        cdef ColumnBuilder out = new_column(self.spec.output_type, rows)
        cdef double value
        check_picks(self, picks)
        with nogil:
            for row in range(rows):
                if self.result(self.picked(picks[row]), &value):
                    put_double(out, row, value)
                else:
                    put_null(out, row)
        return out.finish_column()

    cdef bint result(self, const void* state, double* out) noexcept nogil:
        """Sets `out`; False if the result is NULL."""
        cdef int64_t count = 0
        cdef double spread = self.spread(state, &count)
        if count <= self.is_sample:
            return False
        out[0] = spread / (<double>(count - self.is_sample)) / self.unit
        if self.is_root:
            out[0] = sqrt(out[0])
        return True

    cdef double spread(self, const void* state, int64_t* count) noexcept nogil:
        """The sum of squared deviations from the mean, and the number of arguments."""
        return NAN

    cdef bint same_output(self, const void* a, const void* b) noexcept nogil:
        cdef double x = 0.0, y = 0.0
        cdef bint has_x = self.result(a, &x), has_y = self.result(b, &y)
        return has_x == has_y and (x == y or (isnan(x) and isnan(y)))


@cython.final
cdef class ExactVarianceKernel(VarianceKernel):
    """State: ExactMoments, stored as the count, the sum, and the sum of squares in 38 digits and those above."""

    def __init__(self, spec, bint strict=False):
        super().__init__(spec, strict)
        self.width = sizeof(ExactMoments)

    def state_columns(self, const int32_t[::1] picks):
        """Count, sum, squares and the digits above them."""
        cdef Py_ssize_t row, rows = picks.shape[0]
        cdef list columns = [new_column(kind, rows) for kind in self.state_types]
        cdef ColumnBuilder counts = columns[0], sums = columns[1], squares = columns[2], above = columns[3]
        cdef const ExactMoments* state
        cdef int64_t low[2]
        cdef int64_t digits
        check_picks(self, picks)
        with nogil:
            for row in range(rows):
                state = <const ExactMoments*>self.picked(picks[row])
                split_wide(state.squares, state.above, low, &digits)
                put_int64(counts, row, state.count)
                put_wide(sums, row, state.sum)
                put_wide(squares, row, low)
                put_int64(above, row, digits)
        return [(<ColumnBuilder>column).finish_column() for column in (counts, sums, squares, above)]

    cdef double spread(self, const void* state, int64_t* count) noexcept nogil:
        cdef const ExactMoments* moments = <const ExactMoments*>state
        count[0] = moments.count
        return exact_spread(moments.sum, <const uint64_t*>moments.squares, moments.count) if moments.count > 0 else NAN

    cdef int add(self, const int32_t* ids, const int8_t* weights, Py_ssize_t first, Py_ssize_t rows) except -1 nogil:
        cdef ExactMoments* state
        cdef int64_t value
        cdef int64_t square[2]
        cdef Py_ssize_t row
        for row in range(rows):
            if weights[row] == 0:
                continue
            value = whole(self.view.kind, self.view.values, first + row)
            state = <ExactMoments*>self.state(ids[row])
            state.count += weights[row]
            add_int64(state.sum, value, weights[row])
            square_of(value, square)
            add_wide(state.squares, &state.above, square, weights[row])
        return 0

    cdef int read_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows,
                         list columns) except -1:
        cdef Column counts = columns[0], sums = columns[1], squares = columns[2], above = columns[3]
        cdef ExactMoments* state
        cdef Py_ssize_t row
        with nogil:
            for row in range(rows):
                if (found == NULL or found[row]) and not is_null(&sums.view, row):
                    state = <ExactMoments*>self.state(ids[row])
                    state.count = int64_at(counts, row)
                    memcpy(state.sum, sums.view.values + 16 * row, 16)
                    join_wide(squares.view.values + 16 * row, int64_at(above, row), state.squares, &state.above)
        return 0

    cdef void combine(self, void* into, const void* other, int sign) noexcept nogil:
        cdef ExactMoments* state = <ExactMoments*>into
        cdef const ExactMoments* more = <const ExactMoments*>other
        state.count += sign * more.count
        add_int128(state.sum, more.sum, sign)
        add_192(state.squares, &state.above, more.squares, more.above, sign)

    cdef int merge_states(self, const int32_t* ids, Py_ssize_t rows, list columns) except -1:
        cdef Column counts = columns[0], sums = columns[1], squares = columns[2], above = columns[3]
        cdef ExactMoments* state
        cdef int64_t low[2]
        cdef int64_t high
        cdef Py_ssize_t row
        with nogil:
            for row in range(rows):
                state = <ExactMoments*>self.state(ids[row])
                state.count += int64_at(counts, row)
                add_int128(state.sum, sums.view.values + 16 * row, 1)
                join_wide(squares.view.values + 16 * row, int64_at(above, row), low, &high)
                add_wide(state.squares, &state.above, low, 1)
                state.above += high - sign_of(low)
        return 0


@cython.final
cdef class FloatVarianceKernel(VarianceKernel):
    """State: FloatMoments, stored as its fields."""

    def __init__(self, spec, bint strict=False):
        super().__init__(spec, strict)
        self.width, self.is_rounded = sizeof(FloatMoments), True

    def state_columns(self, const int32_t[::1] picks):
        """The fields of FloatMoments, in their order."""
        cdef Py_ssize_t row, rows = picks.shape[0]
        cdef list columns = [new_column(kind, rows) for kind in self.state_types]
        cdef ColumnBuilder high = columns[0], low = columns[1], squares_high = columns[2], squares_low = columns[3]
        cdef ColumnBuilder finite = columns[4], others = columns[5]
        cdef const FloatMoments* state
        check_picks(self, picks)
        with nogil:
            for row in range(rows):
                state = <const FloatMoments*>self.picked(picks[row])
                put_double(high, row, state.sum[0])
                put_double(low, row, state.sum[1])
                put_double(squares_high, row, state.squares[0])
                put_double(squares_low, row, state.squares[1])
                put_int64(finite, row, state.finite)
                put_int64(others, row, state.others)
        return [(<ColumnBuilder>column).finish_column() for column in columns]

    cdef double spread(self, const void* state, int64_t* count) noexcept nogil:
        cdef const FloatMoments* moments = <const FloatMoments*>state
        count[0] = moments.finite + moments.others
        if moments.others or count[0] <= 0 or not isfinite(moments.squares[0]):
            return NAN
        return float_spread(moments.sum[0], moments.sum[1], moments.squares[0], moments.squares[1], count[0])

    cdef int add(self, const int32_t* ids, const int8_t* weights, Py_ssize_t first, Py_ssize_t rows) except -1 nogil:
        cdef const uint8_t* values = self.view.values
        cdef bint is_real = self.view.kind == REAL
        cdef FloatMoments* state
        cdef double value
        cdef Py_ssize_t row
        for row in range(rows):
            if weights[row] == 0:
                continue
            value = (<const float*>values)[first + row] if is_real else (<const double*>values)[first + row]
            state = <FloatMoments*>self.state(ids[row])
            if not isfinite(value):
                state.others += weights[row]
                continue
            state.finite += weights[row]
            add_double(state.sum, state.sum + 1, value * weights[row])
            add_square(state.squares, state.squares + 1, value, weights[row])
            if state.finite == 0:
                state.sum[0] = state.sum[1] = state.squares[0] = state.squares[1] = 0.0
        return 0

    cdef void combine(self, void* into, const void* other, int sign) noexcept nogil:
        cdef FloatMoments* state = <FloatMoments*>into
        cdef const FloatMoments* more = <const FloatMoments*>other
        state.finite += more.finite
        state.others += more.others
        add_double(state.sum, state.sum + 1, more.sum[0])
        add_double(state.squares, state.squares + 1, more.squares[0])
        state.sum[1] += more.sum[1]
        state.squares[1] += more.squares[1]

    cdef int read_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows,
                         list columns) except -1:
        cdef Column high = columns[0], low = columns[1], squares_high = columns[2], squares_low = columns[3]
        cdef Column finite = columns[4], others = columns[5]
        cdef FloatMoments* state
        cdef Py_ssize_t row
        with nogil:
            for row in range(rows):
                if (found == NULL or found[row]) and not is_null(&high.view, row):
                    state = <FloatMoments*>self.state(ids[row])
                    state.sum[0] = (<const double*>high.view.values)[row]
                    state.sum[1] = (<const double*>low.view.values)[row]
                    state.squares[0] = (<const double*>squares_high.view.values)[row]
                    state.squares[1] = (<const double*>squares_low.view.values)[row]
                    state.finite, state.others = int64_at(finite, row), int64_at(others, row)
        return 0


cdef inline int64_t whole(int kind, const uint8_t* values, Py_ssize_t row) noexcept nogil:
    """A whole number, or the digits of a NUMERIC of so few that they fit 64 bits."""
    if kind == BIGINT:
        return (<const int64_t*>values)[row]
    if kind == INT:
        return (<const int32_t*>values)[row]
    if kind == SMALLINT:
        return (<const int16_t*>values)[row]
    return (<const int64_t*>values)[2 * row]
