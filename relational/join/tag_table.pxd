"""TagTable: the positions of rows in the lists of their keys, by a tag, which several rows may share.

    slot   the high bits of the tag, or the next free one after it

A slot does not say which list it belongs to: of slots with the same tag and position any one stands for any other, so a
lookup has to compare the tag at that position of its own list, and then the row.
"""

cimport cython
from libc.stdint cimport int32_t, uint32_t

from relational.hash.record_arena cimport RecordArena

cdef struct TagSlot:
    uint32_t tag
    int32_t position        # negative if the slot is empty


@cython.final
cdef class TagTable:
    cdef readonly Py_ssize_t count
    cdef RecordArena slots              # TagSlot[mask + 1], a power of two of them, at most 5/8 used; or empty
    cdef uint32_t mask
    cdef int shift                          # the slot of a tag is the tag shifted right by it

    cdef int put(self, uint32_t tag, int32_t position) except -1 nogil
    cdef void drop(self, uint32_t tag, int32_t position) noexcept nogil                 # REQUIRES that it is present
    cdef void move(self, uint32_t tag, int32_t position, int32_t to) noexcept nogil     # likewise
    cdef uint32_t find(self, uint32_t tag, int32_t position) noexcept nogil             # its slot; likewise
    cdef int grow(self) except -1

    cdef inline uint32_t home(self, uint32_t tag) noexcept nogil:
        """REQUIRES a non-empty table."""
        return tag >> self.shift

    cdef inline TagSlot* slot(self, uint32_t at) noexcept nogil:
        """The slot at any index: the table is a ring. REQUIRES a non-empty table."""
        return <TagSlot*>self.slots.data + (at & self.mask)
