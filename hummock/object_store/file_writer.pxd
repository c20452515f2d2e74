"""FileWriter: writes, syncs and publishes a file without the GIL."""

cimport cython
from libc.stdint cimport uint8_t


@cython.final
cdef class FileWriter:
    cdef bytes temporary                # path until published
    cdef const char* path               # the same; owner: `temporary`
    cdef int descriptor                 # -1: not open
    cdef Py_ssize_t size                # bytes written
    cdef Py_ssize_t appended            # of them by `append` since the last `pop_appended`
    cdef bint is_durable
    cdef bint has_failed                # the file may be longer than `size`
    cdef bint is_synced                 # or closed, if it need not be durable
    cdef int sync_failure               # permanent: a kernel may drop the pages and report a second fsync as a success
    cdef bint is_published

    cdef int append(self, const uint8_t* data, Py_ssize_t size) noexcept nogil
    # appends all and returns 0, or appends nothing and returns an errno. REQUIRES that the file is not finished
    cdef int open(self) noexcept nogil
    cdef int write_fully(self, const uint8_t* data, Py_ssize_t size) noexcept nogil
    cdef void sync_ahead(self) noexcept nogil
    # syncs early, so that `finish` need not wait; `finish` reports a failure. REQUIRES that all data was written
    cdef int sync(self) noexcept nogil
    cdef int close(self) noexcept nogil
    cdef int publish(self, const char* target, bint if_absent) noexcept nogil
    cdef void release(self) noexcept nogil
