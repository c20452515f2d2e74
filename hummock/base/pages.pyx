"""Large memory as pages of its own. Copying it to grow made an eighth of an aggregation whose groups grow."""

from libc.stdint cimport uint8_t, uintptr_t

from hummock.base.posix cimport HUGE_PAGE_BYTES, MAP_FAILED, ask_huge, map_pages, move_pages, munmap
from hummock.base.posix cimport pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock

cdef enum:
    SMALL_PAGE_BYTES = 64 << 10         # the largest that Linux has

cdef pthread_mutex_t lock
cdef Py_ssize_t mapped_bytes = 0        # guarded by `lock`

pthread_mutex_init(&lock, NULL)


def mapped_page_bytes() -> int:
    """Bytes of all memory that has pages of its own."""
    return mapped_bytes


cdef void count_mapped(Py_ssize_t more) noexcept nogil:
    global mapped_bytes
    pthread_mutex_lock(&lock)
    mapped_bytes += more
    pthread_mutex_unlock(&lock)


cdef inline Py_ssize_t whole_pages(Py_ssize_t size) noexcept nogil:
    return (size + SMALL_PAGE_BYTES - 1) & ~<Py_ssize_t>(SMALL_PAGE_BYTES - 1)


cdef uint8_t* map_aligned(Py_ssize_t capacity) noexcept nogil:
    cdef Py_ssize_t wanted = whole_pages(capacity), before
    cdef uint8_t* found = <uint8_t*>map_pages(<size_t>(wanted + HUGE_PAGE_BYTES))
    if <void*>found == MAP_FAILED:
        return NULL
    before = <Py_ssize_t>(-<uintptr_t>found & <uintptr_t>(HUGE_PAGE_BYTES - 1))
    if before:
        munmap(found, <size_t>before)
    munmap(found + before + wanted, <size_t>(HUGE_PAGE_BYTES - before))
    ask_huge(found + before, <size_t>wanted)
    count_mapped(wanted)
    return found + before


cdef uint8_t* regrow(uint8_t* memory, Py_ssize_t capacity, Py_ssize_t wanted) noexcept nogil:
    cdef uint8_t* made = map_aligned(wanted)
    if made == NULL:
        return NULL
    if move_pages(memory, <size_t>whole_pages(capacity), made, <size_t>whole_pages(wanted)):
        count_mapped(-whole_pages(capacity))
        return made
    count_mapped(-whole_pages(wanted))
    return NULL


cdef void shrink(uint8_t* memory, Py_ssize_t capacity, Py_ssize_t wanted) noexcept nogil:
    cdef Py_ssize_t kept = whole_pages(wanted), gone = whole_pages(capacity) - kept
    if gone > 0:
        munmap(memory + kept, <size_t>gone)
        count_mapped(-gone)


cdef void unmap(uint8_t* memory, Py_ssize_t capacity) noexcept nogil:
    munmap(memory, <size_t>whole_pages(capacity))
    count_mapped(-whole_pages(capacity))
