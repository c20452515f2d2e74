"""A pool of reusable buffers, and ByteBuffer, a growable byte string.

Touching a fresh page for the first time costs more than copying it several times, so blocks, columns and output files
are allocated from the pool and returned to it. All pool functions may be called from any thread, with or without the
GIL.
"""

from libc.stdint cimport uint8_t

cdef uint8_t* pool_acquire(Py_ssize_t size) noexcept nogil
# allocates at least `size` bytes, contents undefined, aligned for any type, and to a huge page from that size on; NULL
# if out of memory

cdef uint8_t* pool_reuse(Py_ssize_t size) noexcept nogil
# `pool_acquire` of memory that was used before; NULL if none is kept

cdef void pool_release(uint8_t* memory, Py_ssize_t size) noexcept nogil
# frees what `pool_acquire(size)` returned: the SAME size; NULL is allowed

cdef uint8_t* pool_grow(uint8_t* memory, Py_ssize_t size, Py_ssize_t used, Py_ssize_t new_size) noexcept nogil
# acquire, copy of the first `used` bytes, release; NULL if out of memory, and the caller then still owns `memory`

cdef Py_ssize_t pool_capacity(Py_ssize_t size) noexcept nogil
# bytes that `pool_acquire(size)` really provides; taking and giving that number names the same memory


cdef class ByteBuffer:
    """Bytes of one writer. Readers use the buffer protocol, which freezes the memory meanwhile."""
    cdef uint8_t* data              # pooled; owned; moves whenever the buffer grows
    cdef readonly Py_ssize_t size   # bytes written
    cdef Py_ssize_t capacity        # allocated bytes of `data`
    cdef Py_ssize_t exports         # live memoryviews of this buffer, which prevent it from growing

    cdef int reserve(self, Py_ssize_t more) except -1 nogil     # capacity for `more` bytes after `size`
    cdef int append(self, const uint8_t* data, Py_ssize_t size) except -1 nogil
    cdef int truncate(self, Py_ssize_t size) except -1 nogil    # keeps the first `size` bytes
