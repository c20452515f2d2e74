"""POSIX and Linux APIs: mutexes and condition variables, huge pages, thread names, the clock.

Mutexes and condition variables guard state that threads share without the GIL. Touching a huge page for the first time,
and reading into it from disk, costs a fraction of what small pages cost.
"""

from libc.stdint cimport int64_t

cdef extern from "pthread.h" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_mutex_init(pthread_mutex_t*, void*) noexcept
    int pthread_mutex_destroy(pthread_mutex_t*) noexcept
    int pthread_mutex_lock(pthread_mutex_t*) noexcept
    int pthread_mutex_unlock(pthread_mutex_t*) noexcept
    int pthread_cond_init(pthread_cond_t*, void*) noexcept
    int pthread_cond_destroy(pthread_cond_t*) noexcept
    int pthread_cond_wait(pthread_cond_t*, pthread_mutex_t*) noexcept
    int pthread_cond_broadcast(pthread_cond_t*) noexcept

cdef extern from * nogil:
    """
    #include <sys/mman.h>
    #if defined(MADV_HUGEPAGE) && !defined(HUMMOCK_PORTABLE)
    #define hummock_ask_huge(at, size) ((void)madvise(at, size, MADV_HUGEPAGE))
    #else
    #define hummock_ask_huge(at, size) ((void)0)
    #endif
    #define hummock_map_pages(size) \\
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
    #if defined(MREMAP_FIXED) && !defined(HUMMOCK_PORTABLE)
    #define hummock_can_move_pages 1
    #define hummock_move_pages(from, size, to, grown) \\
        (mremap(from, size, grown, MREMAP_MAYMOVE | MREMAP_FIXED, to) == (void*)(to))
    #else
    #define hummock_can_move_pages 0
    #define hummock_move_pages(from, size, to, grown) 0
    #endif
    """
    void ask_huge "hummock_ask_huge"(void* at, size_t size) noexcept        # a hint: errors are ignored
    void* MAP_FAILED
    void* map_pages "hummock_map_pages"(size_t size) noexcept
    # pages of zeros, not yet in memory; MAP_FAILED
    bint can_move_pages "hummock_can_move_pages"
    bint move_pages "hummock_move_pages"(void* source, size_t size, void* target, size_t grown) noexcept
    # moves mapped pages without a copy, over those mapped at `target`; false if out of memory: then those at `target`
    # may be gone, the others are where they were. REQUIRES can_move_pages
    int munmap(void* at, size_t size) noexcept

cdef enum:
    HUGE_PAGE_BYTES = 2 << 20

cdef extern from * nogil:
    """
    #include <stdint.h>
    #include <time.h>
    static int64_t hummock_monotonic_ns(void) {
        struct timespec now;
        return clock_gettime(CLOCK_MONOTONIC, &now) ? 0 : (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    }
    """
    int64_t monotonic_ns "hummock_monotonic_ns"() noexcept      # the clock of time.monotonic_ns on Linux and macOS
