"""The rows of each of many ranges, in one crossing."""

from libc.stdint cimport int32_t, uint8_t

from hummock.base.key cimport Slice
from hummock.columnar.binary_column cimport BinaryColumn
from hummock.iterator.batch_collector cimport BatchCollector
from hummock.iterator.user cimport UserIterator


cdef class RangeCollector:
    cdef UserIterator source
    cdef BatchCollector collector
    cdef BinaryColumn starts            # or prefixes, where `ends` says so
    cdef BinaryColumn ends              # a null: no end; None: see `by_prefix`
    cdef bint by_prefix                 # a range ends where keys no longer begin with its start; else nowhere
    cdef Py_ssize_t row                 # of the range that `source` is sought for
    cdef Py_ssize_t most                # rows of each range
    cdef Py_ssize_t done                # rows so far
    cdef int32_t[::1] counts            # rows of each range so far
    cdef uint8_t* upper                 # room for the end of any prefix's range; owned

    cdef int add(self, Py_ssize_t first, Py_ssize_t rows, const uint8_t* among, Py_ssize_t children) except -1
    # the rows of so many ranges from `first` on; among[row * children + i]: child i of the source's MergeIterator
    # may hold rows of that range; NULL: all may. REQUIRES that all before it were added
    cdef void take_bounds(self) noexcept nogil
    cdef tuple finish(self)             # (int32[n]: the range of each result row, KvBatch of n rows)


cdef Slice successor(Slice prefix, uint8_t* memory) noexcept nogil
# the first byte string after all that begin with `prefix`, in `memory`; data NULL when none can follow
