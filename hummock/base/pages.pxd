"""Large memory as pages of its own: aligned to huge pages, zeros until it is touched, and grown without a copy."""

from libc.stdint cimport uint8_t

cdef uint8_t* map_aligned(Py_ssize_t capacity) noexcept nogil
# pages of zeros from the start of a huge page on; NULL when out of memory

cdef uint8_t* regrow(uint8_t* memory, Py_ssize_t capacity, Py_ssize_t wanted) noexcept nogil
# moves what `map_aligned(capacity)` returned to where more pages follow it; NULL when out of memory, and `memory` is
# still valid then. REQUIRES can_move_pages

cdef void shrink(uint8_t* memory, Py_ssize_t capacity, Py_ssize_t wanted) noexcept nogil    # keeps `wanted` bytes

cdef void unmap(uint8_t* memory, Py_ssize_t capacity) noexcept nogil    # what one of these returned: the SAME capacity
