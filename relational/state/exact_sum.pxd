"""ExactSumKernel: SUM and AVG of integers and NUMERIC."""

cimport cython
from libc.stdint cimport int64_t

from relational.chunk.column_builder cimport ColumnBuilder
from relational.state.agg_kernels cimport AggKernel

cdef packed struct ExactSum:
    int64_t sum[2]      # 128-bit two's complement, in units of the argument's scale
    int64_t count       # non-NULL arguments


@cython.final
cdef class ExactSumKernel(AggKernel):
    cdef bint is_average
    cdef bint is_bigint         # the result is BIGINT, else NUMERIC
    cdef int64_t limit[2]       # 128 bits: a NUMERIC result lies below it
    cdef int more_digits        # scale of the result less that of the argument

    cdef int put_result(self, ColumnBuilder out, Py_ssize_t row, const ExactSum* state) noexcept nogil
