"""RecordBuffer: memory for fixed-size records that are read at random. One writer, no locks."""

cimport cython
from libc.stdint cimport uint8_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

cdef extern from "stdlib.h" nogil:
    int posix_memalign(void** memory, size_t alignment, size_t size) noexcept

cdef extern from * nogil:
    """
    #include <stddef.h>
    #if defined(__linux__)
    #include <sys/mman.h>
    #endif
    static inline void hummock_ask_huge_pages(void *memory, size_t bytes) {
    #if defined(MADV_HUGEPAGE)
        madvise(memory, bytes, MADV_HUGEPAGE);      /* advice: an error changes nothing */
    #else
        (void)memory; (void)bytes;
    #endif
    }
    """
    void hummock_ask_huge_pages(void* memory, size_t bytes) noexcept

cdef enum:
    LINE = 64
    PAGE = 4096
    SMALLEST = 1024


cdef Py_ssize_t HUGE_PAGE = (<Py_ssize_t>2) << 20


@cython.final
cdef class RecordBuffer:
    """Grows to twice its size; gives its memory back when it goes.

    Not pooled: in pooled memory, some of which was touched before on small pages, lookups among 1e6 keys took twice
    as long (45 against 95 M a second).
    """

    def __dealloc__(self):
        free(self.data)

    cdef int reserve(self, Py_ssize_t more) except -1 nogil:
        cdef Py_ssize_t wanted = self.size + more
        cdef void* made = NULL
        if wanted <= self.capacity:
            return 0
        wanted = max(wanted, 2 * self.capacity, <Py_ssize_t>SMALLEST)
        if wanted >= HUGE_PAGE:
            wanted = (wanted + HUGE_PAGE - 1) // HUGE_PAGE * HUGE_PAGE
        if posix_memalign(&made, PAGE if wanted >= HUGE_PAGE else LINE, <size_t>wanted) != 0:
            with gil:
                raise MemoryError(f"no memory for {wanted} bytes of records")
        if wanted >= HUGE_PAGE:
            hummock_ask_huge_pages(made, <size_t>wanted)
        if self.size:
            memcpy(made, self.data, <size_t>self.size)
        free(self.data)
        self.data, self.capacity = <uint8_t*>made, wanted
        return 0

    cdef int extend(self, Py_ssize_t more) except -1 nogil:
        if more > 0:
            self.reserve(more)
            memset(self.data + self.size, 0, <size_t>more)
            self.size += more
        return 0
