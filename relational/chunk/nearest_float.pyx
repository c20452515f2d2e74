"""The float nearest to a decimal number, ties to even, and the conversion of a NUMERIC column by it.

The algorithm is that of Eisel and Lemire ("Number Parsing at a Gigabyte per Second", 2021): the product with 128 bits
of 5^power suffices for any 64 bits of digits. More digits are decided by the first 19 of them, where the number and
its upper neighbour of 19 digits have the same nearest double; the few others are left to Arrow's parser. Arrow's own
cast of a decimal multiplies by a power of ten, and misses the nearest double for a quarter of all with a fraction.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

import numpy as np
import pyarrow as pa

from relational.chunk.column cimport Column, ColumnView, is_null
from relational.chunk.scalar cimport int128_t, uint128_t

cdef extern from *:
    int leading_zeros "__builtin_clzll"(unsigned long long word) noexcept nogil

cdef enum:
    LEAST_POWER = -342                  # below it 19 digits are less than half of the least double
    MOST_POWER = 308                    # above it one digit exceeds the largest double

cdef uint64_t FIVES[2 * (MOST_POWER - LEAST_POWER + 1)]     # 128 bits of 5^q, the high half first
cdef double TENS[EXACT_POWER + 1]
cdef uint64_t LARGEST = <uint64_t>1_000_000_000_000_000_000 * 10 - 1        # of 19 digits

BELOW_REAL, HALF_OF_REAL = np.uint64((1 << 29) - 1), np.uint64(1 << 28)     # fraction bits of a double beyond REAL's
LEAST_REAL = 2.0**-126                                                      # the least with full precision


def fill_powers():
    """The first 128 bits of each power of five; rounded up where halfway cases need it, from 5^-27 to 5^-1."""
    for power in range(LEAST_POWER, MOST_POWER + 1):
        five = 5 ** abs(power)
        if power >= 0:
            bits = five << 128 >> five.bit_length()
        elif power >= -27:
            bits = (1 << five.bit_length() + 127) // five + 1
        else:
            bits = (1 << 2 * five.bit_length() + 128) // five + 1
            bits >>= bits.bit_length() - 128
        FIVES[2 * (power - LEAST_POWER)] = bits >> 64
        FIVES[2 * (power - LEAST_POWER) + 1] = bits & 0xFFFFFFFFFFFFFFFF
    for power in range(EXACT_POWER + 1):
        TENS[power] = 10.0 ** power


fill_powers()


cdef uint64_t nearest_bits(uint64_t digits, int64_t power) noexcept nogil:
    cdef int zeros, upper
    cdef uint128_t product, low
    cdef uint64_t high, rest, mantissa
    cdef int64_t exponent
    if power < LEAST_POWER:
        return 0
    if power > MOST_POWER:
        return infinite_bits()
    zeros = leading_zeros(digits)
    digits <<= zeros
    product = <uint128_t>digits * FIVES[2 * (power - LEAST_POWER)]
    if ((product >> 64) & 0x1FF) == 0x1FF:
        low = <uint128_t>digits * FIVES[2 * (power - LEAST_POWER) + 1]
        product += low >> 64
    high, rest = <uint64_t>(product >> 64), <uint64_t>product
    upper = <int>(high >> 63)
    mantissa = high >> (upper + 9)
    exponent = (((152170 + 65536) * power) >> 16) + 63 + upper - zeros + 1023
    if exponent <= 0:
        if 1 - exponent >= 64:
            return 0
        mantissa >>= 1 - exponent
        return (mantissa + (mantissa & 1)) >> 1     # a value rounded up to 2^52 has exponent 1
    if rest <= 1 and -4 <= power <= 23 and (mantissa & 3) == 1 and mantissa << (upper + 9) == high:
        mantissa -= 1                               # halfway: round down to even
    mantissa = (mantissa + (mantissa & 1)) >> 1
    if mantissa >= <uint64_t>1 << 53:
        mantissa = <uint64_t>1 << 52
        exponent += 1
    if exponent >= 0x7FF:
        return infinite_bits()
    return (mantissa & ((<uint64_t>1 << 52) - 1)) | <uint64_t>exponent << 52


cdef double double_of_short(uint64_t digits, int64_t power) noexcept nogil:
    if power < 0:
        return <double>digits / TENS[-power]
    return <double>digits * TENS[power]


cdef double double_of_decimal(int128_t unscaled, int scale, bint* is_open) noexcept nogil:
    """The double nearest to unscaled / 10^scale, or one next to it where the first 19 digits leave that open."""
    cdef bint negative = unscaled < 0
    cdef uint128_t digits = <uint128_t>0 - <uint128_t>unscaled if negative else <uint128_t>unscaled
    cdef uint128_t unit = 1
    cdef int64_t power = -scale
    cdef uint64_t first, bits
    cdef double value
    is_open[0] = False
    if digits == 0:
        return 0.0
    if (digits >> 53) == 0 and scale <= EXACT_POWER:
        value = double_of_short(<uint64_t>digits, power)
        return -value if negative else value
    while digits / unit > LARGEST:
        unit *= 10
        power += 1
    first = <uint64_t>(digits / unit)
    bits = nearest_bits(first, power)
    if unit > 1 and digits % unit != 0:
        is_open[0] = bits != nearest_bits(first + 1, power)
    return double_of_bits(bits | <uint64_t>negative << 63)


def rounded_to_real(doubles):
    """(float32[rows], bool[rows]): float64[rows], each the nearest to some number, as REAL; and where the REAL nearest
    to that number is open: the double is halfway between two, or subnormal as one, and may have been rounded to it.
    """
    with np.errstate(over="ignore"):
        values = doubles.astype(np.float32)
    is_open = (doubles.view(np.uint64) & BELOW_REAL) == HALF_OF_REAL
    return values, is_open | ((np.abs(doubles) < LEAST_REAL) & (doubles != 0))


def floats_of_decimals(array, arrow):
    """An array of decimal128 as `arrow`, float32 or float64: each value the nearest."""
    doubles, is_open = doubles_of_decimals(Column(array))
    values = doubles
    if arrow == pa.float32():
        values, is_between = rounded_to_real(doubles)
        is_open = is_open | is_between
    left = np.flatnonzero(is_open)
    if len(left):
        texts = array.take(pa.array(left)).cast(pa.string())
        values[left] = texts.cast(arrow).to_numpy(zero_copy_only=False)
    return pa.array(values, mask=None if array.null_count == 0 else array.is_null().to_numpy(zero_copy_only=False))


def doubles_of_decimals(Column decimals):
    """(float64[rows], bool[rows]): a NUMERIC column as doubles, and where a double next to the value may be nearer."""
    cdef const ColumnView* view = &decimals.view
    cdef Py_ssize_t rows = view.rows, row
    values, marks = np.zeros(rows, np.float64), np.zeros(rows, np.uint8)
    cdef double[::1] out = values
    cdef uint8_t[::1] mark = marks
    cdef int128_t unscaled
    cdef bint is_open
    with nogil:
        for row in range(rows):
            if not is_null(view, row):
                memcpy(&unscaled, view.values + row * 16, 16)
                out[row] = double_of_decimal(unscaled, view.scale, &is_open)
                mark[row] = is_open
    return values, marks.view(np.bool_)
