"""FileWriter: a file that is filled, synced and published without the GIL."""

cimport cython
from libc.stdint cimport uint8_t


@cython.final
cdef class FileWriter:
    cdef bytes temporary                # where it is filled
    cdef const char* path               # the same; owner: `temporary`
    cdef int descriptor                 # -1: not open
    cdef Py_ssize_t size                # bytes taken
    cdef Py_ssize_t appended            # of them by `append`, not yet accounted for
    cdef bint is_durable
    cdef bint has_failed                # the file may be longer than what was taken
    cdef bint is_direct
    cdef bint may_be_direct
    cdef bint is_synced                 # or closed, which is all that one that is not durable needs
    cdef int sync_failure               # stands: a kernel may have dropped the pages and call another try a success
    cdef bint is_published

    cdef int append(self, const uint8_t* data, Py_ssize_t size) noexcept nogil
    # 0 and all of it is taken, or an errno and nothing is. REQUIRES that the file was not finished
    cdef int open(self) noexcept nogil
    cdef int take(self, const uint8_t* data, Py_ssize_t size) noexcept nogil
    cdef Py_ssize_t write_some(self, const uint8_t* data, Py_ssize_t size, Py_ssize_t position) noexcept nogil
    cdef bint set_direct(self, bint wanted) noexcept nogil
    cdef void sync_ahead(self) noexcept nogil
    # REQUIRES that all of it was taken: `finish` then need not wait, and says what failed here
    cdef int sync(self) noexcept nogil
    cdef int close(self) noexcept nogil
    cdef int publish(self, const char* target, bint if_absent) noexcept nogil
    cdef void release(self) noexcept nogil
