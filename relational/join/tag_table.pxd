"""TagTable: row numbers by a tag, which several rows may share.

    slot   the front of the tag, or the next free one after it

A lookup has to compare the rows themselves, since tags collide.
"""

cimport cython
from libc.stdint cimport int32_t, uint32_t

from relational.hash.record_arena cimport RecordArena

cdef struct TagSlot:
    uint32_t tag
    int32_t row             # negative if the slot is empty


@cython.final
cdef class TagTable:
    cdef readonly Py_ssize_t count
    cdef RecordArena slots                 # TagSlot[mask + 1], a power of two of them, at most 5/8 taken; or nothing
    cdef uint32_t mask
    cdef int shift                          # a tag shifted right by it is its slot

    cdef int put(self, uint32_t tag, int32_t row) except -1 nogil
    cdef void drop(self, uint32_t tag, int32_t row) noexcept nogil      # REQUIRES that it is there
    cdef int grow(self) except -1

    cdef inline uint32_t home(self, uint32_t tag) noexcept nogil:
        """REQUIRES that a row was put."""
        return tag >> self.shift

    cdef inline TagSlot* slot(self, uint32_t at) noexcept nogil:
        """Of any number: the table is a ring. REQUIRES that a row was put."""
        return <TagSlot*>self.slots.data + (at & self.mask)
