"""Cache lines that are asked for before they are needed.

A prefetch whose page the processor must look up first stays in its window until that is done, and with it all that
comes behind: in a loop that also computes what to issue for, few are on their way together. So `PrefetchList` collects
addresses, and asks for all of them in a loop that does nothing else.
"""

from libc.stdint cimport uint8_t

cdef extern from * nogil:
    """
    #include <stdint.h>
    /* without the asm the compiler takes a function that does nothing but prefetch for one without effect, and leaves
       out what calls it */
    static inline void hummock_prefetch_line(const void *address) {
        __builtin_prefetch(address);
        __asm__ volatile("" : : "r"(address));
    }
    """
    void prefetch_line "hummock_prefetch_line"(const void* address) noexcept


cdef enum:
    VALUE_LINES = 4         # of one value: what follows them the processor sees coming


cdef enum:
    LINES = 512


cdef struct PrefetchList:
    Py_ssize_t count
    const void* wanted[LINES]


cdef inline void issue(PrefetchList* lines) noexcept nogil:
    cdef Py_ssize_t position
    for position in range(lines.count):
        prefetch_line(lines.wanted[position])
    lines.count = 0


cdef inline void enqueue(PrefetchList* lines, const void* address) noexcept nogil:
    if lines.count == LINES:
        issue(lines)
    lines.wanted[lines.count] = address
    lines.count += 1


cdef inline void enqueue_value(PrefetchList* lines, const uint8_t* data, float size) noexcept nogil:
    cdef const uint8_t* end = data + (<Py_ssize_t>size if size < 64 * VALUE_LINES else 64 * VALUE_LINES)
    while data < end:
        enqueue(lines, data)
        data += 64
    enqueue(lines, end - 1)
