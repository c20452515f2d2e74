"""The float nearest to a decimal number, ties to even. No function here raises."""

from libc.stdint cimport int64_t, uint64_t

cdef enum:
    EXACT_POWER = 22                    # 10 to it is exact in a double

cdef extern from * nogil:
    """
    static inline double hummock_double_of_bits(unsigned long long bits) {
        double value; __builtin_memcpy(&value, &bits, 8); return value;
    }
    """
    double double_of_bits "hummock_double_of_bits"(uint64_t bits) noexcept


cdef inline uint64_t infinite_bits() noexcept nogil:
    return <uint64_t>0x7FF << 52


cdef inline bint is_short(uint64_t digits, int64_t power) noexcept nogil:
    """Whether one operation of two exact doubles gives digits * 10^power, rounded once."""
    return digits <= <uint64_t>1 << 53 and -EXACT_POWER <= power <= EXACT_POWER


cdef double double_of_short(uint64_t digits, int64_t power) noexcept nogil
    # REQUIRES is_short

cdef uint64_t nearest_bits(uint64_t digits, int64_t power) noexcept nogil
    # the bits of the double nearest to digits * 10^power; those of infinity on overflow. REQUIRES digits > 0
