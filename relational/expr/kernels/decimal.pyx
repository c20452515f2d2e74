"""Column kernels that Arrow lacks: NUMERIC arithmetic whose intermediate results outgrow 38 digits.

Arrow rejects such operations by their types alone, whatever the values. Here the caller chooses the result type, at any
scales; each row is computed exactly (256-bit intermediates where 128 do not suffice) and rounded half away from zero
once, and an overflowing row is marked in a fault column instead of failing the batch. NULL rows compute on unspecified
bytes; the caller masks them.
"""

from libc.stdint cimport int8_t, uint8_t, uintptr_t
from libc.string cimport memcpy

cimport cython

import numpy as np

from relational.expr.kernels.int256 cimport (
    CHUNK, Wide, add, compare, divide, divided, int128_t, product, subtract, times, uint128_t,
)

ADD, SUBTRACT, MULTIPLY, DIVIDE, MODULO = range(5)

cdef enum:
    MAX_DIGITS = 38

cdef int128_t POWERS[39]
cdef uint128_t SMALL_POWERS[20]       # those below 2^64


cdef void fill_powers() noexcept nogil:
    cdef int digit
    POWERS[0] = SMALL_POWERS[0] = 1
    for digit in range(1, 39):
        POWERS[digit] = POWERS[digit - 1] * 10
    for digit in range(1, CHUNK + 1):
        SMALL_POWERS[digit] = SMALL_POWERS[digit - 1] * 10


fill_powers()


cdef inline uint128_t magnitude(int128_t value) noexcept nogil:
    return <uint128_t>0 - <uint128_t>value if value < 0 else <uint128_t>value


cdef inline int128_t signed(uint128_t value, bint negative) noexcept nogil:
    return <int128_t>(<uint128_t>0 - value) if negative else <int128_t>value


cdef int scale_up(int128_t value, int digits, int128_t* out) noexcept nogil:
    cdef Wide x
    if digits == 0:
        out[0] = value
        return NO_FAULT
    x = product(magnitude(value), <uint128_t>POWERS[digits])
    if x.high != 0 or (x.low >> 127) != 0:
        return OVERFLOW
    out[0] = signed(x.low, value < 0)
    return NO_FAULT


cdef int raise_wide(Wide* x, int digits) noexcept nogil:
    cdef int step
    while digits > 0:
        step = min(digits, <int>CHUNK)
        if times(x, SMALL_POWERS[step]):
            return OVERFLOW
        digits -= step
    return NO_FAULT


@cython.cdivision(True)
cdef void lower_wide(Wide* x, int digits) noexcept nogil:
    """Bits truncated before the last 19 digits do not affect the rounding."""
    cdef Wide one
    while digits > CHUNK:
        divided(x, SMALL_POWERS[CHUNK])
        digits -= CHUNK
    if digits > 0 and divided(x, SMALL_POWERS[digits]) >= SMALL_POWERS[digits] / 2:
        one.high, one.low = 0, 1
        add(x, one)


@cython.cdivision(True)
cdef inline int finish_narrow(
    uint128_t x, uint128_t divisor, bint negative, int128_t bound, int128_t* out
) noexcept nogil:
    """x / divisor, half away from zero, as a signed value."""
    cdef uint128_t quotient = x / divisor
    cdef uint128_t rest = x - quotient * divisor
    quotient += rest >= divisor - rest
    if quotient >= <uint128_t>bound:
        return OVERFLOW
    out[0] = signed(quotient, negative)
    return NO_FAULT


cdef int finish_scaled(Wide x, bint negative, int digits, int128_t bound, int128_t* out) noexcept nogil:
    if digits > 0:
        lower_wide(&x, digits)
    elif raise_wide(&x, -digits) != NO_FAULT:
        return OVERFLOW
    return finish(x, negative, 0, bound, out)


