"""AggKernel: the states of one aggregate call, one fixed-size record per group; and CountKernel."""

cimport cython
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from hummock.byte_buffer cimport ByteBuffer
from relational.chunk.column cimport Column
from relational.chunk.column_builder cimport ColumnBuilder


cdef class AggKernel:
    cdef readonly object spec           # AggSpec
    cdef readonly bint strict           # a result that its type cannot hold is an error, not NULL
    cdef readonly Py_ssize_t groups     # records in `states`
    cdef readonly Py_ssize_t overflows  # results given as NULL because their type cannot hold them
    cdef Py_ssize_t width               # bytes of a record; an all-zero record is the state of no rows
    cdef ByteBuffer states              # one record per group
    cdef ByteBuffer saved               # records of the dirty groups before this epoch, in dirty order
    cdef ByteBuffer gathered            # records that the last `gather` copied, in its order
    cdef Py_ssize_t first_saved         # place in `saved` of the former state of gathered record 0
    cdef ByteBuffer weights             # int8 per row of the chunk at hand

    cdef int copy_records(self, const int32_t[::1] ids, ByteBuffer target) except -1
    cdef int add(self, const int32_t* ids, const int8_t* weights, Py_ssize_t rows, Column argument) except -1
    # weight 1 adds the row's argument to group ids[row], -1 takes it away, 0 leaves it out
    cdef int read_states(self, const int32_t* ids, const uint8_t* found, Py_ssize_t rows,
                         list columns) except -1
    # fills the records of `ids` from rows of the state columns, where found
    cdef bint same_state(self, const void* a, const void* b) noexcept nogil
    cdef bint same_output(self, const void* a, const void* b) noexcept nogil

    cdef inline void* state(self, int64_t group) noexcept nogil:
        """The record of a group. Lives until groups are added."""
        return self.states.data + group * self.width

    cdef inline void* picked(self, int64_t pick) noexcept nogil:
        """Gathered record `pick`; where negative, the former state of gathered record ~pick."""
        if pick >= 0:
            return self.gathered.data + pick * self.width
        return self.saved.data + (self.first_saved + ~pick) * self.width


@cython.final
cdef class CountKernel(AggKernel):
    """Rows, or non-NULL arguments. Record: int64."""


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
