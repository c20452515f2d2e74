"""Huge pages, where the system has them: their first touch, and a disk's reading of them, cost a fraction of small
ones'."""

cdef extern from * nogil:
    """
    #include <sys/mman.h>
    #ifdef MADV_HUGEPAGE
    #define hummock_ask_huge(at, size) ((void)madvise(at, size, MADV_HUGEPAGE))
    #else
    #define hummock_ask_huge(at, size) ((void)0)
    #endif
    """
    void ask_huge "hummock_ask_huge"(void* at, size_t size) noexcept        # advice: an error changes nothing

cdef enum:
    HUGE_PAGE_BYTES = 2 << 20
