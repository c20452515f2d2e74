"""PairMomentsKernel: covariances, correlation and linear regression of pairs (y, x) of doubles.

All of them follow from the sums of x, y, x², y² and xy, which are pairs of doubles, see `float_sum`: a difference of
products of these has the digits that rounded ones would lose. NaN and infinities are counted beside them, and make
every result but the number of pairs NaN.
"""

cimport cython
from libc.math cimport NAN, isfinite, isnan, sqrt
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t
from libc.string cimport memset

from relational.agg.kernels cimport AggKernel, check_picks, int64_at, new_column, put_double, put_int64, put_null
from relational.agg.moments cimport add_double, add_product, co_spread
from relational.chunk.column cimport Column, is_null
from relational.chunk.column_builder cimport ColumnBuilder

cdef enum Sum:
    X = 0
    Y = 1
    XX = 2
    YY = 3
    XY = 4
    SUMS = 5

cdef struct PairMoments:
    double sums[10]         # of finite pairs, by Sum: rounded, and its rounding error
    int64_t finite
    int64_t others          # pairs with NaN or an infinity

cdef dict KINDS = {
    name: number for number, name in enumerate((
        "regr_count", "regr_avgx", "regr_avgy", "regr_sxx", "regr_syy", "regr_sxy", "covar_pop", "covar_samp", "corr",
        "regr_slope", "regr_intercept", "regr_r2",
    ))
}


