"""CachedFd: an object that is a file here, kept open, read without the GIL."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t


@cython.final
cdef class FileReads:
    """What was read through open files and not yet taken into account."""
    cdef int64_t calls
    cdef int64_t bytes


@cython.final
cdef class CachedFd:
    cdef readonly str path
    cdef readonly FileReads reads       # of the store's, shared by its files
    cdef int descriptor                 # -1: closed
    cdef int users                      # between `enter` and `leave`; guarded by the GIL, as the next two
    cdef bint is_closing                # closed as soon as nobody is inside
    cdef bint was_used                  # since it last stood at the old end of its table

    cdef bint enter(self) noexcept              # False: it was closed, ask the store for another one
    cdef void leave(self) noexcept
    cdef void shut(self) noexcept
    cdef void count(self, Py_ssize_t size) noexcept nogil
    cdef Py_ssize_t read(self, uint8_t* target, Py_ssize_t size, uint64_t start) noexcept nogil
    # bytes that were read, fewer where the object ends; -1: failed. REQUIRES `enter`; from several threads at once
    cdef Py_ssize_t read_now(self, uint8_t* target, Py_ssize_t size, uint64_t start) noexcept nogil
    # the same if it need not wait for the disk, else -1 or fewer bytes than there are
    cdef void expect(self, uint64_t start, uint64_t size) noexcept nogil
    # these bytes will be read soon: the disk may begin


cdef class FdCache:
    """The table of them. All methods under the GIL."""
    cdef readonly int limit
    cdef readonly FileReads reads
    cdef dict files                     # path -> CachedFd, from the oldest on

    cdef make_room(self)
