"""Exact decimal arithmetic on one value, for the column loops of kernels.pyx. No function here raises.

A decimal is the unscaled integer of Arrow's decimal128: |value| < 10^38. Each function writes `out` and
returns 0, or returns 1 (overflow) or 2 (division by zero) and leaves `out` alone.
"""

cdef extern from *:
    """
    typedef __int128 hummock_int128;
    typedef unsigned __int128 hummock_uint128;
    """
    ctypedef long long int128_t "hummock_int128"             # Cython sees a signed integer, C computes with 128 bits
    ctypedef unsigned long long uint128_t "hummock_uint128"

cdef enum Fault:
    NO_FAULT = 0
    OVERFLOW = 1
    DIVISION_BY_ZERO = 2

cdef int scale_up(int128_t value, int digits, int128_t* out) noexcept nogil
    # value * 10^digits, 0 <= digits <= 38; overflow beyond 128 bits
cdef int scale_down(int128_t value, int digits, int128_t* out) noexcept nogil
    # value / 10^digits, half away from zero, 0 <= digits <= 38
cdef int multiply(int128_t a, int128_t b, int digits, int128_t* out) noexcept nogil
    # a * b / 10^digits through 256 bits, half away from zero
cdef int divide(int128_t a, int128_t b, int digits, int128_t* out) noexcept nogil
    # a * 10^digits / b through 256 bits, half away from zero, 0 <= digits <= 38
