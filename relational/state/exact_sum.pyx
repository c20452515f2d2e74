"""ExactSumKernel: SUM and AVG of SMALLINT, INT, BIGINT and NUMERIC, exact under any retraction.

The sum is kept in 128 bits, which no rows of a table can fill with 64-bit integers; every addition is
checked. Whether a result fits its type is asked when it is read, so that a sum may leave the range of its type
and come back. An average is rounded half away from zero to the scale of its type. Over no rows both are NULL.
"""

cimport cython
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from relational.chunk.column cimport BIGINT, Column, INT, NUMERIC, SMALLINT, is_null
from relational.chunk.column_builder cimport ColumnBuilder
from relational.state.agg_kernels cimport check_picks, int64_at, new_column, put_int64, put_null
from relational.state.int128 cimport (
    add_int64, add_int128, average, fits_int64, lies_within, low_int64, power_of_ten,
)

from relational.errors import EvaluationError


cdef extern from * nogil:
    void __builtin_prefetch(const void*, ...) noexcept

cdef enum:
    STREAM = 64                 # arguments read ahead: blocks are too short for the processor to see the sequence


ctypedef fused Integer:
    int16_t
    int32_t
    int64_t


cdef inline ExactSum* counted(uint8_t* states, int64_t group, Py_ssize_t width, int8_t weight) noexcept nogil:
    """The state of a group, its count already changed."""
    cdef ExactSum* state = <ExactSum*>(states + group * width)
    state.count += weight
    return state


cdef Py_ssize_t add_integers(uint8_t* states, Py_ssize_t width, const int32_t* ids, const int8_t* weights,
                             const Integer* values, Py_ssize_t rows) noexcept nogil:
    """Adds value times weight, and the weight to the count. Returns the first row whose sum does not fit, else -1."""
    cdef Py_ssize_t row
    for row in range(rows):
        __builtin_prefetch(values + row + STREAM)
        if add_int64(counted(states, ids[row], width, weights[row]).sum, values[row], weights[row]):
            return row
    return -1


cdef Py_ssize_t add_numerics(uint8_t* states, Py_ssize_t width, const int32_t* ids, const int8_t* weights,
                             const uint8_t* values, Py_ssize_t rows) noexcept nogil:
    """As above. The value of a NULL may be anything, so it is not looked at."""
    cdef Py_ssize_t row
    for row in range(rows):
        if weights[row] != 0 and add_int128(counted(states, ids[row], width, weights[row]).sum, values + 16 * row,
                                            weights[row]):
            return row
    return -1


@cython.final
cdef class ExactSumKernel(AggKernel):
    """State: ExactSum."""

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

    cdef int add(self, const int32_t* ids, const int8_t* weights, Py_ssize_t first, Py_ssize_t rows) except -1 nogil:
        cdef uint8_t* states = <uint8_t*>self.state(0)
        cdef Py_ssize_t width = self.states.width, wrong
        cdef const uint8_t* values = self.view.values
        if self.view.kind == BIGINT:
            wrong = add_integers(states, width, ids, weights, <const int64_t*>values + first, rows)
        elif self.view.kind == INT:
            wrong = add_integers(states, width, ids, weights, <const int32_t*>values + first, rows)
        elif self.view.kind == SMALLINT:
            wrong = add_integers(states, width, ids, weights, <const int16_t*>values + first, rows)
        else:
            wrong = add_numerics(states, width, ids, weights, values + 16 * first, rows)
        if wrong >= 0:
            with gil:
                raise EvaluationError(
                    f"{self.spec.kind} of {self.spec.input_type} leaves 128 bits", row=first + wrong)
        return 0

    cdef int read_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows,
                         list columns) except -1:
        cdef Column sums = columns[0], counts = columns[1]
        cdef ExactSum* state
        cdef Py_ssize_t row
        with nogil:
            for row in range(rows):
                if (found == NULL or found[row]) and not is_null(&sums.view, row):
                    state = <ExactSum*>self.state(ids[row])
                    memcpy(state.sum, sums.view.values + 16 * row, 16)
                    state.count = int64_at(counts, row)
        return 0
