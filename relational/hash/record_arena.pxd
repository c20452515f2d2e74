"""RecordBuffer: memory for fixed-size records that are read at random.

It begins at a cache line, so that a record no longer than a line lies in one if its size divides the line. Large
ones ask for huge pages: a million records spread over more pages than the processor remembers cost a walk of the
page table beside every miss.
"""

cimport cython
from libc.stdint cimport uint8_t


@cython.final
cdef class RecordBuffer:
    cdef uint8_t* data          # owned; moves when the buffer grows
    cdef Py_ssize_t size        # bytes in use
    cdef Py_ssize_t capacity    # bytes held

    cdef int reserve(self, Py_ssize_t more) except -1 nogil     # room for `more` bytes after `size`
    cdef int extend(self, Py_ssize_t more) except -1 nogil      # `more` zero bytes; nothing where negative
