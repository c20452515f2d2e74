"""Rows to key bytes and back, a block of rows and one column at a time."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint16_t

from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from relational.chunk.column cimport ColumnView
from relational.encoding.field cimport Field

cdef int write_key_rows(
    const Field* fields, const ColumnView** views, int count, Py_ssize_t rows, int64_t table_id, const uint16_t* vnodes,
    BinaryColumnBuilder out
) except -1
# Appends the rows of `count` leading columns to `out`, each after the 6 bytes `table_id | vnode` unless table_id < 0.
# vnodes NULL: vnode 0. EncodingError for a value that has no encoding.

cdef int read_key_rows(const Field* fields, int count, PyObject** sinks, BinaryColumn keys, Py_ssize_t skip) except -1
# appends each field of the rows, after their first `skip` bytes, to its ColumnBuilder
