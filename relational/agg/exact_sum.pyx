"""ExactSumKernel: SUM and AVG of SMALLINT, INT, BIGINT and NUMERIC, exact under any retraction.

A sum has 128 bits, and 192 once the magnitudes of all arguments so far could exceed 128; no table can overflow 192, so
no addition is checked. Whether a result fits its type is checked when it is read, so a sum may exceed the range of its
type and return. An average is rounded half away from zero to the scale of its type. Over no rows both are NULL.
"""

cimport cython
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from hummock.base.prefetch cimport prefetch
from relational.agg.int128 cimport (
    REACH, add_192, add_int64, add_int128, add_wide, average, fits_int64, is_narrow, join_wide, lies_within, low_int64,
    power_of_ten, reach_of, sign_of, split_wide, wide_average,
)
from relational.agg.kernels cimport AggKernel, check_picks, int64_at, new_column, put_int64, put_null, put_wide
from relational.chunk.column cimport BIGINT, Column, INT, NUMERIC, SMALLINT, is_null
from relational.chunk.column_builder cimport ColumnBuilder

cdef packed struct ExactSum:
    int64_t sum[2]      # the low 128 bits, two's complement, in units of the argument's scale
    int64_t count       # non-NULL arguments
    int64_t high        # the 64 bits above `sum`; present only if the kernel `is_wide`


cdef enum:
    STREAM = 64                 # prefetch distance in arguments: blocks are too short for the hardware prefetcher


ctypedef fused Integer:
    int16_t
    int32_t
    int64_t


cdef inline ExactSum* counted(uint8_t* states, int64_t group, Py_ssize_t width, int8_t weight) noexcept nogil:
    """The state of a group, with its count already updated."""
    cdef ExactSum* state = <ExactSum*>(states + group * width)
    state.count += weight
    return state


cdef void add_integers(uint8_t* states, Py_ssize_t width, const int32_t* ids, const int8_t* weights,
                       const Integer* values, Py_ssize_t rows) noexcept nogil:
    """Adds value times weight, and the weight to the count."""
    cdef Py_ssize_t row
    for row in range(rows):
        prefetch(values + row + STREAM)
        add_int64(counted(states, ids[row], width, weights[row]).sum, values[row], weights[row])


cdef void add_numerics(uint8_t* states, Py_ssize_t width, const int32_t* ids, const int8_t* weights,
                       const uint8_t* values, Py_ssize_t rows, bint is_wide) noexcept nogil:
    """As above. The value of a NULL is unspecified and not read."""
    cdef Py_ssize_t row
    cdef ExactSum* state
    for row in range(rows):
        if weights[row] == 0:
            continue
        state = counted(states, ids[row], width, weights[row])
        if is_wide:
            add_wide(state.sum, &state.high, values + 16 * row, weights[row])
        else:
            add_int128(state.sum, values + 16 * row, weights[row])


