"""Large memory as pages of its own. Copying it to grow made an eighth of an aggregation whose groups grow."""

from libc.stdint cimport uint8_t, uintptr_t

from hummock.base.posix cimport HUGE_PAGE_BYTES, MAP_FAILED, ask_huge, map_pages, move_pages, munmap

cdef enum:
    SMALL_PAGE_BYTES = 64 << 10     # the largest that Linux has


cdef uint8_t* map_aligned(Py_ssize_t capacity) noexcept nogil:
    cdef uint8_t* found
    cdef Py_ssize_t before
    capacity = whole_pages(capacity)
    found = <uint8_t*>map_pages(<size_t>(capacity + HUGE_PAGE_BYTES))
    if <void*>found == MAP_FAILED:
        return NULL
    before = <Py_ssize_t>(-<uintptr_t>found & <uintptr_t>(HUGE_PAGE_BYTES - 1))
    if before:
        munmap(found, <size_t>before)
    munmap(found + before + capacity, <size_t>(HUGE_PAGE_BYTES - before))
    ask_huge(found + before, <size_t>capacity)
    return found + before


cdef uint8_t* regrow(uint8_t* memory, Py_ssize_t capacity, Py_ssize_t wanted) noexcept nogil:
    cdef uint8_t* made = map_aligned(wanted)
    if made == NULL or move_pages(memory, <size_t>whole_pages(capacity), made, <size_t>whole_pages(wanted)):
        return made
    return NULL


cdef void unmap(uint8_t* memory, Py_ssize_t capacity) noexcept nogil:
    munmap(memory, <size_t>whole_pages(capacity))


cdef inline Py_ssize_t whole_pages(Py_ssize_t size) noexcept nogil:
    return (size + SMALL_PAGE_BYTES - 1) & ~<Py_ssize_t>(SMALL_PAGE_BYTES - 1)