cdef inline int finish(Wide x, bint negative, int digits, int128_t bound, int128_t* out) noexcept nogil:
    """An exact result without its last `digits` digits (negative: with more digits), as a signed value."""
    if digits != 0:
        return finish_scaled(x, negative, digits, bound, out)
    if x.high != 0 or x.low >= <uint128_t>bound:
        return OVERFLOW
    out[0] = signed(x.low, negative)
    return NO_FAULT


@cython.cdivision(True)
cdef int combine_wide(const Operation* how, int128_t a, int128_t b, int128_t* out) noexcept nogil:
    """+, - or % of one row in 256 bits."""
    cdef Wide x = product(magnitude(a), <uint128_t>POWERS[how.up_a])
    cdef Wide y = product(magnitude(b), <uint128_t>POWERS[how.up_b])
    cdef Wide quotient, rest
    cdef bint negative = a < 0
    if how.kind == 4:
        divide(x, y, &quotient, &rest)
        return finish(rest, negative, how.digits, how.bound, out)
    if negative == ((b < 0) != (how.kind == 1)):
        add(&x, y)
    elif compare(x, y) >= 0:
        subtract(&x, y)
    else:
        subtract(&y, x)
        x, negative = y, not negative
    return finish(x, negative, how.digits, how.bound, out)


@cython.cdivision(True)
cdef int quotient_of(const Operation* how, int128_t a, int128_t b, int128_t* out) noexcept nogil:
    """a / b at the scale of the result. A dividend beyond 256 bits has a quotient beyond 38 digits."""
    cdef Wide x, y, quotient, rest
    cdef bint negative = (a < 0) != (b < 0)
    y.high, y.low = 0, magnitude(b)
    x = product(magnitude(a), <uint128_t>POWERS[min(max(-how.digits, 0), <int>MAX_DIGITS)])
    if x.high == 0 and -<int>MAX_DIGITS <= how.digits <= 0:
        return finish_narrow(x.low, y.low, negative, how.bound, out)
    if raise_wide(&x, -how.digits - MAX_DIGITS) != NO_FAULT or raise_wide(&y, how.digits) != NO_FAULT:
        return OVERFLOW
    divide(x, y, &quotient, &rest)
    subtract(&y, rest)
    if compare(rest, y) >= 0:
        x.high, x.low = 0, 1
        add(&quotient, x)
    return finish(quotient, negative, 0, how.bound, out)


@cython.cdivision(True)
cdef inline int combine(const Operation* how, int128_t a, int128_t b, int128_t* out) noexcept nogil:
    """One row."""
    cdef int128_t x, y, z
    cdef Wide wide
    if how.kind == 2:
        wide = product(magnitude(a), magnitude(b))
        if wide.high == 0 and 0 < how.digits <= <int>MAX_DIGITS:
            return finish_narrow(wide.low, <uint128_t>POWERS[how.digits], (a < 0) != (b < 0), how.bound, out)
        return finish(wide, (a < 0) != (b < 0), how.digits, how.bound, out)
    if how.kind >= 3 and b == 0:
        return DIVISION_BY_ZERO
    if how.kind == 3:
        return quotient_of(how, a, b, out)
    if how.digits != 0 or scale_up(a, how.up_a, &x) != NO_FAULT or scale_up(b, how.up_b, &y) != NO_FAULT:
        return combine_wide(how, a, b, out)
    if how.kind == 4:
        z = x % y
    else:
        z = signed(<uint128_t>x + <uint128_t>y if how.kind == 0 else <uint128_t>x - <uint128_t>y, False)
        if (x >= 0) == ((y >= 0) != (how.kind == 1)) and (z >= 0) != (x >= 0):
            return OVERFLOW
    if z >= how.bound or z <= -how.bound:
        return OVERFLOW
    out[0] = z
    return NO_FAULT


cdef const uint8_t* values_of(array) except NULL:
    """The first unscaled value of a decimal128 array; borrowed, REQUIRES that the array stays alive."""
    cdef uintptr_t address = array.buffers()[1].address
    return <const uint8_t*>address + <Py_ssize_t>array.offset * 16


