"""Rows to value bytes and back, a block of rows and one column at a time."""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, uint8_t

from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from relational.chunk.column cimport ColumnView
from relational.encoding.field cimport Field

cdef struct ValueLayout:                # borrowed from a ValueEncoder
    const Field* fields
    int count
    const int32_t* ids                  # of each field
    const int32_t* order                # the fields by ascending id
    const uint8_t* const* default_at    # default payload of each field; NULL: a NULL
    const Py_ssize_t* default_sizes
    const uint8_t* shape                # common prefix of all written rows
    Py_ssize_t shape_bytes


cdef int write_value_rows(
    const ValueLayout* format, const ColumnView** views, Py_ssize_t rows, BinaryColumnBuilder out
) except -1 nogil
# appends the rows of the columns to `out`; EncodingError for a value that has no encoding

cdef int read_value_rows(
    const ValueLayout* format, PyObject** sinks, BinaryColumn values, const uint8_t* wanted, bint absent_is_null
) except -1
# appends the rows to the ColumnBuilder of each field for which wanted[field] is not 0 (NULL: to all)
