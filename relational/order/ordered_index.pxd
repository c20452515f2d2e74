"""OrderedIndex: an order of encoded keys whose far end may be evicted.

Keys from `bound` on are not in memory: a window at the near end does not need the far end. An owner with a budget lets
the index evict the far end, and reloads it when a window reaches it.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t

from hummock.base.key cimport Slice
from hummock.columnar.binary_column cimport BinaryColumn
from relational.order.sorted_leaves cimport SortedLeaves


@cython.final
cdef class OrderedIndex(SortedLeaves):
    cdef readonly object capacity_bytes # None: no budget
    cdef readonly bytes bound           # first key that is not in memory; None: all are
    cdef Slice bound_slice              # of `bound`

    cdef int apply(self, BinaryColumn keys, BinaryColumn values, const uint8_t[::1] ops) except -1
    # `update` without moving anything in the arena
    cdef Py_ssize_t change(self, BinaryColumn keys, BinaryColumn values, const uint8_t* ops) except -2 nogil
    # applies all rows; returns the first invalid one, or -1
    cdef int settle(self) except -1                                         # packs if worthwhile
    cdef int drop_behind(self, int64_t rank) except -1
