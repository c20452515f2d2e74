"""The kernel that reads one column of a block of rows in key form."""

from libc.stdint cimport uint8_t

from relational.chunk.column_builder cimport ColumnBuilder
from relational.encoding.field cimport Field, Reason

cdef Py_ssize_t read_keys(
    const Field* field, ColumnBuilder sink, Py_ssize_t count, const uint8_t** cursors, const uint8_t** limits,
    Reason* reason
) noexcept nogil
