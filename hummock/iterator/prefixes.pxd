"""The bounds of a prefix, without the GIL."""

from libc.stdint cimport uint8_t

from hummock.key cimport Slice

cdef Slice successor(Slice prefix, uint8_t* memory) noexcept nogil
# the first byte string after all that begin with `prefix`, in `memory`; data NULL when none can follow
