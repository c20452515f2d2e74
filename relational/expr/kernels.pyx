"""Column kernels that Arrow lacks: NUMERIC arithmetic whose intermediate results outgrow 38 digits.

Arrow refuses such operations by their types alone, whatever the values. Here the result type is the caller's, each row
is computed exactly (256-bit intermediates) and rounded half away from zero, and a row that does not fit is marked in a
fault column instead of failing the batch. NULL rows compute on whatever bytes lie there; the caller masks them.
"""

from libc.stdint cimport int8_t, int64_t, uint8_t, uint64_t, uintptr_t
from libc.string cimport memcpy

cimport cython

import numpy as np

ADD, SUBTRACT, MULTIPLY, DIVIDE, MODULO = range(5)

cdef int MAX_DIGITS = 38
cdef int128_t POWERS[39]


cdef void fill_powers() noexcept nogil:
    cdef int digit
    POWERS[0] = 1
    for digit in range(1, 39):
        POWERS[digit] = POWERS[digit - 1] * 10


fill_powers()


cdef inline uint128_t magnitude(int128_t value) noexcept nogil:
    return <uint128_t>0 - <uint128_t>value if value < 0 else <uint128_t>value


cdef inline int128_t signed(uint128_t value, bint negative) noexcept nogil:
    return <int128_t>(<uint128_t>0 - value) if negative else <int128_t>value


cdef inline void multiply_wide(uint128_t a, uint128_t b, uint128_t* high, uint128_t* low) noexcept nogil:
    """The 256-bit product, by four products of 64-bit halves."""
    cdef uint128_t a_low = <uint64_t>a, a_high = a >> 64
    cdef uint128_t b_low = <uint64_t>b, b_high = b >> 64
    cdef uint128_t bottom = a_low * b_low
    cdef uint128_t left = a_high * b_low
    cdef uint128_t right = a_low * b_high
    cdef uint128_t middle = (bottom >> 64) + <uint64_t>left + <uint64_t>right
    low[0] = (middle << 64) | <uint64_t>bottom
    high[0] = a_high * b_high + (left >> 64) + (right >> 64) + (middle >> 64)


@cython.cdivision(True)
cdef inline int divide_rounded(
    uint128_t high, uint128_t low, uint128_t divisor, uint128_t* out
) noexcept nogil:
    """(high, low) / divisor, half away from zero; overflow where the quotient exceeds 128 bits."""
    cdef uint128_t quotient, remainder
    cdef int bit
    cdef bint carry
    if high >= divisor:
        return OVERFLOW
    if high == 0:
        quotient = low / divisor
        remainder = low % divisor
    else:
        quotient = 0
        remainder = high
        for bit in range(127, -1, -1):
            carry = <int>(remainder >> 127)
            remainder = (remainder << 1) | ((low >> bit) & 1)
            quotient <<= 1
            if carry or remainder >= divisor:
                remainder -= divisor
                quotient |= 1
    if remainder >= divisor - remainder:
        quotient += 1
    out[0] = quotient
    return NO_FAULT


cdef int scale_up(int128_t value, int digits, int128_t* out) noexcept nogil:
    cdef uint128_t high, low
    multiply_wide(magnitude(value), <uint128_t>POWERS[digits], &high, &low)
    if high != 0 or (low >> 127) != 0:
        return OVERFLOW
    out[0] = signed(low, value < 0)
    return NO_FAULT


@cython.cdivision(True)
cdef int scale_down(int128_t value, int digits, int128_t* out) noexcept nogil:
    cdef uint128_t divisor = <uint128_t>POWERS[digits]
    cdef uint128_t size = magnitude(value)
    cdef uint128_t quotient = size / divisor
    if digits > 0 and size % divisor >= divisor / 2:
        quotient += 1
    out[0] = signed(quotient, value < 0)
    return NO_FAULT


cdef int multiply(int128_t a, int128_t b, int digits, int128_t* out) noexcept nogil:
    cdef uint128_t high, low, quotient
    multiply_wide(magnitude(a), magnitude(b), &high, &low)
    if digits == 0:
        if high != 0:
            return OVERFLOW
        quotient = low
    elif divide_rounded(high, low, <uint128_t>POWERS[digits], &quotient) != NO_FAULT:
        return OVERFLOW
    if (quotient >> 127) != 0:
        return OVERFLOW
    out[0] = signed(quotient, (a < 0) != (b < 0))
    return NO_FAULT


cdef int divide(int128_t a, int128_t b, int digits, int128_t* out) noexcept nogil:
    cdef uint128_t high, low, quotient
    if b == 0:
        return DIVISION_BY_ZERO
    multiply_wide(magnitude(a), <uint128_t>POWERS[digits], &high, &low)
    if divide_rounded(high, low, magnitude(b), &quotient) != NO_FAULT or (quotient >> 127) != 0:
        return OVERFLOW
    out[0] = signed(quotient, (a < 0) != (b < 0))
    return NO_FAULT


