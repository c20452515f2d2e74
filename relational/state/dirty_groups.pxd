"""DirtyGroups: which groups an epoch has touched."""

cimport cython
from libc.stdint cimport int32_t, uint8_t, uint32_t

from hummock.byte_buffer cimport ByteBuffer


@cython.final
cdef class DirtyGroups:
    cdef readonly Py_ssize_t groups
    cdef readonly uint32_t epoch        # number of the present epoch, counted by `finish`
    cdef ByteBuffer touched             # uint32 per group: number of the last epoch that touched it
    cdef ByteBuffer dirty               # int32: groups in the order of their first touch in this epoch
