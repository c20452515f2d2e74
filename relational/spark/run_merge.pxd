"""Iterators at the end of a partition's merge."""

from libc.stdint cimport uint64_t

from hummock.base.key cimport Slice
from hummock.iterator.base cimport HummockIterator


cdef class UnderOneEpoch(HummockIterator):
    cdef HummockIterator child
    cdef uint64_t epoch_of_all

    cdef int settle(self) noexcept nogil


cdef class BesideStored(HummockIterator):
    cdef HummockIterator child, stored
    cdef bint keeps_stored
    cdef readonly Py_ssize_t met            # rows whose key is stored
    cdef readonly Py_ssize_t rows           # that were let through
    cdef readonly list met_keys             # of the first of them

    cdef int settle(self) except -1 nogil
    cdef show(self, Slice key)
