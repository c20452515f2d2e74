"""The rows under each of many prefixes, in one crossing."""

from libc.stdint cimport int32_t, uint8_t

from hummock.binary_column cimport BinaryColumn
from hummock.iterator.collect cimport BatchCollector
from hummock.iterator.user cimport UserIterator
from hummock.key cimport Slice


cdef class PrefixCollector:
    cdef UserIterator source
    cdef BatchCollector collector
    cdef BinaryColumn prefixes
    cdef Py_ssize_t most                # rows of each prefix
    cdef Py_ssize_t done                # rows so far
    cdef int32_t[::1] counts            # rows of each prefix so far
    cdef uint8_t* upper                 # room for the end of any prefix's range; owned

    cdef int add(self, Py_ssize_t first, Py_ssize_t rows, const uint8_t* among, Py_ssize_t children) except -1
    # the rows of so many prefixes from `first` on; among[row * children + i]: child i of the source's MergeIterator
    # may hold rows of that prefix. REQUIRES that all before it were added
    cdef tuple finish(self)             # (int32[n]: the row of `prefixes` of each result row, KvBatch of n rows)


cdef Slice successor(Slice prefix, uint8_t* memory) noexcept nogil
# the first byte string after all that begin with `prefix`, in `memory`; data NULL when none can follow
