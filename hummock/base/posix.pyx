"""Thread names, as shown by top, perf and debuggers."""

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

NAME_BYTES = 15                         # limit of the system


def name_thread(str name not None) -> None:
    """Names the calling thread, truncated to the system's limit. Does nothing on systems without thread names."""
    cdef bytes kept = name.encode()[:NAME_BYTES]
    hummock_name_thread(kept)
