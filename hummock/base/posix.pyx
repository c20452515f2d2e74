"""Names of threads, as top, perf and debuggers show them."""

cdef extern from * nogil:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <pthread.h>
    static void hummock_name_thread(const char *name) {
    #ifdef __linux__
        pthread_setname_np(pthread_self(), name);
    #endif
    }
    """
    void hummock_name_thread(const char* name) noexcept

NAME_BYTES = 15                         # that the system keeps


def name_thread(str name not None) -> None:
    """The calling thread is `name` from here on, as far as the system keeps it. Nothing where it has no such names."""
    cdef bytes kept = name.encode()[:NAME_BYTES]
    hummock_name_thread(kept)
