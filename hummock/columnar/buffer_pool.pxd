"""Memory that is reused: a pool of buffers, and ByteBuffer, bytes that grow.

The first touch of a fresh page costs more than copying it several times, so whatever holds blocks, columns
or output files takes its memory from the pool and gives it back. All pool functions may be called from any
thread, with or without the GIL.
"""

from libc.stdint cimport uint8_t

cdef uint8_t* pool_take(Py_ssize_t size) noexcept nogil
# memory for at least `size` bytes, aligned for any type, contents undefined; NULL when there is none

cdef void pool_give(uint8_t* memory, Py_ssize_t size) noexcept nogil
# gives back what `pool_take(size)` returned: the SAME size; NULL is allowed

cdef uint8_t* pool_grow(uint8_t* memory, Py_ssize_t size, Py_ssize_t used, Py_ssize_t new_size) noexcept nogil
# like take + copy of the first `used` bytes + give; NULL when there is none, and then `memory` is still held

cdef Py_ssize_t pool_capacity(Py_ssize_t size) noexcept nogil
# bytes that `pool_take(size)` really provides; taking and giving that number names the same memory


cdef class ByteBuffer:
    """Bytes of one writer. Readers see them through the buffer protocol, which freezes the memory meanwhile."""
    cdef uint8_t* data              # pooled; owned; moves whenever the buffer grows
    cdef readonly Py_ssize_t size   # bytes written
    cdef Py_ssize_t capacity        # bytes that `data` holds
    cdef Py_ssize_t exports         # living memoryviews of this buffer; it cannot grow while there are some

    cdef int reserve(self, Py_ssize_t more) except -1 nogil     # room for `more` bytes after `size`
    cdef int append(self, const uint8_t* data, Py_ssize_t size) except -1 nogil
    cdef int truncate(self, Py_ssize_t size) except -1 nogil    # keeps the first `size` bytes
