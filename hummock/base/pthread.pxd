"""The POSIX mutex and condition variable, for state that threads share without the GIL."""

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
