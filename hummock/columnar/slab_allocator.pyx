"""Slab allocator for cached objects: slabs of huge pages, each divided into slots of one size class.

There are eight classes per power of two, so that a slot is at most an eighth larger than its object. An empty slab can
serve any class; beyond KEPT_BYTES of empty slabs they are unmapped. Sizes outside the classes are left to the pool, and
small slabs are taken from it too: fresh pages take longer than what is put there. Where it has none, the first
FIRST_BYTES are ordinary pages, and so is the first slab of a class of small slots: few objects cost no more than
themselves. All slabs are if the system has no huge pages.
"""

from libc.stdint cimport uint8_t, uintptr_t

from hummock.base.posix cimport HUGE_PAGE_BYTES, ask_huge
from hummock.base.posix cimport pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock
from hummock.columnar.buffer_pool cimport pool_acquire, pool_capacity, pool_release, pool_reuse
from hummock.columnar.size_class cimport size_class, size_of_class

cdef extern from "sys/mman.h" nogil:
    void* mmap(void* at, size_t size, int protection, int flags, int file, Py_ssize_t offset) noexcept
    int munmap(void* at, size_t size) noexcept

cdef extern from * nogil:
    int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS
    void* MAP_FAILED

cdef enum:
    SMALLEST_EXPONENT = 14      # sizes up to 16 KiB are left to the pool
    LARGEST_EXPONENT = 22       # and those above 4 MiB, which are few
    STEPS = 3                   # eight classes to each power of two
    CLASSES = (LARGEST_EXPONENT - SMALLEST_EXPONENT) << STEPS
    SMALL_SLOT = 128 << 10      # larger slots are in large slabs
    SMALL_SLAB = HUGE_PAGE_BYTES
    LARGE_SLOT = 1 << 20        # even larger ones, filters of whole files, are in huge slabs
    LARGE_SLAB = 8 << 20
    HUGE_SLAB = 32 << 20
    HEADER_BYTES = 64
    KEPT_BYTES = 8 << 20
    FIRST_BYTES = 4 << 20

cdef struct FreeSlot:           # the first bytes of a free slot
    FreeSlot* next

cdef struct Slab:               # at the front of its memory, which is aligned to its size
    Slab* next                  # neighbours in the list of its class's slabs with free slots, or of empty slabs
    Slab* previous
    FreeSlot* free              # slots that were freed
    int taken
    int cut                     # slots ever allocated; those behind them are untouched
    bint is_pooled              # memory of the pool

cdef pthread_mutex_t lock
cdef Slab* with_room[CLASSES]   # all below is guarded by `lock`
cdef int slabs_of[CLASSES]
cdef Slab* empty[3]             # small, large, huge slabs
cdef Py_ssize_t empty_bytes = 0
cdef Py_ssize_t cut_bytes = 0   # of slots ever allocated, in slabs that are not empty
cdef Py_ssize_t mapped_bytes = 0
cdef Py_ssize_t taken_bytes = 0

pthread_mutex_init(&lock, NULL)


cdef inline int class_of(Py_ssize_t size) noexcept nogil:
    """The class whose slots hold `size` bytes; -1 for sizes outside the classes."""
    if size <= (<Py_ssize_t>1 << SMALLEST_EXPONENT) or size > (<Py_ssize_t>1 << LARGEST_EXPONENT):
        return -1
    return size_class(size, SMALLEST_EXPONENT, STEPS)


cdef inline Py_ssize_t class_bytes(int index) noexcept nogil:
    return size_of_class(index, SMALLEST_EXPONENT, STEPS)


cdef inline Py_ssize_t slab_bytes(int index) noexcept nogil:
    if class_bytes(index) > LARGE_SLOT:
        return HUGE_SLAB
    return SMALL_SLAB if class_bytes(index) <= SMALL_SLOT else LARGE_SLAB


cdef inline Slab** empty_of(Py_ssize_t size) noexcept nogil:
    """The list of empty slabs of `size` bytes."""
    return &empty[(size > SMALL_SLAB) + (size > LARGE_SLAB)]


