"""256-bit magnitudes, for intermediate results of decimal128 beyond 128 bits. No function here raises.

10^76, the largest product of two decimals, needs 253 bits. Functions return 1 on overflow of 256 bits, else 0.
"""

cimport cython
from libc.stdint cimport uint64_t

cdef extern from * nogil:
    """
    #ifndef HUMMOCK_INT256
    #define HUMMOCK_INT256
    typedef __int128 hummock_int128;
    typedef unsigned __int128 hummock_uint128;
    #endif
    """
    ctypedef long long int128_t "hummock_int128"             # Cython sees a signed integer, C computes with 128 bits
    ctypedef unsigned long long uint128_t "hummock_uint128"
    int leading_zeros "__builtin_clzll"(unsigned long long word) noexcept       # REQUIRES word != 0

cdef enum:
    CHUNK = 19                          # digits of the largest power of ten in 64 bits

cdef struct Wide:
    uint128_t high
    uint128_t low


cdef inline int compare(Wide x, Wide y) noexcept nogil:
    """-1, 0 or 1."""
    if x.high != y.high:
        return 1 if x.high > y.high else -1
    return <int>(x.low > y.low) - <int>(x.low < y.low)


cdef inline void add(Wide* x, Wide y) noexcept nogil:
    x.low += y.low
    x.high += y.high + <uint128_t>(x.low < y.low)


cdef inline void subtract(Wide* x, Wide y) noexcept nogil:
    """REQUIRES x >= y."""
    x.high -= y.high + <uint128_t>(x.low < y.low)
    x.low -= y.low


cdef inline Wide product(uint128_t a, uint128_t b) noexcept nogil:
    """a * b, by four products of 64-bit halves."""
    cdef uint128_t a_low = <uint64_t>a, a_high = a >> 64
    cdef uint128_t b_low = <uint64_t>b, b_high = b >> 64
    cdef uint128_t bottom = a_low * b_low
    cdef uint128_t left = a_high * b_low
    cdef uint128_t right = a_low * b_high
    cdef uint128_t middle = (bottom >> 64) + <uint64_t>left + <uint64_t>right
    cdef Wide x
    x.low = (middle << 64) | <uint64_t>bottom
    x.high = a_high * b_high + (left >> 64) + (right >> 64) + (middle >> 64)
    return x


cdef inline int times(Wide* x, uint128_t factor) noexcept nogil:
    """x *= factor. REQUIRES factor < 2^64."""
    cdef uint128_t a = <uint64_t>x.low * factor
    cdef uint128_t b = (x.low >> 64) * factor + (a >> 64)
    cdef uint128_t c = <uint64_t>x.high * factor + (b >> 64)
    cdef uint128_t d = (x.high >> 64) * factor + (c >> 64)
    x.low = (b << 64) | <uint64_t>a
    x.high = (d << 64) | <uint64_t>c
    return (d >> 64) != 0


@cython.cdivision(True)
cdef inline uint128_t divided(Wide* x, uint128_t divisor) noexcept nogil:
    """x /= divisor, truncated; returns the remainder. REQUIRES 0 < divisor < 2^64."""
    cdef uint128_t part, quotient, above
    if x.high == 0:
        quotient = x.low / divisor
        part = x.low - quotient * divisor
        x.low = quotient
        return part
    part = x.high >> 64
    above = part / divisor
    part = ((part - above * divisor) << 64) | <uint64_t>x.high
    quotient = part / divisor
    x.high = (above << 64) | quotient
    part = ((part - quotient * divisor) << 64) | <uint64_t>(x.low >> 64)
    above = part / divisor
    part = ((part - above * divisor) << 64) | <uint64_t>x.low
    quotient = part / divisor
    x.low = (above << 64) | quotient
    return part - quotient * divisor


cdef inline int bits(Wide x) noexcept nogil:
    """The number of its binary digits."""
    cdef uint128_t half = x.high if x.high != 0 else x.low
    cdef int count = 128 if x.high != 0 else 0
    if (half >> 64) != 0:
        return count + 128 - leading_zeros(<uint64_t>(half >> 64))
    return count + (64 - leading_zeros(<uint64_t>half) if half != 0 else 0)


cdef inline void double_it(Wide* x) noexcept nogil:
    x.high = (x.high << 1) | (x.low >> 127)
    x.low <<= 1


@cython.cdivision(True)
cdef inline void divide(Wide x, Wide divisor, Wide* quotient, Wide* rest) noexcept nogil:
    """x / divisor, truncated, and the remainder. REQUIRES divisor != 0 and divisor < 2^255."""
    cdef int bit
    cdef bint is_one
    if x.high == 0 and divisor.high == 0:
        quotient.high = rest.high = 0
        quotient.low = x.low / divisor.low
        rest.low = x.low - quotient.low * divisor.low
        return
    if divisor.high == 0 and (divisor.low >> 64) == 0:
        quotient[0] = x
        rest.high, rest.low = 0, divided(quotient, divisor.low)
        return
    quotient.high = quotient.low = 0
    rest.high = rest.low = 0
    for bit in range(bits(x) - 1, -1, -1):
        double_it(rest)
        is_one = <bint>(((x.high >> (bit - 128)) if bit >= 128 else (x.low >> bit)) & 1)
        rest.low |= <uint128_t>is_one
        double_it(quotient)
        if compare(rest[0], divisor) >= 0:
            subtract(rest, divisor)
            quotient.low |= 1
