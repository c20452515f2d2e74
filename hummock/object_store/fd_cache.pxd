"""CachedFd: an open local file of an object, read without the GIL."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t


@cython.final
cdef class FileReads:
    """Counts reads through open files since the last `pop_counts`."""
    cdef int64_t calls
    cdef int64_t bytes


@cython.final
cdef class CachedFd:
    cdef readonly str path
    cdef readonly FileReads reads       # shared by all files of the store
    cdef int descriptor                 # -1: closed
    cdef int users                      # between `enter` and `leave`; guarded by the GIL, as the next two
    cdef bint is_closing                # close when `users` drops to 0
    cdef bint was_used                  # since it last reached the old end of its table
    cdef bint is_cold                   # the page cache lacked what `read_now` was asked for last; a hint, unguarded
    cdef int64_t size                   # of the object
    cdef readonly int64_t warmed        # bytes from the start that `warm` has read, or more than `size`
    cdef int64_t waited_bytes           # for which lookups waited since `waited_since`; a hint, unguarded
    cdef int64_t waited_since           # nanoseconds of a clock that only rises

    cdef bint enter(self) noexcept              # False: closed, get another one from the store
    cdef void leave(self) noexcept
    cdef void shut(self) noexcept
    cdef void count(self, Py_ssize_t size) noexcept nogil
    cdef Py_ssize_t read(self, uint8_t* target, Py_ssize_t size, uint64_t start) noexcept nogil
    # returns bytes read, fewer at the end of the object; -1: failed. REQUIRES `enter`; several threads may call it
    cdef Py_ssize_t read_now(self, uint8_t* target, Py_ssize_t size, uint64_t start) noexcept nogil
    # `read` from the page cache only: -1 or fewer bytes if it would block on the disk
    cdef void expect(self, uint64_t start, uint64_t size) noexcept nogil
    # announces a read of these bytes to the kernel's readahead
    cdef void waited(self, Py_ssize_t size) noexcept nogil
    # a lookup waited for the disk: a file of which much was read in this way is read as a whole, in steps, once
    cdef void warm(self) noexcept nogil


cdef class FdCache:
    """The table of CachedFds. All methods REQUIRE the GIL."""
    cdef readonly int limit
    cdef readonly FileReads reads
    cdef dict files                     # path -> CachedFd, oldest first

    cdef make_room(self)
