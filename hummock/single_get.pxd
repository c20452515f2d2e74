"""A read of one key, as far as it needs nothing but memory."""

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from hummock.key cimport Slice

cdef enum:
    TOGETHER = 16               # sources whose filters are asked for together
    NOT_AT_HAND = -2            # from `row_of`
    NOT_HERE = -1


cdef struct OpenFile:           # of a run, borrowed
    void* reader                # SstableReader
    PyObject* opened            # OpenedSstable; NULL: no file of the run may hold the key


cdef struct Answer:
    Slice value                 # data NULL: absent or deleted
    uint64_t epoch
