"""Kernels that write one column of a block of rows in key form."""

from libc.stdint cimport uint8_t

from relational.chunk.column cimport ColumnView
from relational.encoding.field cimport Field

cdef enum:
    DECIMAL_SLOT = 24                   # scratch bytes per row of a NUMERIC key: size, then the payload


cdef void add_key_sizes(
    const Field* field, const ColumnView* view, Py_ssize_t start, Py_ssize_t count, Py_ssize_t* sizes, uint8_t* scratch
) noexcept nogil

cdef Py_ssize_t write_keys(
    const Field* field, const ColumnView* view, Py_ssize_t start, Py_ssize_t count, uint8_t** cursors,
    const uint8_t* scratch
) noexcept nogil
