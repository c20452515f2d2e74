"""Software prefetch in batches.

A prefetch that misses the TLB occupies the processor's reorder window until the page walk ends, and so does everything
behind it: a loop that also computes the addresses keeps few prefetches in flight. So `PrefetchList` collects addresses
and `issue` prefetches all of them in a loop that does nothing else.
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
    VALUE_LINES = 4         # prefetched of one value; the hardware prefetcher fetches the rest


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
