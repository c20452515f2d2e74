"""OrderedIndex: an order of encoded keys of which the far end may be evicted.

Keys from `bound` on are not held: a window at the near end does not need the far end. An owner with a budget lets the
index evict it, and loads it again when a window reaches it.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t

from hummock.base.key cimport Slice
from hummock.columnar.binary_column cimport BinaryColumn
from relational.order.sorted_leaves cimport SortedLeaves


@cython.final
cdef class OrderedIndex(SortedLeaves):
    cdef readonly object capacity_bytes # None: no budget
    cdef readonly bytes bound           # first key that is not held; None: everything is
    cdef Slice bound_slice              # of `bound`

    cdef int apply(self, BinaryColumn keys, BinaryColumn values, const uint8_t[::1] ops) except -1
    # `update`, but nothing in the arena moves
    cdef Py_ssize_t change(self, BinaryColumn keys, BinaryColumn values, const uint8_t* ops) except -2 nogil
    # applies all rows; the first at fault, or -1
    cdef int settle(self) except -1                                         # packs where it is worth it
    cdef int drop_behind(self, int64_t rank) except -1
