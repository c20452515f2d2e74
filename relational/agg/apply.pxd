"""GroupStates: the records of an aggregation's groups, and the kernels of its calls that change them."""

cimport cython
from libc.stdint cimport int8_t, int32_t, uint8_t

from relational.agg.records cimport GroupRecords

cdef enum:
    BLOCK = 1024                        # rows whose records are fetched together


@cython.final
cdef class GroupStates(GroupRecords):
    cdef readonly tuple kernels         # AggKernel, each with its place in the record
    cdef int8_t weights[2 * BLOCK]      # of the block at hand, and of one call in it

    cdef int fit(self) except -1
    cdef int lay_out(self, const uint8_t* source, Py_ssize_t rows, uint8_t* target, Py_ssize_t width) except -1
    cdef int apply_rows(self, const int32_t* ids, const uint8_t* ops, Py_ssize_t rows, void** kernels,
                        int count) except -1 nogil
