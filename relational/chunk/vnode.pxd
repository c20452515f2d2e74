"""Virtual nodes: the number below 256 (or a table's own count) that a row's distribution key hashes to."""

from libc.stdint cimport uint16_t

cdef int fill_vnodes(tuple columns, Py_ssize_t rows, int vnode_count, uint16_t* vnodes) except -1
# the vnode of each row of Columns, each of `rows` rows; no Python per row
