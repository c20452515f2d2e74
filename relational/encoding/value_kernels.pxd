"""Kernels that write and read one column of a block of rows in value form."""

from libc.stdint cimport int32_t, uint8_t

from relational.chunk.column cimport ColumnView
from relational.chunk.column_builder cimport ColumnBuilder
from relational.encoding.field cimport Field, Reason

cdef void add_value_sizes(
    const Field* field, const ColumnView* view, Py_ssize_t start, Py_ssize_t count, int32_t* sizes, uint8_t* scratch
) noexcept nogil

cdef Py_ssize_t write_values(
    const Field* field, const ColumnView* view, Py_ssize_t start, Py_ssize_t count, uint8_t** cursors,
    const uint8_t* scratch
) noexcept nogil

cdef Py_ssize_t read_values(
    const Field* field, ColumnBuilder sink, Py_ssize_t count, const uint8_t** cursors, const uint8_t** limits,
    Reason* reason
) noexcept nogil