@cython.final
cdef class PairMomentsKernel(AggKernel):
    """Argument: STRUCT of y and x, both DOUBLE, NULL if one of them is. State: PairMoments, stored as its fields."""

    cdef int kind               # of KINDS

    def __init__(self, spec, bint strict=False):
        super().__init__(spec, strict)
        self.width = sizeof(PairMoments)
        self.kind = KINDS[spec.kind]

    def outputs(self, const int32_t[::1] picks):
        """The results, DOUBLE; of regr_count BIGINT."""
        cdef Py_ssize_t row, rows = picks.shape[0]
        cdef ColumnBuilder out = new_column(self.spec.output_type, rows)
        cdef const PairMoments* state
        cdef double value = 0.0
        check_picks(self, picks)
        with nogil:
            for row in range(rows):
                state = <const PairMoments*>self.picked(picks[row])
                if self.kind == 0:
                    put_int64(out, row, state.finite + state.others)
                elif self.result(state, &value):
                    put_double(out, row, value)
                else:
                    put_null(out, row)
        return out.finish_column()

    cdef bint result(self, const PairMoments* state, double* out) noexcept nogil:
        """Sets `out`; False if the result is NULL."""
        cdef int64_t count = state.finite + state.others
        cdef double n = <double>count, xx, yy, xy
        cdef const double* sums = state.sums
        if count < (2 if self.kind == 7 else 1):
            return False
        if state.others:
            out[0] = NAN
            return True
        if self.kind <= 2:
            out[0] = (sums[2 * (self.kind - 1)] + sums[2 * (self.kind - 1) + 1]) / n
            return True
        xx = co_spread(sums + 2 * X, sums + 2 * X, sums + 2 * XX, count)
        yy = co_spread(sums + 2 * Y, sums + 2 * Y, sums + 2 * YY, count)
        xy = co_spread(sums + 2 * X, sums + 2 * Y, sums + 2 * XY, count)
        xx, yy = (0.0 if xx < 0.0 else xx), (0.0 if yy < 0.0 else yy)
        if self.kind <= 5:
            out[0] = xx if self.kind == 3 else yy if self.kind == 4 else xy
            return True
        if self.kind <= 7:
            out[0] = xy / (n - (self.kind == 7))
            return True
        return self.regression(xx, yy, xy, (sums[0] + sums[1]) / n, (sums[2] + sums[3]) / n, out)

    cdef bint regression(self, double xx, double yy, double xy, double mean_x, double mean_y,
                         double* out) noexcept nogil:
        """A result that needs x, or both, to vary."""
        if xx == 0.0 or (self.kind == 8 and yy == 0.0):
            return False
        if self.kind == 8:
            out[0] = xy / (sqrt(xx) * sqrt(yy))
            out[0] = 1.0 if out[0] > 1.0 else -1.0 if out[0] < -1.0 else out[0]
        elif self.kind == 9:
            out[0] = xy / xx
        elif self.kind == 10:
            out[0] = mean_y - mean_x * (xy / xx)
        else:
            out[0] = 1.0 if yy == 0.0 else (xy / xx) * (xy / yy)
            out[0] = 1.0 if out[0] > 1.0 else out[0]
        return True

    def state_columns(self, const int32_t[::1] picks):
        """The fields of PairMoments, in their order."""
        cdef Py_ssize_t row, rows = picks.shape[0]
        cdef list columns = [new_column(kind, rows) for kind in self.state_types]
        cdef ColumnBuilder column, finite = columns[2 * SUMS], others = columns[2 * SUMS + 1]
        cdef int field
        check_picks(self, picks)
        for field in range(2 * SUMS):
            column = columns[field]
            with nogil:
                for row in range(rows):
                    put_double(column, row, (<const PairMoments*>self.picked(picks[row])).sums[field])
        with nogil:
            for row in range(rows):
                put_int64(finite, row, (<const PairMoments*>self.picked(picks[row])).finite)
                put_int64(others, row, (<const PairMoments*>self.picked(picks[row])).others)
        return [(<ColumnBuilder>each).finish_column() for each in columns]

    cdef int add(self, const int32_t* ids, const int8_t* weights, Py_ssize_t first, Py_ssize_t rows) except -1 nogil:
        cdef const double* ys = <const double*>self.view.children[0].values
        cdef const double* xs = <const double*>self.view.children[1].values
        cdef PairMoments* state
        cdef double x, y, weight
        cdef Py_ssize_t row
        for row in range(rows):
            if weights[row] == 0:
                continue
            x, y, weight = xs[first + row], ys[first + row], weights[row]
            state = <PairMoments*>self.state(ids[row])
            if not (isfinite(x) and isfinite(y)):
                state.others += weights[row]
                continue
            state.finite += weights[row]
            add_double(state.sums + 2 * X, state.sums + 2 * X + 1, weight * x)
            add_double(state.sums + 2 * Y, state.sums + 2 * Y + 1, weight * y)
            add_product(state.sums + 2 * XX, x, x, weight)
            add_product(state.sums + 2 * YY, y, y, weight)
            add_product(state.sums + 2 * XY, x, y, weight)
            if state.finite == 0:
                memset(state.sums, 0, sizeof(state.sums))
        return 0

    cdef int read_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows,
                         list columns) except -1:
        cdef Column column, finite = columns[2 * SUMS], others = columns[2 * SUMS + 1]
        cdef PairMoments* state
        cdef Py_ssize_t row
        cdef int field
        with nogil:
            for row in range(rows):
                if (found == NULL or found[row]) and not is_null(&finite.view, row):
                    state = <PairMoments*>self.state(ids[row])
                    state.finite, state.others = int64_at(finite, row), int64_at(others, row)
        for field in range(2 * SUMS):
            column = columns[field]
            with nogil:
                for row in range(rows):
                    if (found == NULL or found[row]) and not is_null(&column.view, row):
                        state = <PairMoments*>self.state(ids[row])
                        state.sums[field] = (<const double*>column.view.values)[row]
        return 0

    cdef bint same_output(self, const void* a, const void* b) noexcept nogil:
        cdef const PairMoments* left = <const PairMoments*>a
        cdef const PairMoments* right = <const PairMoments*>b
        cdef double x = 0.0, y = 0.0
        cdef bint has_x, has_y
        if self.kind == 0:
            return left.finite + left.others == right.finite + right.others
        has_x, has_y = self.result(left, &x), self.result(right, &y)
        return has_x == has_y and (not has_x or x == y or (isnan(x) and isnan(y)))
