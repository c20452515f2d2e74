"""RecordArena: memory for fixed-size records that are read at random. One writer, no locks.

Large freed memory is kept for the next arena that grows to its size: an index of a million rows was built twice as fast
in previously touched pages. It does not share the pool of `hummock.columnar.buffer_pool`: in memory first touched
partly on small pages, lookups among 1e6 keys took twice as long (45 against 95 M a second).
"""

cimport cython
from libc.stdint cimport uint8_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from hummock.base.pages cimport map_aligned, regrow, shrink, unmap
from hummock.base.posix cimport HUGE_PAGE_BYTES, can_move_pages
from hummock.base.posix cimport pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock
from hummock.columnar.size_class cimport size_class, size_of_class

cdef extern from "stdlib.h" nogil:
    int posix_memalign(void** memory, size_t alignment, size_t size) noexcept

cdef enum:
    LINE = 64
    SMALLEST = 1024
    HUGE_EXPONENT = 21          # of HUGE_PAGE_BYTES: memory at least this large is mapped to huge pages, and is kept
    STEPS = 3                   # eight classes to each power of two
    CLASSES = (34 - HUGE_EXPONENT) << STEPS     # of kept memory

cdef Py_ssize_t KEPT_BYTES = (<Py_ssize_t>256) << 20    # upper limit of kept memory

cdef struct FreeMemory:         # the first bytes of kept memory
    FreeMemory* next
    int index                   # its size class

cdef pthread_mutex_t lock
cdef FreeMemory* kept[CLASSES]          # guarded by `lock`
cdef Py_ssize_t kept_bytes = 0          # also guarded by `lock`

pthread_mutex_init(&lock, NULL)


def pooled_record_bytes() -> int:
    """Bytes of freed memory kept for the next large arena."""
    return kept_bytes


cdef inline int class_of(Py_ssize_t size) noexcept nogil:
    """The size class of `size` bytes; -1 if such memory is not kept."""
    cdef int index
    if size < HUGE_PAGE_BYTES:
        return -1
    index = size_class(max(size, HUGE_PAGE_BYTES + 1), HUGE_EXPONENT, STEPS)
    return index if index < CLASSES else -1


cdef inline Py_ssize_t class_bytes(int index) noexcept nogil:
    return size_of_class(index, HUGE_EXPONENT, STEPS)


cdef uint8_t* pop_kept(int index) noexcept nogil:
    """Memory of a class, or NULL."""
    global kept_bytes
    cdef FreeMemory* found
    pthread_mutex_lock(&lock)
    found = kept[index]
    if found != NULL:
        kept[index] = found.next
        kept_bytes -= class_bytes(index)
    pthread_mutex_unlock(&lock)
    return <uint8_t*>found


cdef void release(uint8_t* memory, Py_ssize_t capacity) noexcept nogil:
    """Keeps the memory, or frees it if it exceeds the limit; evicts smaller kept memory first, then larger."""
    global kept_bytes
    cdef int index = class_of(capacity), other = 0
    cdef FreeMemory* dropped = NULL
    cdef FreeMemory* next
    if index < 0 or capacity > KEPT_BYTES:
        give_back(memory, capacity)
        return
    pthread_mutex_lock(&lock)
    while kept_bytes + capacity > KEPT_BYTES:
        if kept[other] == NULL:
            other += 1
            continue
        next = kept[other].next
        kept[other].next, dropped = dropped, kept[other]
        kept[other] = next
        kept_bytes -= class_bytes(other)
    (<FreeMemory*>memory).next, (<FreeMemory*>memory).index = kept[index], index
    kept[index] = <FreeMemory*>memory
    kept_bytes += capacity
    pthread_mutex_unlock(&lock)
    while dropped != NULL:
        next, other = dropped.next, dropped.index
        give_back(<uint8_t*>dropped, class_bytes(other))
        dropped = next


cdef inline void give_back(uint8_t* memory, Py_ssize_t capacity) noexcept nogil:
    if capacity >= HUGE_PAGE_BYTES:
        unmap(memory, capacity)
    else:
        free(memory)


cdef uint8_t* acquire(Py_ssize_t capacity) noexcept nogil:
    """Memory of `capacity` bytes (of `class_bytes` if large); NULL when out of memory."""
    cdef int index = class_of(capacity)
    cdef void* made = <void*>pop_kept(index) if index >= 0 else NULL
    if made != NULL:
        return <uint8_t*>made
    if capacity >= HUGE_PAGE_BYTES:
        return map_aligned(capacity)
    return <uint8_t*>made if posix_memalign(&made, LINE, <size_t>capacity) == 0 else NULL


cdef uint8_t* regrown(uint8_t* memory, Py_ssize_t size, Py_ssize_t capacity, Py_ssize_t wanted) noexcept nogil:
    """Memory of `wanted` bytes that begins with `size` bytes of `memory`, which is released; NULL when out of memory.
    """
    cdef uint8_t* made
    if capacity >= HUGE_PAGE_BYTES and can_move_pages:
        return regrow(memory, capacity, wanted)
    made = acquire(wanted)
    if made == NULL:
        return NULL
    if size:
        memcpy(made, memory, <size_t>size)
    release(memory, capacity)
    return made


@cython.final
cdef class RecordArena:
    """Doubles as it grows, and large ones to the next size class; its memory is released on deallocation."""

    def __dealloc__(self):
        release(self.data, self.capacity)

    cdef int reserve(self, Py_ssize_t more) except -1 nogil:
        cdef Py_ssize_t wanted = self.size + more
        cdef uint8_t* made
        if wanted <= self.capacity:
            return 0
        if self.capacity < HUGE_PAGE_BYTES:
            wanted = max(wanted, 2 * self.capacity, <Py_ssize_t>SMALLEST)
        else:
            wanted = max(wanted, self.capacity + self.capacity // 8)
        if class_of(wanted) >= 0:
            wanted = class_bytes(class_of(wanted))
        elif wanted > HUGE_PAGE_BYTES:
            wanted = (wanted + HUGE_PAGE_BYTES - 1) // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
        made = regrown(self.data, self.size, self.capacity, wanted)
        if made == NULL:
            with gil:
                raise MemoryError(f"no memory for {wanted} bytes of records")
        self.data, self.capacity = made, wanted
        return 0

    cdef void trim(self) noexcept nogil:
        cdef Py_ssize_t wanted = max(self.size, <Py_ssize_t>SMALLEST)
        cdef uint8_t* made
        if class_of(wanted) >= 0:
            wanted = class_bytes(class_of(wanted))
            if wanted < self.capacity:
                shrink(self.data, self.capacity, wanted)
                self.capacity = wanted
        elif 2 * wanted < self.capacity:
            made = acquire(wanted)
            if made != NULL:
                memcpy(made, self.data, <size_t>self.size)
                release(self.data, self.capacity)
                self.data, self.capacity = made, wanted

    cdef int extend(self, Py_ssize_t more) except -1 nogil:
        if more > 0:
            self.reserve(more)
            memset(self.data + self.size, 0, <size_t>more)
            self.size += more
        return 0
