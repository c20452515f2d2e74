"""Of threads: their names, as shown by top, perf and debuggers, and how long they have waited for a core."""

from libc.stdint cimport int64_t

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

cdef extern from * nogil:
    """
    #include <stdlib.h>
    #include <unistd.h>
    /* The second of the numbers in a file of Linux's schedstat, -1 if it cannot be read. */
    static int64_t hummock_second_number(int file) {
        char text[80], *end;
        ssize_t size = pread(file, text, sizeof(text) - 1, 0);
        if (size <= 0) return -1;
        text[size] = 0;
        strtoull(text, &end, 10);
        return *end == ' ' ? (int64_t)strtoull(end, NULL, 10) : -1;
    }
    """
    int64_t hummock_second_number(int file) noexcept

NAME_BYTES = 15                         # limit of the system


def name_thread(str name not None) -> None:
    """Names the calling thread, truncated to the system's limit. Does nothing on systems without thread names."""
    cdef bytes kept = name.encode()[:NAME_BYTES]
    hummock_name_thread(kept)


def waited_ns(int schedstat) -> int:
    """How long a thread was runnable and waited for a core: `schedstat` is its open `/proc/…/schedstat`. OSError if
    that cannot be read.

    It takes a microsecond and keeps the interpreter's lock, for which a thread that gives it up may wait milliseconds.
    """
    cdef int64_t found = hummock_second_number(schedstat)
    if found < 0:
        raise OSError(f"file {schedstat} is not a schedstat that can be read")
    return found
