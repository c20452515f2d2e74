"""ExactSumKernel: SUM and AVG of integers and NUMERIC."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from relational.agg.kernels cimport AggKernel
from relational.chunk.column_builder cimport ColumnBuilder

cdef packed struct ExactSum:
    int64_t sum[2]      # the low 128 bits, two's complement, in units of the argument's scale
    int64_t count       # non-NULL arguments
    int64_t high        # the 64 bits above `sum`; there only where the kernel `is_wide`


@cython.final
cdef class ExactSumKernel(AggKernel):
    cdef bint is_average
    cdef bint is_bigint         # the result is BIGINT, else NUMERIC
    cdef bint has_above         # states may have digits above their 38
    cdef uint64_t reach         # |any sum| < reach * 2**64, while that is less than REACH
    cdef int64_t limit[2]       # 128 bits: a NUMERIC result lies below it
    cdef int more_digits        # scale of the result less that of the argument

    cdef int result(self, const ExactSum* state, int64_t* out) noexcept nogil
    cdef void extend_reach(self, uint64_t more) noexcept

    cdef inline bint is_wide(self) noexcept nogil:
        """Whether sums have 192 bits, as from when anything could leave 128."""
        return self.width == sizeof(ExactSum)
