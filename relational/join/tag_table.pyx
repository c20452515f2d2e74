"""TagTable: positions of rows by a tag. One writer, no locks."""

cimport cython
from libc.stdint cimport int32_t, uint32_t
from libc.string cimport memset

from relational.hash.record_arena cimport RecordArena

cdef enum:
    FIRST_EXPONENT = 10     # log2 of the slots of a table with one row


@cython.final
cdef class TagTable:
    """A tag and a position may be present several times, once for each list that has them."""

    def __init__(self):
        self.slots = RecordArena()

    cdef int put(self, uint32_t tag, int32_t position) except -1 nogil:
        cdef uint32_t at
        if self.count * 8 >= self.slots.size // <Py_ssize_t>sizeof(TagSlot) * 5:
            with gil:
                self.grow()
        at = self.home(tag)
        while self.slot(at).position >= 0:
            at += 1
        self.slot(at).tag, self.slot(at).position = tag, position
        self.count += 1
        return 0

    cdef uint32_t find(self, uint32_t tag, int32_t position) noexcept nogil:
        cdef uint32_t at = self.home(tag)
        while self.slot(at).tag != tag or self.slot(at).position != position:
            at += 1
        return at

    cdef void move(self, uint32_t tag, int32_t position, int32_t to) noexcept nogil:
        self.slot(self.find(tag, position)).position = to

    cdef void drop(self, uint32_t tag, int32_t position) noexcept nogil:
        cdef uint32_t hole = self.find(tag, position), at = hole + 1
        while self.slot(at).position >= 0:           # entries not reachable across the hole move into it
            if ((at - self.home(self.slot(at).tag)) & self.mask) >= ((at - hole) & self.mask):
                self.slot(hole)[0] = self.slot(at)[0]
                hole = at
            at += 1
        self.slot(hole).position = -1
        self.count -= 1

    cdef int grow(self) except -1:
        cdef RecordArena before = self.slots
        cdef const TagSlot* slots = <const TagSlot*>before.data
        cdef Py_ssize_t count = before.size // <Py_ssize_t>sizeof(TagSlot), i
        cdef Py_ssize_t wanted = max(2 * count, <Py_ssize_t>1 << FIRST_EXPONENT)
        cdef uint32_t at
        self.slots = RecordArena()
        self.slots.reserve(wanted * sizeof(TagSlot))
        self.slots.size = wanted * sizeof(TagSlot)
        self.mask = <uint32_t>(wanted - 1)
        self.shift = self.shift - 1 if count else 32 - FIRST_EXPONENT
        memset(self.slots.data, 0xFF, self.slots.size)
        with nogil:
            for i in range(count):
                if slots[i].position < 0:
                    continue
                at = self.home(slots[i].tag)
                while self.slot(at).position >= 0:
                    at += 1
                self.slot(at)[0] = slots[i]
        return 0
