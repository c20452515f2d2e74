"""Rows of a column by their positions."""

from libc.stdint cimport int32_t

from relational.chunk.column cimport Column

cdef Column gather(Column column, const int32_t* indices, Py_ssize_t rows)
# row i of the result is row indices[i] of `column`, or NULL where that is negative; REQUIRES all < column's rows
