"""CountKernel, and what the kernels of all aggregate calls share."""

cimport cython
from libc.stdint cimport int32_t, int64_t

from relational.chunk.column cimport Column
from relational.chunk.column_builder cimport ColumnBuilder
from relational.state.group_states cimport AggKernel


@cython.final
cdef class CountKernel(AggKernel):
    """Rows, or non-NULL arguments. State: int64."""


cdef ColumnBuilder new_column(data_type, Py_ssize_t rows)               # room for `rows`, which are to be put
cdef int check_picks(AggKernel kernel, const int32_t[::1] picks) except -1   # IndexError
cdef int64_t int64_at(Column column, Py_ssize_t row) noexcept nogil     # REQUIRES BIGINT; NULL is 0

cdef inline void put_null(ColumnBuilder column, Py_ssize_t row) noexcept nogil:
    cdef int byte
    column.present[row] = 0
    column.nulls += 1
    for byte in range(column.width):
        column.values[row * column.width + byte] = 0

cdef inline void put_int64(ColumnBuilder column, Py_ssize_t row, int64_t value) noexcept nogil:
    column.present[row] = 1
    (<int64_t*>column.values)[row] = value

cdef inline void put_double(ColumnBuilder column, Py_ssize_t row, double value) noexcept nogil:
    column.present[row] = 1
    (<double*>column.values)[row] = value