cdef inline int slots_of(int index) noexcept nogil:
    return <int>((slab_bytes(index) - HEADER_BYTES) // class_bytes(index))


cdef inline void enlist(Slab** first, Slab* slab) noexcept nogil:
    slab.previous, slab.next = NULL, first[0]
    if first[0] != NULL:
        first[0].previous = slab
    first[0] = slab


cdef inline void delist(Slab** first, Slab* slab) noexcept nogil:
    if slab.previous != NULL:
        slab.previous.next = slab.next
    else:
        first[0] = slab.next
    if slab.next != NULL:
        slab.next.previous = slab.previous


cdef Slab* map_slab(Py_ssize_t size) noexcept nogil:
    """`size` bytes of untouched pages, aligned to `size`; NULL if out of memory."""
    cdef uint8_t* mapped = <uint8_t*>mmap(
        NULL, <size_t>(2 * size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    cdef uint8_t* start
    if mapped == <uint8_t*>MAP_FAILED:
        return NULL
    start = <uint8_t*>((<uintptr_t>mapped + <uintptr_t>size - 1) & ~<uintptr_t>(size - 1))
    if start > mapped:
        munmap(mapped, <size_t>(start - mapped))
    munmap(start + size, <size_t>(mapped + size - start))
    return <Slab*>start


cdef Slab* new_slab(int index) noexcept nogil:
    """A slab for the class, with free slots. REQUIRES the lock."""
    global empty_bytes, mapped_bytes
    cdef Py_ssize_t size = slab_bytes(index)
    cdef Slab** kept = empty_of(size)
    cdef Slab* slab = kept[0]
    if slab != NULL:
        delist(kept, slab)
        empty_bytes -= size
    else:
        slab = fresh_slab(index)
        if slab == NULL:
            return NULL
        mapped_bytes += size
    slabs_of[index] += 1
    slab.free, slab.taken, slab.cut = NULL, 0, 0
    enlist(&with_room[index], slab)
    return slab


cdef Slab* fresh_slab(int index) noexcept nogil:
    """Memory for a slab of the class, from the pool or the system; NULL if out of memory. REQUIRES the lock."""
    cdef Py_ssize_t size = slab_bytes(index)
    cdef bint is_large = size > SMALL_SLAB, is_early = mapped_bytes < FIRST_BYTES or slabs_of[index] == 0
    cdef Slab* slab = NULL
    if not is_large:
        slab = <Slab*>(pool_reuse(size) if is_early else pool_acquire(size))
    if slab != NULL:
        slab.is_pooled = True
        return slab
    slab = map_slab(size)
    if slab != NULL and is_large and mapped_bytes >= FIRST_BYTES:
        ask_huge(slab, <size_t>size)
    if slab != NULL:
        slab.is_pooled = False
    return slab


cdef uint8_t* slab_acquire(Py_ssize_t size) noexcept nogil:
    global cut_bytes, taken_bytes
    cdef int index = class_of(size)
    cdef Slab* slab
    cdef uint8_t* slot = NULL
    if index < 0:
        return pool_acquire(size)
    pthread_mutex_lock(&lock)
    slab = with_room[index] if with_room[index] != NULL else new_slab(index)
    if slab != NULL:
        slot = <uint8_t*>slab.free
        if slot != NULL:
            slab.free = slab.free.next
        else:
            slot = <uint8_t*>slab + HEADER_BYTES + slab.cut * class_bytes(index)
            slab.cut += 1
            cut_bytes += class_bytes(index)
        slab.taken += 1
        taken_bytes += class_bytes(index)
        if slab.taken == slots_of(index):
            delist(&with_room[index], slab)
    pthread_mutex_unlock(&lock)
    return slot


cdef void slab_release(uint8_t* memory, Py_ssize_t size) noexcept nogil:
    global cut_bytes, empty_bytes, mapped_bytes, taken_bytes
    cdef int index = class_of(size)
    cdef FreeSlot* slot = <FreeSlot*>memory
    cdef Slab* slab
    cdef bint is_surplus = False
    if index < 0 or memory == NULL:
        pool_release(memory, size)
        return
    slab = <Slab*>(<uintptr_t>memory & ~<uintptr_t>(slab_bytes(index) - 1))
    pthread_mutex_lock(&lock)
    if slab.taken == slots_of(index):
        enlist(&with_room[index], slab)
    slot.next, slab.free = slab.free, slot
    slab.taken -= 1
    taken_bytes -= class_bytes(index)
    if slab.taken == 0:
        delist(&with_room[index], slab)
        slabs_of[index] -= 1
        cut_bytes -= slab.cut * class_bytes(index)
        is_surplus = empty_bytes + slab_bytes(index) > KEPT_BYTES
        if is_surplus:
            mapped_bytes -= slab_bytes(index)
        else:
            enlist(empty_of(slab_bytes(index)), slab)
            empty_bytes += slab_bytes(index)
    pthread_mutex_unlock(&lock)
    if is_surplus and slab.is_pooled:
        pool_release(<uint8_t*>slab, slab_bytes(index))
    elif is_surplus:
        munmap(slab, <size_t>slab_bytes(index))


cdef Py_ssize_t slab_capacity(Py_ssize_t size) noexcept nogil:
    cdef int index = class_of(size)
    return class_bytes(index) if index >= 0 else pool_capacity(size)


cdef Py_ssize_t slab_share(Py_ssize_t size) noexcept nogil:
    cdef int index = class_of(size)
    return slab_bytes(index) // slots_of(index) if index >= 0 else pool_capacity(size)


cdef Py_ssize_t slab_idle() noexcept nogil:
    return empty_bytes + cut_bytes - taken_bytes


def slab_totals() -> tuple[int, int]:
    """(bytes mapped, bytes of allocated slots) at this moment."""
    return mapped_bytes, taken_bytes
