"""DirtyGroups: which groups an epoch has touched, and which of them were known before it."""

cimport cython
from libc.stdint cimport int32_t, uint8_t, uint32_t

from hummock.byte_buffer cimport ByteBuffer

cdef struct GroupMark:
    int32_t place           # in `dirty`, -1 when clean
    uint32_t touched        # number of the last epoch that touched the group
    uint8_t existed         # had a row downstream at the last flush


@cython.final
cdef class DirtyGroups:
    cdef readonly Py_ssize_t groups
    cdef readonly uint32_t epoch        # number of the present epoch, counted by `finish`
    cdef ByteBuffer marks               # GroupMark per group
    cdef ByteBuffer dirty               # int32: groups in the order of their first touch in this epoch

    cdef Py_ssize_t places(self, Py_ssize_t first, Py_ssize_t count) except -1
