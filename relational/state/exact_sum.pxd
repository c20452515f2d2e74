"""ExactSumKernel: SUM and AVG of integers and NUMERIC."""

cimport cython
from libc.stdint cimport int64_t

from relational.chunk.column_builder cimport ColumnBuilder
from relational.state.agg_kernels cimport AggKernel

cdef packed struct ExactSum:
    int64_t sum[2]      # the low 128 bits, two's complement, in units of the argument's scale
    int64_t count       # non-NULL arguments
    int64_t high        # the 64 bits above `sum`; there only where the kernel is wide


@cython.final
cdef class ExactSumKernel(AggKernel):
    cdef bint is_average
    cdef bint is_bigint         # the result is BIGINT, else NUMERIC
    cdef bint is_wide           # sums have 192 bits, else 128
    cdef int64_t limit[2]       # 128 bits: a NUMERIC result lies below it
    cdef int more_digits        # scale of the result less that of the argument

    cdef int result(self, const ExactSum* state, int64_t* out) noexcept nogil
