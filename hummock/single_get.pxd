"""A read of one key, as far as it needs nothing but memory."""

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from hummock.key cimport Slice

cdef enum:
    TOGETHER = 16               # sources whose filters are asked for together
    EXPECTED = 2                # of a run's `found`: the row is asked for beside the filter
    SURE = 3
    NOT_AT_HAND = -2            # from `row_of`, beside NOT_HERE


cdef struct OpenFile:           # of a run, borrowed
    void* run                   # SortedRun
    void* reader                # SstableReader
    PyObject* opened            # OpenedSstable; NULL: no file of the run may hold the key
    Py_ssize_t block            # in which the key stands if it is in the file; -1: not sought yet
    double share                # of the block that stands before the key, as the index lets it seem


cdef struct Answer:
    Slice value                 # data NULL: absent or deleted
    uint64_t epoch
    bint is_admitted            # the block that is not at hand is to be cached
