"""SlotTable: the hash table of an interner. One writer, no locks."""

cimport cython
from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.string cimport memset

from relational.hash.record_arena cimport RecordArena

cdef enum:
    FIRST_EXPONENT = 10         # log2 of the slots of an empty table
    AT_ONCE_EXPONENT = 20       # below it a table is doubled at once, in a few milliseconds
    MOVED_SLOTS = 8             # for each row to come: it has moved before an eighth of the slots are filled


@cython.final
cdef class SlotTable:
    """A table without entries."""

    def __init__(self):
        self.replace(1 << FIRST_EXPONENT)

    @property
    def size_bytes(self):
        """Memory used; from any thread."""
        cdef RecordArena old = self.old_memory
        return self.memory.capacity + (old.capacity if old is not None else 0)

    cdef Room make_room(self, Py_ssize_t count, Py_ssize_t more) except *:
        cdef const Slots* old = &self.tables.slots[OLD]
        cdef uint64_t slots = self.tables.slots[CURRENT].mask + 1, wanted = slots
        if old.data != NULL and self.tables.moved > old.mask:
            self.drop_old()
        while <uint64_t>(count + more) * 8 > wanted * 5:
            wanted *= 2
        if wanted > slots:
            if wanted > 2 * slots or slots < (1 << AT_ONCE_EXPONENT) or old.data != NULL:
                self.replace(wanted)
                return EMPTIED
            self.begin_doubling()
        elif old.data == NULL:
            return READY
        with nogil:
            self.begin_part(MOVED_SLOTS * <uint64_t>more, <uint64_t>more)
        return MOVING

    cdef int take(self, int32_t* ids, int most) noexcept nogil:
        cdef uint32_t* slot
        cdef uint32_t entry, mask = <uint32_t>self.tables.slots[OLD].mask
        cdef int count = 0
        while self.taken < self.end and count < most:
            slot = self.old_slot(self.taken)
            entry, slot[0] = slot[0], EMPTY
            ids[count] = <int32_t>(entry & mask)
            count += entry != EMPTY
            self.taken += 1
        return count

    cdef int clear(self, uint64_t kept_slots) except -1:
        cdef const Slots* current = &self.tables.slots[CURRENT]
        if current.mask >= kept_slots:
            return self.replace(1 << FIRST_EXPONENT)
        self.drop_old()
        with nogil:
            memset(current.data, 0xFF, (current.mask + 1) * sizeof(uint32_t))
        return 0

    cdef int replace(self, uint64_t slots) except -1:
        """By an empty table."""
        self.set_current(slots)
        return self.clear(slots)

    cdef int set_current(self, uint64_t slots) except -1:
        """Allocates slots, which are not yet written; without memory for them nothing changes."""
        cdef Slots* current = &self.tables.slots[CURRENT]
        cdef RecordArena memory = RecordArena()
        memory.reserve(slots * sizeof(uint32_t))
        self.memory = memory
        current.data, current.mask, current.shift = <uint32_t*>memory.data, slots - 1, 64
        while slots > 1:
            slots >>= 1
            current.shift -= 1
        return 0

    cdef void drop_old(self):
        self.tables.slots[OLD].data, self.old_memory = NULL, None

    cdef int begin_doubling(self) except -1:
        cdef Slots old = self.tables.slots[CURRENT]
        cdef RecordArena memory = self.memory
        self.set_current(2 * (old.mask + 1))
        self.tables.slots[OLD], self.old_memory = old, memory
        self.tables.moved = self.cleared = self.tables.start = 0
        while old.data[self.tables.start] != EMPTY:
            self.tables.start += 1
        self.tables.start = (self.tables.start + 1) & old.mask
        return 0

    cdef void begin_part(self, uint64_t slots, uint64_t more) noexcept nogil:
        """The next part moves at least so many slots; so many rows may be added before the one after it."""
        cdef uint64_t last = self.tables.slots[OLD].mask, used = 2 * self.tables.moved, entries
        self.taken, self.end = self.tables.moved, min(self.tables.moved + slots, last + 1)
        while self.end <= last and self.old_slot(self.end - 1)[0] != EMPTY:
            self.end += 1
        if self.end > last:
            while self.old_slot(self.end)[0] != EMPTY:      # of the last slots' entries, in slots that were moved first
                self.end += 1
        # Entries of moved slots reach from 2 * moved on to the next empty slot, and no further.
        while used < self.cleared and self.current_slot(used)[0] != EMPTY:
            used += 1
        entries = self.end - self.tables.moved + more
        self.clear_to(min(max(used, 2 * self.end) + entries + 1, self.tables.slots[CURRENT].mask + 1))
        self.tables.moved = self.end

    cdef void clear_to(self, uint64_t position) noexcept nogil:
        """Writes the slots of the new table below a position."""
        cdef const Slots* current = &self.tables.slots[CURRENT]
        cdef uint64_t first = (2 * self.tables.start + self.cleared) & current.mask, slots, before_end
        if position <= self.cleared:
            return
        slots = position - self.cleared
        self.cleared = position
        before_end = min(slots, current.mask + 1 - first)
        memset(current.data + first, 0xFF, before_end * sizeof(uint32_t))
        memset(current.data, 0xFF, (slots - before_end) * sizeof(uint32_t))

    cdef uint32_t* old_slot(self, uint64_t position) noexcept nogil:
        cdef const Slots* old = &self.tables.slots[OLD]
        return old.data + ((self.tables.start + position) & old.mask)

    cdef uint32_t* current_slot(self, uint64_t position) noexcept nogil:
        cdef const Slots* current = &self.tables.slots[CURRENT]
        return current.data + ((2 * self.tables.start + position) & current.mask)
