"""Rows of columns by their positions."""

from libc.stdint cimport int32_t

cdef list gather(tuple columns, const int32_t* indices, Py_ssize_t rows)
# row i of each result is row indices[i] of its column, or NULL where that is negative; REQUIRES all < the columns' rows