def decimal_arithmetic(int operation, a, b, Py_ssize_t rows, int scale_a, int scale_b, int precision, int scale):
    """Unscaled results int128[rows] as uint8[16 * rows], and the fault of each row uint8[rows].

    `a` and `b` are decimal128 arrays of `rows` rows, or of one row that is broadcast, at any scales from 0 to 38. The
    result has `precision` digits, `scale` of them after the point.
    """
    cdef const uint8_t* left = values_of(a)
    cdef const uint8_t* right = values_of(b)
    cdef Py_ssize_t step_a = 16 if len(a) == rows else 0, step_b = 16 if len(b) == rows else 0
    cdef int common = max(scale_a, scale_b)
    cdef Operation how
    results = np.zeros(rows * 16, np.uint8)
    faults = np.zeros(rows, np.uint8)
    cdef uint8_t[::1] out = results
    cdef uint8_t[::1] fault = faults
    cdef int128_t x, y, z
    cdef Py_ssize_t row
    if rows == 0:
        return results, faults
    if min(scale_a, scale_b, scale) < 0 or max(common, scale, precision) > MAX_DIGITS:
        raise ValueError(f"decimals of scales {scale_a} and {scale_b} as {precision} digits of scale {scale}")
    how.kind, how.up_a, how.up_b, how.bound = operation, common - scale_a, common - scale_b, POWERS[precision]
    how.digits = scale_a + scale_b if operation == 2 else scale_a - scale_b if operation == 3 else common
    how.digits -= scale
    with nogil:
        for row in range(rows):
            memcpy(&x, left + row * step_a, 16)
            memcpy(&y, right + row * step_b, 16)
            fault[row] = combine(&how, x, y, &z)
            if fault[row] == NO_FAULT:
                memcpy(&out[row * 16], &z, 16)
    return results, faults


def decimal_rescale(a, int scale_from, int precision, int scale):
    """`a` at another scale, half away from zero: int128[rows] as uint8[16 * rows], and faults uint8[rows]."""
    cdef Py_ssize_t rows = len(a), row
    cdef const uint8_t* values = values_of(a)
    results = np.zeros(rows * 16, np.uint8)
    faults = np.zeros(rows, np.uint8)
    cdef uint8_t[::1] out = results
    cdef uint8_t[::1] fault = faults
    cdef int128_t x, z, bound = POWERS[precision]
    cdef Wide wide
    cdef int digits = scale_from - scale
    if rows == 0:
        return results, faults
    wide.high = 0
    with nogil:
        for row in range(rows):
            memcpy(&x, values + row * 16, 16)
            wide.low = magnitude(x)
            if digits > 0:
                fault[row] = finish_narrow(wide.low, <uint128_t>POWERS[digits], x < 0, bound, &z)
            else:
                fault[row] = finish(wide, x < 0, digits, bound, &z)
            if fault[row] == NO_FAULT:
                memcpy(&out[row * 16], &z, 16)
    return results, faults


def decimal_compare(a, b, Py_ssize_t rows, int scale_a, int scale_b):
    """-1, 0 or 1 for each row as int8[rows], at any two scales; a side of one row is broadcast."""
    cdef const uint8_t* left = values_of(a)
    cdef const uint8_t* right = values_of(b)
    cdef Py_ssize_t step_a = 16 if len(a) == rows else 0, step_b = 16 if len(b) == rows else 0, row
    cdef int up_a = max(scale_b - scale_a, 0), up_b = max(scale_a - scale_b, 0)
    signs = np.empty(rows, np.int8)
    cdef int8_t[::1] sign = signs
    cdef int128_t x, y
    if rows == 0:
        return signs
    with nogil:
        for row in range(rows):
            memcpy(&x, left + row * step_a, 16)
            memcpy(&y, right + row * step_b, 16)
            if scale_up(x, up_a, &x) != NO_FAULT:
                sign[row] = 1 if x > 0 else -1
            elif scale_up(y, up_b, &y) != NO_FAULT:
                sign[row] = -1 if y > 0 else 1
            else:
                sign[row] = (x > y) - (x < y)
    return signs
