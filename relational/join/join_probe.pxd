"""JoinProbe: the matches of located rows, in bounded batches."""

cimport cython
from libc.stdint cimport int32_t

from relational.join.join_index cimport JoinIndex
from relational.join.row_lists cimport RowLists


@cython.final
cdef class JoinProbe:
    cdef readonly JoinIndex index
    cdef readonly Py_ssize_t generation # of the index when the probe began
    cdef readonly Py_ssize_t batch_rows # the most matches in a batch
    cdef const int32_t[::1] ids         # key number per probe row, -1: no match
    cdef Py_ssize_t row                 # the probe row that comes next
    cdef int32_t place                  # of its first match that was not told

    cdef Py_ssize_t fill(self, RowLists lists, int32_t* probe_rows, int32_t* row_ids) noexcept nogil
    # the next matches; how many
