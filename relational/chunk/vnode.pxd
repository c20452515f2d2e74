"""Virtual nodes: the partition of a row."""

from libc.stdint cimport uint16_t

from relational.chunk.column cimport ColumnView

cdef int vnodes_into(
    const ColumnView** views, Py_ssize_t count, Py_ssize_t rows, object rule, int vnode_count, uint16_t* vnodes
) except -1
# the vnode of each row of the distribution columns by a VnodeRule that accepts their types; ValueError for a stored
# vnode that is none of the table's
