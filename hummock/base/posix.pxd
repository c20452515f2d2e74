"""What the system offers beyond C: mutexes and condition variables, huge pages, names of threads.

The mutex and the condition variable are for state that threads share without the GIL. The first touch of a huge page,
and reading it from a disk, cost a fraction of what small pages cost.
"""

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
    #ifdef MADV_HUGEPAGE
    #define hummock_ask_huge(at, size) ((void)madvise(at, size, MADV_HUGEPAGE))
    #else
    #define hummock_ask_huge(at, size) ((void)0)
    #endif
    """
    void ask_huge "hummock_ask_huge"(void* at, size_t size) noexcept        # advice: an error changes nothing

cdef enum:
    HUGE_PAGE_BYTES = 2 << 20
