"""Conversion of texts to numbers and bytes, and of bytes to text; each result depends on its own row alone.

ASCII blanks around a number are ignored. Each function returns the values and uint8[rows] of faults: 0, OVERFLOW,
INVALID, or for a float WORD or UNDECIDED. For a fault or a NULL the value is 0. No cdef function here raises.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

import numpy as np

from relational.chunk.column cimport Column, ColumnView, is_null
from relational.chunk.nearest_float cimport (
    double_of_bits, double_of_short, infinite_bits, is_short, nearest_bits,
)
from relational.expr.kernels.decimal cimport NO_FAULT, OVERFLOW

cdef extern from *:
    """
    typedef __int128 hummock_int128;
    typedef unsigned __int128 hummock_uint128;
    """
    ctypedef long long int128_t "hummock_int128"             # Cython sees 64 bits, C computes with 128
    ctypedef unsigned long long uint128_t "hummock_uint128"

cdef enum:
    INVALID = 3                         # extends Fault of kernels.pxd: the text is not of the type
    WORD = 4                            # a float written as a word: inf, infinity, nan
    UNDECIDED = 5                       # a float that its first 19 digits do not decide

FAULT_OVERFLOW, FAULT_INVALID, FAULT_WORD, FAULT_UNDECIDED = OVERFLOW, INVALID, WORD, UNDECIDED

cdef int64_t MOST_EXPONENT = 1 << 40    # beyond it only 0 has a value, whatever the number of digits
cdef int64_t MOST_BYTES = (1 << 31) - 1
cdef const uint8_t* HEX = b"0123456789abcdef"
cdef uint128_t BOUNDS[39]


cdef void fill_bounds() noexcept nogil:
    cdef int digit
    BOUNDS[0] = 1
    for digit in range(1, 39):
        BOUNDS[digit] = BOUNDS[digit - 1] * 10


fill_bounds()


cdef inline bint is_blank(uint8_t byte) noexcept nogil:
    return byte == 32 or 9 <= byte <= 13


cdef inline bint is_digit(uint8_t byte) noexcept nogil:
    return 48 <= byte <= 57


cdef inline bint is_letter(uint8_t byte, uint8_t lower) noexcept nogil:
    return (byte | 32) == lower


cdef inline void trim(const uint8_t** text, Py_ssize_t* size) noexcept nogil:
    while size[0] > 0 and is_blank(text[0][0]):
        text[0] += 1
        size[0] -= 1
    while size[0] > 0 and is_blank(text[0][size[0] - 1]):
        size[0] -= 1


cdef inline bint read_sign(const uint8_t** text, Py_ssize_t* size) noexcept nogil:
    """Consumes a sign; returns whether it was a minus."""
    cdef uint8_t first = text[0][0] if size[0] > 0 else 0
    if first == 45 or first == 43:
        text[0] += 1
        size[0] -= 1
    return first == 45


cdef int integer_of(const uint8_t* text, Py_ssize_t size, int64_t low, int64_t high, int64_t* out) noexcept nogil:
    """`[+-]?[0-9]+` within [low, high], low < 0 < high; else OVERFLOW or INVALID."""
    cdef uint64_t value = 0, limit
    cdef Py_ssize_t at
    cdef bint negative, is_above = False
    trim(&text, &size)
    negative = read_sign(&text, &size)
    limit = <uint64_t>0 - <uint64_t>low if negative else <uint64_t>high
    if size == 0:
        return INVALID
    for at in range(size):
        if not is_digit(text[at]):
            return INVALID
        if value > limit // 10:
            is_above = True
        elif not is_above:
            value = value * 10 + (text[at] - 48)
    if is_above or value > limit:
        return OVERFLOW
    out[0] = <int64_t>(<uint64_t>0 - value if negative else value)
    return NO_FAULT


cdef struct Digits:
    const uint8_t* first                # digits with at most one point among them
    Py_ssize_t size
    Py_ssize_t whole                    # digits before the point
    int64_t exponent


cdef int digits_of(const uint8_t* text, Py_ssize_t size, Digits* out) noexcept nogil:
    """Parses digits, a point and an exponent, without a sign; else INVALID."""
    cdef Py_ssize_t at = 0, digits = 0
    cdef int64_t exponent = 0
    cdef bint has_point = False, negative
    out.whole = 0
    while at < size and (is_digit(text[at]) or (text[at] == 46 and not has_point)):
        if text[at] == 46:
            has_point = True
        else:
            digits += 1
            out.whole += not has_point
        at += 1
    if digits == 0:
        return INVALID
    out.first, out.size, out.exponent = text, at, 0
    if at == size:
        return NO_FAULT
    if not is_letter(text[at], 101):
        return INVALID
    text += at + 1
    size -= at + 1
    negative = read_sign(&text, &size)
    if size == 0:
        return INVALID
    for at in range(size):
        if not is_digit(text[at]):
            return INVALID
        exponent = min(exponent * 10 + (text[at] - 48), MOST_EXPONENT)
    out.exponent = -exponent if negative else exponent
    return NO_FAULT


cdef int decimal_of(const uint8_t* text, Py_ssize_t size, int precision, int scale, int128_t* out) noexcept nogil:
    """Parses digits with a point and an exponent to the unscaled value, half away from zero; else OVERFLOW or INVALID.
    """
    cdef Digits digits
    cdef uint128_t value = 0
    cdef int64_t weight                 # the power of ten of a digit in the unscaled value
    cdef Py_ssize_t at
    cdef bint negative
    trim(&text, &size)
    negative = read_sign(&text, &size)
    if digits_of(text, size, &digits) != NO_FAULT:
        return INVALID
    weight = digits.whole + digits.exponent + scale
    for at in range(digits.size):
        if digits.first[at] == 46:
            continue
        weight -= 1
        if weight < 0:
            value += weight == -1 and digits.first[at] >= 53
            break
        if value >= BOUNDS[37]:         # one more digit would be the 39th, and soon overflow 128 bits
            return OVERFLOW
        value = value * 10 + (digits.first[at] - 48)
    while weight > 0 and value != 0:
        if value >= BOUNDS[37]:
            return OVERFLOW
        value *= 10
        weight -= 1
    if value >= BOUNDS[precision]:
        return OVERFLOW
    out[0] = <int128_t>(<uint128_t>0 - value if negative else value)
    return NO_FAULT


cdef bint is_word(const uint8_t* text, Py_ssize_t size, const char* word, Py_ssize_t letters) noexcept nogil:
    cdef Py_ssize_t at
    if size != letters:
        return False
    for at in range(size):
        if not is_letter(text[at], <uint8_t>word[at]):
            return False
    return True


cdef bint is_float_word(const uint8_t* text, Py_ssize_t size) noexcept nogil:
    return is_word(text, size, "inf", 3) or is_word(text, size, "infinity", 8) or is_word(text, size, "nan", 3)


cdef struct Float:
    uint64_t digits                     # the first 19 significant ones
    int64_t power                       # of ten, of the last of them
    bint is_cut                         # the remaining ones are not all 0


cdef bint short_float(const uint8_t* text, Py_ssize_t size, Float* out) noexcept nogil:
    """Fast path: at most 19 digits with an optional point and nothing else, in one pass."""
    cdef const uint8_t* at = text
    cdef const uint8_t* stop = text + size
    cdef const uint8_t* point
    cdef uint64_t digits = 0
    if size > 20:
        return False
    while at < stop and is_digit(at[0]):
        digits = digits * 10 + (at[0] - 48)
        at += 1
    out.power = 0
    if at < stop and at[0] == 46:
        point = at
        at += 1
        while at < stop and is_digit(at[0]):
            digits = digits * 10 + (at[0] - 48)
            at += 1
        out.power = point + 1 - at
        size -= 1
    out.digits, out.is_cut = digits, False
    return at == stop and 0 < size <= 19


cdef int float_of(const uint8_t* text, Py_ssize_t size, Float* out) noexcept nogil:
    """Parses any digits, a point and an exponent, without a sign; else INVALID."""
    cdef Digits found
    cdef Py_ssize_t at, kept = 0
    if digits_of(text, size, &found) != NO_FAULT:
        return INVALID
    out.digits, out.power, out.is_cut = 0, found.whole + found.exponent, False
    for at in range(found.size):
        if found.first[at] == 46:
            continue
        if kept == 19:
            out.is_cut |= found.first[at] != 48
            continue
        out.power -= 1
        out.digits = out.digits * 10 + (found.first[at] - 48)
        kept += out.digits != 0
    return NO_FAULT


cdef int double_of(const uint8_t* text, Py_ssize_t size, double* out) noexcept nogil:
    """The nearest double, ties to even; else OVERFLOW, WORD, INVALID, or UNDECIDED for too many digits."""
    cdef Float found
    cdef uint64_t bits = 0
    cdef bint negative
    trim(&text, &size)
    negative = read_sign(&text, &size)
    if not short_float(text, size, &found) and float_of(text, size, &found) != NO_FAULT:
        return WORD if is_float_word(text, size) else INVALID
    if not found.is_cut and is_short(found.digits, found.power):
        out[0] = double_of_short(found.digits, found.power)
        if negative:
            out[0] = -out[0]
        return NO_FAULT
    if found.digits != 0:
        bits = nearest_bits(found.digits, found.power)
        if found.is_cut and bits != nearest_bits(found.digits + 1, found.power):
            return UNDECIDED
        if bits == infinite_bits():
            return OVERFLOW
    out[0] = double_of_bits(bits | <uint64_t>negative << 63)
    return NO_FAULT


def integers_of_text(Column texts, int64_t low, int64_t high):
    """(int64[rows], faults): parses a VARCHAR column as integers from `low` (< 0) to `high` (> 0)."""
    cdef const ColumnView* view = &texts.view
    cdef Py_ssize_t rows = view.rows, row
    values, faults = np.zeros(rows, np.int64), np.zeros(rows, np.uint8)
    cdef int64_t[::1] out = values
    cdef uint8_t[::1] fault = faults
    with nogil:
        for row in range(rows):
            if not is_null(view, row):
                fault[row] = integer_of(view.data + view.offsets[row], view.offsets[row + 1] - view.offsets[row],
                                        low, high, &out[row])
    return values, faults


def decimals_of_text(Column texts, int precision, int scale):
    """(unscaled int128[rows] as uint8[16 * rows], faults): parses a VARCHAR column as NUMERIC(precision, scale), half
    away from zero.
    """
    cdef const ColumnView* view = &texts.view
    cdef Py_ssize_t rows = view.rows, row
    values, faults = np.zeros(rows * 16, np.uint8), np.zeros(rows, np.uint8)
    cdef uint8_t[::1] out = values
    cdef uint8_t[::1] fault = faults
    cdef int128_t value
    with nogil:
        for row in range(rows):
            value = 0
            if not is_null(view, row):
                fault[row] = decimal_of(view.data + view.offsets[row], view.offsets[row + 1] - view.offsets[row],
                                        precision, scale, &value)
                memcpy(&out[row * 16], &value, 16)
    return values, faults


def doubles_of_text(Column texts):
    """(float64[rows], faults): parses a VARCHAR column as floats written in digits. The caller handles WORD and
    UNDECIDED.
    """
    cdef const ColumnView* view = &texts.view
    cdef Py_ssize_t rows = view.rows, row
    values, faults = np.zeros(rows, np.float64), np.zeros(rows, np.uint8)
    cdef double[::1] out = values
    cdef uint8_t[::1] fault = faults
    with nogil:
        for row in range(rows):
            if not is_null(view, row):
                fault[row] = double_of(view.data + view.offsets[row], view.offsets[row + 1] - view.offsets[row],
                                       &out[row])
    return values, faults


cdef inline int digit_of(uint8_t byte) noexcept nogil:
    """The value of a hexadecimal digit, -1 for another byte."""
    if is_digit(byte):
        return byte - 48
    return (byte | 32) - 87 if 97 <= (byte | 32) <= 102 else -1


cdef Py_ssize_t hexadecimal_bytes(const uint8_t* text, Py_ssize_t size, uint8_t* out) noexcept nogil:
    """The bytes of pairs of hexadecimal digits, with blanks between pairs; -1 for another text."""
    cdef Py_ssize_t at = 0, found = 0
    cdef int high, low
    while at < size:
        if text[at] == 32 or 9 <= text[at] <= 13:
            at += 1
            continue
        if at + 1 == size:
            return -1
        high, low = digit_of(text[at]), digit_of(text[at + 1])
        if high < 0 or low < 0:
            return -1
        out[found] = <uint8_t>(high << 4 | low)
        found += 1
        at += 2
    return found


cdef Py_ssize_t escaped_bytes(const uint8_t* text, Py_ssize_t size, uint8_t* out) noexcept nogil:
    """The bytes of a text itself, where a backslash precedes another one or three octal digits; -1 for another text."""
    cdef Py_ssize_t at = 0, found = 0
    while at < size:
        if text[at] != 92:
            out[found] = text[at]
            at += 1
        elif at + 1 < size and text[at + 1] == 92:
            out[found] = 92
            at += 2
        elif (at + 3 < size and 48 <= text[at + 1] <= 51 and 48 <= text[at + 2] <= 55 and 48 <= text[at + 3] <= 55):
            out[found] = <uint8_t>((text[at + 1] - 48) << 6 | (text[at + 2] - 48) << 3 | (text[at + 3] - 48))
            at += 4
        else:
            return -1
        found += 1
    return found


def bytes_of_text(Column texts):
    """(ends int32[rows + 1], bytes uint8[], faults) of texts in PostgreSQL's two forms: hexadecimal after `\\x`, else
    escaped."""
    cdef const ColumnView* view = &texts.view
    cdef Py_ssize_t rows = view.rows, row, size, found
    cdef int32_t end = 0
    cdef const uint8_t* text
    ends, faults = np.zeros(rows + 1, np.int32), np.zeros(rows, np.uint8)
    data = np.empty(view.offsets[rows] - view.offsets[0] + 1 if rows else 1, np.uint8)
    cdef int32_t[::1] into = ends
    cdef uint8_t[::1] fault = faults, out = data
    with nogil:
        for row in range(rows):
            text, size = view.data + view.offsets[row], view.offsets[row + 1] - view.offsets[row]
            if not is_null(view, row):
                if size >= 2 and text[0] == 92 and text[1] == 120:
                    found = hexadecimal_bytes(text + 2, size - 2, &out[end])
                else:
                    found = escaped_bytes(text, size, &out[end])
                if found < 0:
                    fault[row] = INVALID
                else:
                    end += <int32_t>found
            into[row + 1] = end
    return ends, data[:end], faults


def text_of_bytes(Column values):
    """(ends int32[rows + 1], text uint8[]) of `\\x` and two hexadecimal digits a byte; nothing of a NULL.
    OverflowError beyond 2 GiB.
    """
    cdef const ColumnView* view = &values.view
    cdef Py_ssize_t rows = view.rows, row, at, size
    cdef int64_t total = 2 * rows + 2 * (view.offsets[rows] - view.offsets[0] if rows else 0)
    cdef const uint8_t* value
    cdef int32_t end = 0
    if total > MOST_BYTES:
        raise OverflowError(f"{total} bytes of text in one column")
    ends, data = np.zeros(rows + 1, np.int32), np.empty(total + 1, np.uint8)
    cdef int32_t[::1] into = ends
    cdef uint8_t[::1] out = data
    with nogil:
        for row in range(rows):
            if not is_null(view, row):
                value, size = view.data + view.offsets[row], view.offsets[row + 1] - view.offsets[row]
                out[end], out[end + 1] = 92, 120
                end += 2
                for at in range(size):
                    out[end], out[end + 1] = HEX[value[at] >> 4], HEX[value[at] & 15]
                    end += 2
            into[row + 1] = end
    return ends, data[:end]
