"""Texts as numbers and as bytes, and bytes as text: each row alone decides what becomes of it.

Blanks of ASCII around a number are left out. Each function gives what it read and uint8[rows] of faults: 0, OVERFLOW,
INVALID, or WORD for a float that is one. Where there is a fault, or NULL, the value is 0.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

import numpy as np

from relational.chunk.column cimport Column, ColumnView, is_null
from relational.expr.kernels cimport NO_FAULT, OVERFLOW, int128_t, uint128_t

FAULT_OVERFLOW, FAULT_INVALID, FAULT_WORD = OVERFLOW, INVALID, WORD

cdef int64_t MOST_EXPONENT = 1 << 40    # beyond it nothing but 0 has a value, whatever the number of digits
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


cdef inline bint take_sign(const uint8_t** text, Py_ssize_t* size) noexcept nogil:
    """Whether a minus was there; a sign is stepped over."""
    cdef uint8_t first = text[0][0] if size[0] > 0 else 0
    if first == 45 or first == 43:
        text[0] += 1
        size[0] -= 1
    return first == 45


cdef int integer_of(const uint8_t* text, Py_ssize_t size, int64_t low, int64_t high, int64_t* out) noexcept nogil:
    cdef uint64_t value = 0, limit
    cdef Py_ssize_t at
    cdef bint negative, is_above = False
    trim(&text, &size)
    negative = take_sign(&text, &size)
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
    """Digits, a point, an exponent, without a sign; else INVALID."""
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
    negative = take_sign(&text, &size)
    if size == 0:
        return INVALID
    for at in range(size):
        if not is_digit(text[at]):
            return INVALID
        exponent = min(exponent * 10 + (text[at] - 48), MOST_EXPONENT)
    out.exponent = -exponent if negative else exponent
    return NO_FAULT


cdef int decimal_of(const uint8_t* text, Py_ssize_t size, int precision, int scale, int128_t* out) noexcept nogil:
    cdef Digits digits
    cdef uint128_t value = 0
    cdef int64_t weight                 # the power of ten of a digit in the unscaled value
    cdef Py_ssize_t at
    cdef bint negative
    trim(&text, &size)
    negative = take_sign(&text, &size)
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
        if value >= BOUNDS[37]:         # a digit more would be the 39th, and soon too many for 128 bits
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


cdef int float_form(const uint8_t* text, Py_ssize_t size) noexcept nogil:
    cdef Digits digits
    trim(&text, &size)
    take_sign(&text, &size)
    if is_word(text, size, "inf", 3) or is_word(text, size, "infinity", 8) or is_word(text, size, "nan", 3):
        return WORD
    return digits_of(text, size, &digits)


def integers_of_text(Column texts, int64_t low, int64_t high):
    """(int64[rows], faults): the integers from `low` (< 0) to `high` (> 0) that a VARCHAR column writes."""
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
    """(unscaled int128[rows] as uint8[16 * rows], faults): the values of NUMERIC(precision, scale) that a VARCHAR
    column writes, half away from zero.
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


def float_forms(Column texts):
    """(whether a text has blanks around it, faults) of the floats that a VARCHAR column writes."""
    cdef const ColumnView* view = &texts.view
    cdef Py_ssize_t rows = view.rows, row, size
    cdef const uint8_t* text
    cdef bint has_blanks = False
    faults = np.zeros(rows, np.uint8)
    cdef uint8_t[::1] fault = faults
    with nogil:
        for row in range(rows):
            size = view.offsets[row + 1] - view.offsets[row]
            if size > 0 and not is_null(view, row):
                text = view.data + view.offsets[row]
                fault[row] = float_form(text, size)
                has_blanks |= is_blank(text[0]) or is_blank(text[size - 1])
            elif not is_null(view, row):
                fault[row] = INVALID
    return has_blanks, faults


cdef inline int digit_of(uint8_t byte) noexcept nogil:
    """The value of a hexadecimal digit, -1 for another byte."""
    if is_digit(byte):
        return byte - 48
    return (byte | 32) - 87 if 97 <= (byte | 32) <= 102 else -1


def bytes_of_text(Column texts):
    """(ends int32[rows + 1], bytes uint8[], faults) of texts: `\\x` and pairs of hexadecimal digits, without blanks."""
    cdef const ColumnView* view = &texts.view
    cdef Py_ssize_t rows = view.rows, row, at, size
    cdef int32_t end = 0, start
    cdef int high, low
    cdef const uint8_t* text
    ends, faults = np.zeros(rows + 1, np.int32), np.zeros(rows, np.uint8)
    data = np.empty((view.offsets[rows] - view.offsets[0]) // 2 + 1 if rows else 1, np.uint8)
    cdef int32_t[::1] into = ends
    cdef uint8_t[::1] fault = faults, out = data
    with nogil:
        for row in range(rows):
            text, size = view.data + view.offsets[row], view.offsets[row + 1] - view.offsets[row]
            start = end
            if not is_null(view, row):
                if size < 2 or size % 2 or text[0] != 92 or text[1] != 120:
                    fault[row] = INVALID
                    size = 0
                for at in range(2, size, 2):
                    high, low = digit_of(text[at]), digit_of(text[at + 1])
                    if high < 0 or low < 0:
                        fault[row] = INVALID
                        end = start
                        break
                    out[end] = <uint8_t>(high << 4 | low)
                    end += 1
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
