"""OwnedBytes: a copy of an iterator's bytes that outlives its next move."""

from libc.stdint cimport uint8_t
from libc.stdlib cimport realloc
from libc.string cimport memcmp, memcpy

from hummock.base.key cimport Slice


cdef struct OwnedBytes:
    uint8_t* data                       # owned by the holder of the struct; NULL before the first use
    Py_ssize_t size
    Py_ssize_t capacity


cdef inline int save(OwnedBytes* saved, Slice bytes_) except -1 nogil:
    cdef uint8_t* grown
    if saved.data == NULL or bytes_.size > saved.capacity:
        grown = <uint8_t*>realloc(saved.data, <size_t>(bytes_.size * 2 + 1))
        if grown == NULL:
            with gil:
                raise MemoryError
        saved.data, saved.capacity = grown, bytes_.size * 2 + 1
    if bytes_.size > 0:
        memcpy(saved.data, bytes_.data, <size_t>bytes_.size)
    saved.size = bytes_.size
    return 0


cdef inline bint same(OwnedBytes* saved, Slice bytes_) noexcept nogil:
    return saved.size == bytes_.size and (
        bytes_.size == 0 or memcmp(saved.data, bytes_.data, <size_t>bytes_.size) == 0)
