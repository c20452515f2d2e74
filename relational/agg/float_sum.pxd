"""FloatSumKernel: SUM and AVG of REAL and DOUBLE."""

cimport cython
from libc.stdint cimport int64_t

from relational.agg.kernels cimport AggKernel

cdef struct FloatSum:
    double high         # sum of the finite arguments as it is rounded
    double low          # what rounding left out of `high`
    int64_t finite      # arguments of each sort
    int64_t nans
    int64_t positive    # +inf
    int64_t negative    # -inf


@cython.final
cdef class FloatSumKernel(AggKernel):
    cdef bint is_average

    cdef bint result(self, const FloatSum* state, double* out) noexcept nogil   # False: NULL
