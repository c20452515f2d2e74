"""RecordArena: memory for fixed-size records that are read at random.

It is aligned to a cache line, so a record whose size divides the line never crosses one. Large arenas request huge
pages: with a million records on more pages than the TLB holds, every cache miss would also cost a page walk.
"""

cimport cython
from libc.stdint cimport uint8_t


@cython.final
cdef class RecordArena:
    cdef uint8_t* data          # owned; moves when the buffer grows
    cdef Py_ssize_t size        # bytes in use
    cdef Py_ssize_t capacity    # bytes allocated

    cdef int reserve(self, Py_ssize_t more) except -1 nogil     # capacity for `more` bytes after `size`
    cdef void trim(self) noexcept nogil                         # returns memory that is far beyond `size`
    cdef int extend(self, Py_ssize_t more) except -1 nogil      # appends `more` zero bytes; no-op if negative
