"""What texts of numbers and of bytes say, one text at a time. No function here raises."""

from libc.stdint cimport int64_t, uint8_t

cdef extern from *:
    """
    typedef __int128 hummock_int128;
    typedef unsigned __int128 hummock_uint128;
    """
    ctypedef long long int128_t "hummock_int128"             # Cython sees 64 bits, C computes with 128
    ctypedef unsigned long long uint128_t "hummock_uint128"

cdef enum:
    INVALID = 3                         # beside Fault of kernels.pxd: the text is none of the type
    WORD = 4                            # a float that is a word: inf, infinity, nan
    UNDECIDED = 5                       # a float whose digits need more than 128 bits

cdef int integer_of(const uint8_t* text, Py_ssize_t size, int64_t low, int64_t high, int64_t* out) noexcept nogil
    # `[+-]?[0-9]+` within [low, high], low < 0 < high; else OVERFLOW or INVALID
cdef int decimal_of(const uint8_t* text, Py_ssize_t size, int precision, int scale, int128_t* out) noexcept nogil
    # digits with a point and an exponent, as the unscaled value, half away from zero; else OVERFLOW or INVALID
cdef int double_of(const uint8_t* text, Py_ssize_t size, double* out) noexcept nogil
    # the nearest double, ties to even; else OVERFLOW, WORD, INVALID, or UNDECIDED where the digits are too many to tell
