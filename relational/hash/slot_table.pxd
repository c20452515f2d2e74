"""SlotTable: the hash table of an interner, 4 bytes a slot. The interner has the words or keys, by id.

    hash    index of the first slot (b bits) | tag (32 - b bits) | …
    slot    tag | id (b bits); all ones: empty

Collisions go to the next slots (linear probing). Because the index is the upper bits of the hash, a table of twice the
size has the same order: what begins at slot i of the small one begins at slot 2i or 2i + 1 of the large one. So a table
doubles in parts [incremental rehashing, in the order of linear hashing: Litwin 1980], each of them before some rows
are added: the entries of the next slots of the old table move to the new one, whose memory is touched in that order.
Until the last part an entry is in the one or in the other, as its first slot says.
"""

cimport cython
from libc.stdint cimport int32_t, uint32_t, uint64_t

from relational.hash.record_arena cimport RecordArena

cdef enum:
    EMPTY = 0xFFFFFFFF      # slot

cdef enum:
    CURRENT = 0             # at most 5/8 used
    OLD = 1                 # what it replaces, in part; without data if there is none

cdef enum Room:             # what the owner of a table has to do
    READY = 0
    MOVING = 1              # put the ids of `take`, until there is none
    EMPTIED = 2             # put all ids

cdef struct Slots:
    uint32_t* data
    uint64_t mask           # slots - 1, a power of two of them; also the bits of an id
    int shift               # 64 - b


cdef struct Tables:         # positions in the old one count from `start` on and wrap around
    Slots[2] slots          # CURRENT and OLD
    uint64_t start          # follows an empty slot
    uint64_t moved          # below it all slots are moved, and empty, or are about to; it follows an empty slot


cdef inline uint32_t tag_of(Slots slots, uint64_t hash) noexcept nogil:
    """The bits of a slot that do not belong to the id."""
    return <uint32_t>((hash << (64 - slots.shift)) >> 32) & ~<uint32_t>slots.mask


cdef inline Slots slots_of(const Tables* tables, uint64_t hash, bint is_doubling=True) noexcept nogil:
    """The table that has, or gets, the entry of a hash. `is_doubling` is False, a constant, only in code for a table
    without an old one."""
    cdef const Slots* old = &tables.slots[OLD]
    if not is_doubling or old.data == NULL:
        return tables.slots[CURRENT]
    return tables.slots[(((hash >> old.shift) - tables.start) & old.mask) >= tables.moved]      # without a branch


cdef inline uint32_t* first_slot(const Tables* tables, uint64_t hash, bint is_doubling=True) noexcept nogil:
    cdef Slots slots = slots_of(tables, hash, is_doubling)
    return slots.data + (hash >> slots.shift)


cdef inline void put_in(Slots slots, uint64_t hash, uint32_t id) noexcept nogil:
    """Adds the entry of an id that has none. REQUIRES capacity."""
    cdef uint64_t at = hash >> slots.shift
    while slots.data[at] != EMPTY:
        at = (at + 1) & slots.mask
    slots.data[at] = tag_of(slots, hash) | id


@cython.final
cdef class SlotTable:
    cdef Tables tables
    cdef RecordArena memory
    cdef RecordArena old_memory
    cdef uint64_t taken     # below it the old slots are moved, while a part moves
    cdef uint64_t end       # of the part; beyond the last slot by the entries that went round to the first ones
    cdef uint64_t cleared   # below it the current slots have been written, from 2 * start on

    cdef inline void put(self, uint64_t hash, uint32_t id) noexcept nogil:
        put_in(slots_of(&self.tables, hash), hash, id)

    cdef Room make_room(self, Py_ssize_t count, Py_ssize_t more) except *      # capacity for `more` beyond `count`
    cdef int take(self, int32_t* ids, int most) noexcept nogil      # the next ids that move; 0: the part is moved
    cdef int clear(self, uint64_t kept_slots) except -1             # removes all entries; a larger table is released

    cdef int replace(self, uint64_t slots) except -1
    cdef int set_current(self, uint64_t slots) except -1
    cdef void drop_old(self)
    cdef int begin_doubling(self) except -1
    cdef void begin_part(self, uint64_t slots, uint64_t more) noexcept nogil
    cdef void clear_to(self, uint64_t position) noexcept nogil
    cdef uint32_t* old_slot(self, uint64_t position) noexcept nogil
    cdef uint32_t* current_slot(self, uint64_t position) noexcept nogil
