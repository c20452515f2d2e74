"""Exact decimal arithmetic on one value, for the column loops of kernels.pyx. No function here raises.

A decimal is the unscaled integer of Arrow's decimal128: |value| < 10^38. Each function writes `out` and returns 0, or
returns 1 (overflow) or 2 (division by zero) and leaves `out` unchanged.
"""

from relational.expr.kernels.int256 cimport Wide, int128_t, uint128_t

cdef enum Fault:
    NO_FAULT = 0
    OVERFLOW = 1
    DIVISION_BY_ZERO = 2

cdef struct Operation:                  # one for a whole column
    int kind                            # ADD, SUBTRACT, MULTIPLY, DIVIDE, MODULO
    int up_a, up_b                      # digits that scale an operand up to the common scale of +, - and %
    int digits                          # of the exact result beyond the wanted scale; negative: so many fewer
    int128_t bound                      # 10^precision of the result

cdef int scale_up(int128_t value, int digits, int128_t* out) noexcept nogil
    # value * 10^digits, 0 <= digits <= 38; overflow beyond 127 bits
cdef int raise_wide(Wide* x, int digits) noexcept nogil
    # x * 10^digits; no-op for digits below 0
cdef void lower_wide(Wide* x, int digits) noexcept nogil
    # x / 10^digits, half away from zero; no-op for digits below 1