@cython.cdivision(True)
cdef inline int combine(
    int operation, int128_t a, int128_t b, int up_a, int up_b, int digits, int128_t* out
) noexcept nogil:
    """One row: for +, - and % both sides are first brought to one scale."""
    if operation == 2:
        return multiply(a, b, digits, out)
    if operation == 3:
        return divide(a, b, digits, out)
    if operation == 4 and b == 0:
        return DIVISION_BY_ZERO
    if scale_up(a, up_a, &a) != NO_FAULT or scale_up(b, up_b, &b) != NO_FAULT:
        return OVERFLOW
    if operation == 4:
        out[0] = a % b
        return NO_FAULT
    out[0] = signed(
        <uint128_t>a + <uint128_t>b if operation == 0 else <uint128_t>a - <uint128_t>b, False
    )
    if operation == 0:
        return OVERFLOW if (a >= 0) == (b >= 0) and (out[0] >= 0) != (a >= 0) else NO_FAULT
    return OVERFLOW if (a >= 0) != (b >= 0) and (out[0] >= 0) != (a >= 0) else NO_FAULT


cdef const uint8_t* values_of(array) except NULL:
    """The first unscaled value of a decimal128 array; borrowed, REQUIRES the array alive."""
    cdef uintptr_t address = array.buffers()[1].address
    return <const uint8_t*>address + <Py_ssize_t>array.offset * 16


def decimal_arithmetic(int operation, a, b, Py_ssize_t rows, int scale_a, int scale_b, int precision, int scale):
    """Unscaled results int128[rows] as uint8[16 * rows], and the fault of each row uint8[rows].

    `a` and `b` are decimal128 arrays of `rows` rows, or of one row that stands for all. `scale` of the result is
    max(scale_a, scale_b) for +, -, %, at most their sum for *, and for / it satisfies
    0 <= scale - scale_a + scale_b <= 38.
    """
    cdef const uint8_t* left = values_of(a)
    cdef const uint8_t* right = values_of(b)
    cdef Py_ssize_t step_a = 16 if len(a) == rows else 0, step_b = 16 if len(b) == rows else 0
    cdef int up_a = max(scale - scale_a, 0), up_b = max(scale - scale_b, 0)
    cdef int digits = scale_a + scale_b - scale if operation == 2 else scale - scale_a + scale_b
    results = np.zeros(rows * 16, np.uint8)
    faults = np.zeros(rows, np.uint8)
    cdef uint8_t[::1] out = results
    cdef uint8_t[::1] fault = faults
    cdef int128_t x, y, z, bound = POWERS[precision]
    cdef Py_ssize_t row
    cdef int outcome
    if rows == 0:
        return results, faults
    if digits < 0 or digits > MAX_DIGITS:
        raise ValueError(f"decimal operation over {digits} digits of scale")
    with nogil:
        for row in range(rows):
            memcpy(&x, left + row * step_a, 16)
            memcpy(&y, right + row * step_b, 16)
            outcome = combine(operation, x, y, up_a, up_b, digits, &z)
            if outcome == NO_FAULT and (z >= bound or z <= -bound):
                outcome = OVERFLOW
            fault[row] = outcome
            if outcome == NO_FAULT:
                memcpy(&out[row * 16], &z, 16)
    return results, faults


def decimal_rescale(a, int scale_from, int precision, int scale):
    """`a` at another scale, half away from zero: int128[rows] as uint8[16 * rows], and faults uint8[rows]."""
    cdef Py_ssize_t rows = len(a), row
    cdef const uint8_t* values = values_of(a)
    cdef int up = scale - scale_from
    results = np.zeros(rows * 16, np.uint8)
    faults = np.zeros(rows, np.uint8)
    cdef uint8_t[::1] out = results
    cdef uint8_t[::1] fault = faults
    cdef int128_t x, z, bound = POWERS[precision]
    cdef int outcome
    if rows == 0:
        return results, faults
    with nogil:
        for row in range(rows):
            memcpy(&x, values + row * 16, 16)
            outcome = scale_up(x, up, &z) if up >= 0 else scale_down(x, -up, &z)
            if outcome == NO_FAULT and (z >= bound or z <= -bound):
                outcome = OVERFLOW
            fault[row] = outcome
            if outcome == NO_FAULT:
                memcpy(&out[row * 16], &z, 16)
    return results, faults


def decimal_compare(a, b, Py_ssize_t rows, int scale_a, int scale_b):
    """-1, 0 or 1 for each row as int8[rows], at any two scales; a side of one row stands for all rows."""
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
