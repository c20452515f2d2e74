"""FloatSumKernel: SUM and AVG of REAL and DOUBLE under retraction.

The sum is compensated (Neumaier, "Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen", 1974): the
rounding error of each addition is kept separately, so the result of any order of additions and retractions differs from
the true sum by far less than 1e-9 of the sum of magnitudes. NaN and the infinities cannot be subtracted from a sum, so
they are counted instead. When no finite argument is left, the sum restarts from an exact zero; a finite sum beyond the
range of a double stays infinite until then.
"""

cimport cython
from libc.math cimport INFINITY, NAN, isfinite, isinf, isnan
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from relational.agg.kernels cimport AggKernel, check_picks, int64_at, new_column, put_double, put_int64, put_null
from relational.agg.moments cimport add_double
from relational.chunk.column cimport Column, REAL, is_null
from relational.chunk.column_builder cimport ColumnBuilder

cdef struct FloatSum:
    double high         # rounded sum of the finite arguments
    double low          # rounding error of `high`
    int64_t finite      # number of arguments by class
    int64_t nans
    int64_t positive    # +inf
    int64_t negative    # -inf


cdef inline void add_value(FloatSum* state, double value, int weight) noexcept nogil:
    cdef double total, change = value if weight > 0 else -value
    if isnan(value):
        state.nans += weight
    elif isinf(value):
        if value > 0:
            state.positive += weight
        else:
            state.negative += weight
    else:
        state.finite += weight
        total = state.high + change
        if (state.high if state.high >= 0 else -state.high) >= (change if change >= 0 else -change):
            state.low += (state.high - total) + change
        else:
            state.low += (change - total) + state.high
        state.high = total
        if state.finite == 0:
            state.high = state.low = 0.0


@cython.final
cdef class FloatSumKernel(AggKernel):
    """Record: FloatSum."""

    cdef bint is_average

    def __init__(self, spec, bint strict=False):
        super().__init__(spec, strict)
        self.width = sizeof(FloatSum)
        self.is_average, self.is_rounded = spec.kind == "avg", True

    def outputs(self, const int32_t[::1] picks):
        """The sums or averages, DOUBLE; NULL for no rows."""
        cdef Py_ssize_t row, rows = picks.shape[0]
        cdef ColumnBuilder out = new_column(self.spec.output_type, rows)
        cdef double value
        check_picks(self, picks)
        with nogil:
            for row in range(rows):
                if self.result(<FloatSum*>self.picked(picks[row]), &value):
                    put_double(out, row, value)
                else:
                    put_null(out, row)
        return out.finish_column()

    def state_columns(self, const int32_t[::1] picks):
        """The fields of FloatSum, in their order."""
        cdef Py_ssize_t row, rows = picks.shape[0]
        cdef list columns = [new_column(data_type, rows) for data_type in self.state_types]
        cdef ColumnBuilder high = columns[0], low = columns[1], finite = columns[2]
        cdef ColumnBuilder nans = columns[3], positive = columns[4], negative = columns[5]
        cdef FloatSum* state
        check_picks(self, picks)
        with nogil:
            for row in range(rows):
                state = <FloatSum*>self.picked(picks[row])
                put_double(high, row, state.high)
                put_double(low, row, state.low)
                put_int64(finite, row, state.finite)
                put_int64(nans, row, state.nans)
                put_int64(positive, row, state.positive)
                put_int64(negative, row, state.negative)
        return [(<ColumnBuilder>column).finish_column() for column in (high, low, finite, nans, positive, negative)]

    cdef bint result(self, const FloatSum* state, double* out) noexcept nogil:
        """Sets `out`; False if the result is NULL."""
        cdef int64_t count = state.finite + state.nans + state.positive + state.negative
        if count == 0:
            return False
        if state.nans > 0 or (state.positive > 0 and state.negative > 0):
            out[0] = NAN
        elif state.positive > 0:
            out[0] = INFINITY
        elif state.negative > 0:
            out[0] = -INFINITY
        else:
            out[0] = state.high + state.low if isfinite(state.low) else state.high
            if self.is_average:
                out[0] /= <double>count
        return True

    cdef bint same_output(self, const void* a, const void* b) noexcept nogil:
        cdef double x = 0.0, y = 0.0
        cdef bint has_x = self.result(<const FloatSum*>a, &x), has_y = self.result(<const FloatSum*>b, &y)
        return has_x == has_y and (x == y or (isnan(x) and isnan(y)))

    cdef int add(self, const int32_t* ids, const int8_t* weights, Py_ssize_t first, Py_ssize_t rows) except -1 nogil:
        cdef const uint8_t* values = self.view.values
        cdef bint is_real = self.view.kind == REAL
        cdef Py_ssize_t row
        for row in range(rows):
            if weights[row] == 0:
                continue
            if is_real:
                add_value(<FloatSum*>self.state(ids[row]), (<const float*>values)[first + row], weights[row])
            else:
                add_value(<FloatSum*>self.state(ids[row]), (<const double*>values)[first + row], weights[row])
        return 0

    cdef void combine(self, void* into, const void* other, int sign) noexcept nogil:
        cdef FloatSum* state = <FloatSum*>into
        cdef const FloatSum* more = <const FloatSum*>other
        state.finite += more.finite
        state.nans += more.nans
        state.positive += more.positive
        state.negative += more.negative
        add_double(&state.high, &state.low, more.high)
        state.low += more.low

    cdef int read_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows,
                         list columns) except -1:
        cdef Column high = columns[0], low = columns[1], finite = columns[2]
        cdef Column nans = columns[3], positive = columns[4], negative = columns[5]
        cdef FloatSum* state
        cdef Py_ssize_t row
        with nogil:
            for row in range(rows):
                if (found == NULL or found[row]) and not is_null(&high.view, row):
                    state = <FloatSum*>self.state(ids[row])
                    state.high = (<const double*>high.view.values)[row]
                    state.low = (<const double*>low.view.values)[row]
                    state.finite, state.nans = int64_at(finite, row), int64_at(nans, row)
                    state.positive, state.negative = int64_at(positive, row), int64_at(negative, row)
        return 0
