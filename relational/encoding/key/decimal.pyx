"""The key form of NUMERIC.

    zero              15
    value             header, then the base-100 digits of |value|, most significant first, zeros at both ends
                      stripped: digit X is the byte 2X + 1, the last one 2X
    |value| = 0.X1 X2 X3 ... * 100 ** E with X1 > 0:
                      positive                negative (every digit byte inverted)
    E >= 11           22, E                   08, ~E
    0 <= E <= 10      17 + E                  13 - E
    E < 0             16, ~(-E)               14, -E

The header orders by sign and magnitude, and a shorter row of digits ends in an even byte, which is below the odd byte
of a longer one with this prefix. With 38 digits E is in -18 .. 19.
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from relational.chunk.scalar cimport int128_t, uint128_t
from relational.encoding.field cimport BAD_FORM, FINE, OUT_OF_RANGE, Reason, TRUNCATED

cdef enum:
    MOST_DIGITS = 21                    # base-100 digits of 38 decimal ones for any scale

cdef uint64_t TEN_TO_18 = 1_000_000_000_000_000_000


cdef inline int peel(uint64_t part, int least, uint8_t* digits) noexcept nogil:
    """Base-100 digits of `part`, the lowest first, at least `least` of them; returns their number."""
    cdef int count = 0
    while part != 0 or count < least:
        digits[count] = <uint8_t>(part % 100)
        part //= 100
        count += 1
    return count


cdef inline int digits_of(uint128_t magnitude, int scale, uint8_t* digits) noexcept nogil:
    """Base-100 digits of magnitude / 10 ** scale, the lowest first, split at the point; returns their number."""
    cdef int count = 0
    if scale & 1:
        digits[0] = <uint8_t>(magnitude % 10) * 10
        magnitude //= 10
        count = 1
    while magnitude > <uint64_t>0xFFFFFFFFFFFFFFFF:
        count += peel(<uint64_t>(magnitude % TEN_TO_18), 9, digits + count)
        magnitude //= TEN_TO_18
    return count + peel(<uint64_t>magnitude, 0, digits + count)


cdef inline int write_header(int exponent, bint negative, uint8_t* out) noexcept nogil:
    if exponent > 10:
        out[0] = 0x08 if negative else 0x22
        out[1] = <uint8_t>(~exponent if negative else exponent)
        return 2
    if exponent >= 0:
        out[0] = <uint8_t>(0x13 - exponent if negative else 0x17 + exponent)
        return 1
    out[0] = 0x14 if negative else 0x16
    out[1] = <uint8_t>(-exponent if negative else ~(-exponent))
    return 2


cdef int encode_decimal(const uint8_t* value, int scale, uint8_t flip, uint8_t* out) noexcept nogil:
    cdef uint8_t digits[MOST_DIGITS + 3]
    cdef int128_t signed_value
    cdef uint128_t magnitude
    cdef uint8_t inverted
    cdef int count, lowest = 0, size, position
    memcpy(&signed_value, value, 16)
    if signed_value == 0:
        out[0] = 0x15 ^ flip
        return 1
    magnitude = <uint128_t>signed_value
    if signed_value < 0:
        magnitude = 0 - magnitude
    count = digits_of(magnitude, scale, digits)
    while digits[lowest] == 0:
        lowest += 1
    size = write_header(count - (scale + 1) // 2, signed_value < 0, out)
    out[0] ^= flip
    if size == 2:
        out[1] ^= flip
    inverted = flip ^ (0xFF if signed_value < 0 else 0)
    for position in range(count - 1, lowest, -1):
        out[size] = <uint8_t>(2 * digits[position] + 1) ^ inverted
        size += 1
    out[size] = <uint8_t>(2 * digits[lowest]) ^ inverted
    return size + 1


cdef inline const uint8_t* read_header(
    const uint8_t* at, const uint8_t* limit, uint8_t flip, int* exponent, bint* negative
) noexcept nogil:
    """Returns the end of the payload, or NULL if the header is invalid or the payload does not end before `limit`."""
    cdef int header = at[0] ^ flip
    negative[0] = header < 0x15
    if 0x17 <= header <= 0x21:
        exponent[0] = header - 0x17
        return at + 1
    if 0x09 <= header <= 0x13:
        exponent[0] = 0x13 - header
        return at + 1
    if limit - at < 2:
        return NULL
    if header == 0x22 or header == 0x08:
        exponent[0] = <uint8_t>(at[1] ^ flip ^ (0xFF if negative[0] else 0))
        return at + 2 if exponent[0] >= 11 else NULL
    if header == 0x16 or header == 0x14:
        exponent[0] = -<int><uint8_t>(at[1] ^ flip ^ (0 if negative[0] else 0xFF))
        return at + 2 if exponent[0] < 0 else NULL
    return NULL


cdef inline bint number_of(
    const uint8_t* digits, int count, int exponent, int precision, int scale, uint128_t* out
) noexcept nogil:
    """The digits as a multiple of 10 ** -scale; False if that needs more digits than the type has."""
    cdef int shift = scale - 2 * (count - exponent)     # decimal digits to append after the last one
    cdef int length = 2 * count - (1 if digits[0] < 10 else 0) + shift
    cdef uint128_t number = 0
    cdef int position
    if length > precision or shift < -1:
        return False
    for position in range(count - 1):
        number = number * 100 + digits[position]
    if shift < 0:
        out[0] = number * 10 + digits[count - 1] // 10
        return digits[count - 1] % 10 == 0
    number = number * 100 + digits[count - 1]
    for position in range(shift):
        number *= 10
    out[0] = number
    return True


cdef const uint8_t* decode_decimal(
    const uint8_t* at, const uint8_t* limit, uint8_t flip, int precision, int scale, uint8_t* value, Reason* reason
) noexcept nogil:
    cdef uint8_t digits[MOST_DIGITS]
    cdef uint128_t number = 0
    cdef int exponent, count = 0
    cdef bint negative
    cdef uint8_t byte = 1
    reason[0] = TRUNCATED
    if at >= limit:
        return NULL
    if at[0] ^ flip == 0x15:
        memcpy(value, &number, 16)
        return at + 1
    reason[0] = BAD_FORM
    at = read_header(at, limit, flip, &exponent, &negative)
    if at == NULL:
        return NULL
    while byte & 1:
        if at >= limit:
            reason[0] = TRUNCATED
            return NULL
        byte = at[0] ^ flip ^ (0xFF if negative else 0)
        at += 1
        if count == MOST_DIGITS or byte >= 200:
            return NULL
        digits[count] = byte >> 1
        count += 1
    if digits[0] == 0 or digits[count - 1] == 0:
        return NULL
    reason[0] = OUT_OF_RANGE
    if not number_of(digits, count, exponent, precision, scale, &number):
        return NULL
    if negative:
        number = 0 - number
    memcpy(value, &number, 16)
    reason[0] = FINE
    return at