@cython.final
cdef class ExactSumKernel(AggKernel):
    """State: ExactSum."""

    cdef bint is_average
    cdef bint is_bigint         # the result is BIGINT, else NUMERIC
    cdef bint has_above         # states may exceed 38 digits
    cdef uint64_t reach         # |any sum| < reach * 2**64, while that is less than REACH
    cdef int64_t limit[2]       # 128 bits: exclusive upper bound of a NUMERIC result
    cdef int more_digits        # scale of the result minus that of the argument

    def __init__(self, spec, bint strict=False):
        super().__init__(spec, strict)
        self.has_above = len(spec.wide_types) > 0
        self.width = self.wanted = sizeof(ExactSum) - sizeof(int64_t)
        self.is_average = spec.kind == "avg"
        self.is_bigint = spec.output_type.kind == BIGINT
        power_of_ten(spec.output_type.precision or 0, self.limit)
        self.more_digits = (spec.output_type.scale or 0) - (spec.input_type.scale or 0)
        if not self.is_bigint and spec.output_type.kind != NUMERIC:
            raise ValueError(f"{spec.kind} of {spec.input_type} as {spec.output_type}")
        if self.more_digits < 0 or (self.more_digits > 0 and not self.is_average):
            raise ValueError(f"{spec.kind} of {spec.input_type} as {spec.output_type}: wrong scale")

    def outputs(self, const int32_t[::1] picks):
        """The sums or averages; NULL for no rows and, unless strict, for an overflow."""
        cdef Py_ssize_t row, rows = picks.shape[0], overflows = 0
        cdef ColumnBuilder out = new_column(self.spec.output_type, rows)
        cdef ExactSum* state
        cdef int64_t result[2]
        check_picks(self, picks)
        with nogil:
            for row in range(rows):
                state = <ExactSum*>self.picked(picks[row])
                if state.count == 0:
                    put_null(out, row)
                elif self.result(state, result) < 0:
                    put_null(out, row)
                    overflows += 1 if picks[row] >= 0 else -1
                elif self.is_bigint:
                    put_int64(out, row, low_int64(result))
                else:
                    put_wide(out, row, result)
        self.count_overflow(overflows)
        return out.finish_column()

    def state_columns(self, const int32_t[::1] picks):
        """Sum as NUMERIC of 38 digits, and count; for wide sums also the digits above those 38, as BIGINT."""
        cdef Py_ssize_t row, rows = picks.shape[0]
        cdef list columns = [new_column(kind, rows) for kind in self.state_types]
        cdef ColumnBuilder sums = columns[0], counts = columns[1]
        cdef ColumnBuilder above = columns[2] if self.has_above else None
        cdef ExactSum* state
        cdef int64_t low[2]
        cdef int64_t more = 0
        cdef bint is_wide = self.is_wide()
        check_picks(self, picks)
        with nogil:
            for row in range(rows):
                state = <ExactSum*>self.picked(picks[row])
                put_int64(counts, row, state.count)
                if self.has_above:
                    split_wide(state.sum, state.high if is_wide else sign_of(state.sum), low, &more)
                    put_wide(sums, row, low)
                    put_int64(above, row, more)
                else:
                    put_wide(sums, row, state.sum)
        return [(<ColumnBuilder>column).finish_column() for column in columns]

    cdef bint same_output(self, const void* a, const void* b) noexcept nogil:
        cdef const ExactSum* x = <const ExactSum*>a
        cdef const ExactSum* y = <const ExactSum*>b
        cdef int64_t left[2]
        cdef int64_t right[2]
        cdef int x_fault, y_fault
        if x.count == 0 or y.count == 0:
            return x.count == y.count
        if not self.is_average and not self.has_above and not self.is_bigint:
            return x.sum[0] == y.sum[0] and x.sum[1] == y.sum[1]
        x_fault, y_fault = self.result(x, left), self.result(y, right)
        if x_fault < 0 or y_fault < 0:
            return x_fault == y_fault
        return left[0] == right[0] and left[1] == right[1]

    cdef int result(self, const ExactSum* state, int64_t* out) noexcept nogil:
        """The result of a group with rows, 16 bytes; -1 if it does not fit its type."""
        cdef bint is_high = self.is_wide() and not is_narrow(state.sum, state.high)
        if self.is_average:
            if is_high:
                if wide_average(state.sum, state.high, state.count, self.more_digits, out) < 0:
                    return -1
            elif average(state.sum, state.count, self.more_digits, out) < 0:
                return -1
        elif is_high:
            return -1
        else:
            out[0], out[1] = state.sum[0], state.sum[1]
        if self.is_bigint:
            return 0 if fits_int64(out) else -1
        return 0 if lies_within(out, self.limit) else -1

    cdef int begin(self, Py_ssize_t rows, Column argument, mask) except -1:
        AggKernel.begin(self, rows, argument, mask)
        if self.has_above and self.wanted < <Py_ssize_t>sizeof(ExactSum) and rows:
            self.extend_reach(reach_of(self.view.values, rows))
        return 0

    cdef void extend_reach(self, uint64_t more) noexcept:
        self.reach += more
        if self.reach >= REACH:
            self.wanted = sizeof(ExactSum)

    cdef void widen(self, uint8_t* state) noexcept nogil:
        (<ExactSum*>state).high = sign_of((<ExactSum*>state).sum)

    cdef int expect(self, Py_ssize_t rows, list columns) except -1:
        cdef Column sums = columns[0], above
        cdef Py_ssize_t row
        if not self.has_above or self.wanted == sizeof(ExactSum) or rows == 0:
            return 0
        above = columns[2]
        self.extend_reach(reach_of(sums.view.values, rows))
        for row in range(rows):
            if int64_at(above, row) != 0:
                self.extend_reach(REACH)
                break
        return 0

    cdef int add(self, const int32_t* ids, const int8_t* weights, Py_ssize_t first, Py_ssize_t rows) except -1 nogil:
        cdef uint8_t* states = <uint8_t*>self.state(0)
        cdef Py_ssize_t width = self.states.width
        cdef const uint8_t* values = self.view.values
        if self.view.kind == BIGINT:
            add_integers(states, width, ids, weights, <const int64_t*>values + first, rows)
        elif self.view.kind == INT:
            add_integers(states, width, ids, weights, <const int32_t*>values + first, rows)
        elif self.view.kind == SMALLINT:
            add_integers(states, width, ids, weights, <const int16_t*>values + first, rows)
        else:
            add_numerics(states, width, ids, weights, values + 16 * first, rows, self.is_wide())
        return 0

    cdef int read_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows,
                         list columns) except -1:
        """A wide sum stored before the column of digits above its 38 existed has none there."""
        cdef Column sums = columns[0], counts = columns[1], above = columns[2] if self.has_above else None
        cdef ExactSum* state
        cdef const uint8_t* value
        cdef Py_ssize_t row
        cdef bint is_wide = self.is_wide()
        with nogil:
            for row in range(rows):
                if (found == NULL or found[row]) and not is_null(&sums.view, row):
                    state = <ExactSum*>self.state(ids[row])
                    value = sums.view.values + 16 * row
                    state.count = int64_at(counts, row)
                    if is_wide:
                        join_wide(value, int64_at(above, row), state.sum, &state.high)
                    else:
                        memcpy(state.sum, value, 16)
        return 0

    cdef void combine(self, void* into, const void* other, int sign) noexcept nogil:
        cdef ExactSum* state = <ExactSum*>into
        cdef const ExactSum* more = <const ExactSum*>other
        state.count += sign * more.count
        if self.is_wide():
            add_192(state.sum, &state.high, more.sum, more.high, sign)
        else:
            add_int128(state.sum, more.sum, sign)

    cdef int merge_states(self, const int32_t* ids, Py_ssize_t rows, list columns) except -1:
        cdef Column sums = columns[0], counts = columns[1], above = columns[2] if self.has_above else None
        cdef ExactSum* state
        cdef const uint8_t* value
        cdef int64_t low[2]
        cdef int64_t high = 0
        cdef Py_ssize_t row
        cdef bint is_wide = self.is_wide()
        with nogil:
            for row in range(rows):
                if is_null(&sums.view, row):
                    continue
                state = <ExactSum*>self.state(ids[row])
                value = sums.view.values + 16 * row
                state.count += int64_at(counts, row)
                if is_wide:
                    join_wide(value, int64_at(above, row), low, &high)
                    add_wide(state.sum, &state.high, <const uint8_t*>low, 1)
                    state.high += high - sign_of(low)
                else:
                    add_int128(state.sum, value, 1)
        return 0

    cdef inline bint is_wide(self) noexcept nogil:
        """Whether sums have 192 bits, which they get as soon as one could exceed 128."""
        return self.width == sizeof(ExactSum)
