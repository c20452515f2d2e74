"""RecordBuffer: memory for fixed-size records that are read at random. One writer, no locks."""

cimport cython
from libc.stdint cimport uint8_t, uintptr_t
from libc.string cimport memcpy, memset

from hummock.byte_buffer cimport pool_capacity, pool_give, pool_take

cdef extern from * nogil:
    """
    #include <stdint.h>
    #if defined(__linux__)
    #include <sys/mman.h>
    #endif
    static inline void hummock_ask_huge_pages(void *memory, int64_t bytes) {
    #if defined(MADV_HUGEPAGE)
        const uintptr_t page = (uintptr_t)2 << 20;
        uintptr_t first = ((uintptr_t)memory + page - 1) & ~(page - 1);
        uintptr_t last = ((uintptr_t)memory + (uintptr_t)bytes) & ~(page - 1);
        if (last > first) madvise((void *)first, last - first, MADV_HUGEPAGE);  /* advice: an error changes nothing */
    #else
        (void)memory; (void)bytes;
    #endif
    }
    """
    void hummock_ask_huge_pages(void* memory, Py_ssize_t bytes) noexcept

cdef enum:
    LINE = 64
    SMALLEST = 1024


@cython.final
cdef class RecordBuffer:
    """Grows to twice its size, in pooled memory."""

    def __dealloc__(self):
        pool_give(self.memory, self.held)

    cdef int reserve(self, Py_ssize_t more) except -1 nogil:
        cdef Py_ssize_t wanted = self.size + more
        cdef uint8_t* made
        cdef uint8_t* start
        if wanted <= self.capacity:
            return 0
        wanted = pool_capacity(max(wanted, 2 * self.capacity, <Py_ssize_t>SMALLEST) + LINE)
        made = pool_take(wanted)
        if made == NULL:
            with gil:
                raise MemoryError(f"no memory for {wanted} bytes of records")
        hummock_ask_huge_pages(made, wanted)
        start = <uint8_t*>((<uintptr_t>made + LINE - 1) & ~<uintptr_t>(LINE - 1))
        if self.size:
            memcpy(start, self.data, <size_t>self.size)
        pool_give(self.memory, self.held)
        self.memory, self.held, self.data = made, wanted, start
        self.capacity = wanted - (start - made)
        return 0

    cdef int extend(self, Py_ssize_t more) except -1 nogil:
        if more > 0:
            self.reserve(more)
            memset(self.data + self.size, 0, <size_t>more)
            self.size += more
        return 0
