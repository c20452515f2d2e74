"""U64Interner: assigns dense ids to 64-bit words.

The slot of a row is prefetched some rows before it is read, and with what it has the word that it refers to, so that
cache misses overlap. One writer, no locks.
"""

cimport cython
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from hummock.base.prefetch cimport prefetch, prefetch_for_write
from relational.chunk.scalar cimport load64, uint128_t
from relational.hash.record_arena cimport RecordArena
from relational.hash.slot_table cimport (
    CURRENT, EMPTY, MOVING, OLD, READY, Room, Slots, SlotTable, Tables, first_slot, put_in, slots_of, tag_of,
)

cdef enum:
    AHEAD = 32              # rows between prefetching a slot and using it
    NEAR = 16               # rows between prefetching a word and reading it
    MOST_WORDS = 0x7FFFFFF0

cdef uint64_t SALT = <uint64_t>0xD1B54A32D192ED03
cdef uint64_t SPREAD = <uint64_t>0x9E3779B97F4A7C15


cdef inline uint64_t spread(uint64_t word) noexcept nogil:
    """A hash in which every bit depends on all bits of the word."""
    cdef uint128_t product = <uint128_t>(word ^ SALT) * SPREAD
    return <uint64_t>product ^ <uint64_t>(product >> 64)


@cython.final
cdef class U64Interner:
    """A bijection between words and the ids below `count`."""

    def __init__(self):
        self.null_number = -1
        self.table, self.words = SlotTable(), RecordArena()

    @property
    def size_bytes(self):
        """Memory used by slots and words."""
        return self.table.size_bytes + self.words.capacity

    def add_from(self, U64Interner source not None, const int32_t[::1] ids not None):
        """Gives the next ids to the words of `ids` in another interner. REQUIRES that they are distinct, and not known
        here."""
        cdef const uint64_t* words = <const uint64_t*>source.words.data
        cdef Py_ssize_t row, rows = ids.shape[0], first = self.count
        self.make_room(rows)
        with nogil:
            for row in range(rows):
                if row + AHEAD < rows:
                    prefetch(words + ids[row + AHEAD])
                if ids[row] == source.null_number:
                    self.null_number = <int32_t>self.count
                self.add_word(words[ids[row]])
            self.put_words(first)

    cdef int make_room(self, Py_ssize_t more) except -1:
        cdef Room room
        if self.count + more > MOST_WORDS:
            raise OverflowError(f"{self.count} keys and {more} more: numbers are int32")
        self.words.reserve(more * sizeof(uint64_t))
        room = self.table.make_room(self.count, more)
        if room == READY:
            return 0
        with nogil:
            if room == MOVING:
                self.move_words()
            else:
                self.put_words(0)
        return 0

    cdef void find_words(self, const uint8_t* words, const uint8_t* presence, Py_ssize_t rows, int32_t* out,
                         bint is_adding) noexcept nogil:
        if self.table.tables.slots[OLD].data == NULL:
            self.find_in(words, presence, rows, out, is_adding, False)
        else:
            self.find_in(words, presence, rows, out, is_adding, True)

    cdef inline void find_in(self, const uint8_t* words, const uint8_t* presence, Py_ssize_t rows, int32_t* out,
                             bint is_adding, bint is_doubling) noexcept nogil:
        cdef Tables tables = self.table.tables      # a copy, which a store to a slot does not invalidate
        cdef Slots slots
        cdef const uint64_t* known = <const uint64_t*>self.words.data
        cdef uint64_t hashes[AHEAD]         # of the next rows, each at its number modulo AHEAD
        cdef uint64_t word, hash, at
        cdef uint32_t ids, tag
        cdef Py_ssize_t row
        for row in range(min(rows, <Py_ssize_t>AHEAD)):
            hashes[row] = spread(load64(words + 8 * row))
            prefetch(first_slot(&tables, hashes[row], is_doubling))
        for row in range(rows):
            hash = hashes[row % AHEAD]
            if row + AHEAD < rows:
                hashes[row % AHEAD] = spread(load64(words + 8 * (row + AHEAD)))
                prefetch(first_slot(&tables, hashes[row % AHEAD], is_doubling))
            if row + NEAR < rows:
                slots = slots_of(&tables, hashes[(row + NEAR) % AHEAD], is_doubling)
                prefetch(known + (slots.data[hashes[(row + NEAR) % AHEAD] >> slots.shift] & slots.mask))
            if presence != NULL and presence[row] != PRESENT:
                if presence[row] == NO_WORD and is_adding and self.null_number < 0:
                    self.null_number = <int32_t>self.count
                    self.add_word(0)
                out[row] = self.null_number if presence[row] == NO_WORD else -1
                continue
            word, slots = load64(words + 8 * row), slots_of(&tables, hash, is_doubling)
            at, tag, ids = hash >> slots.shift, tag_of(slots, hash), <uint32_t>slots.mask
            while slots.data[at] != EMPTY and ((slots.data[at] & ~ids) != tag or known[slots.data[at] & ids] != word):
                at = (at + 1) & slots.mask
            if slots.data[at] != EMPTY:
                out[row] = <int32_t>(slots.data[at] & ids)
            elif is_adding:
                out[row] = self.add_word(word)
                slots.data[at] = tag | <uint32_t>out[row]
            else:
                out[row] = -1

    cdef int32_t add_word(self, uint64_t word) noexcept nogil:
        (<uint64_t*>self.words.data)[self.count] = word
        self.words.size += sizeof(uint64_t)
        self.count += 1
        return <int32_t>(self.count - 1)

    cdef void put_words(self, Py_ssize_t first) noexcept nogil:
        """Puts all words from id `first` on, except "no word". REQUIRES that none of them has a slot."""
        cdef const uint64_t* words = <const uint64_t*>self.words.data
        cdef Py_ssize_t number
        for number in range(first, self.count):
            if number + AHEAD < self.count:
                prefetch_for_write(first_slot(&self.table.tables, spread(words[number + AHEAD])))
            if number != self.null_number:
                self.table.put(spread(words[number]), <uint32_t>number)

    cdef void move_words(self) noexcept nogil:
        """Puts the words that the table moves now."""
        cdef const uint64_t* words = <const uint64_t*>self.words.data
        cdef int32_t ids[2][AHEAD]          # the words of one are read while those of the other are put
        cdef int i, next, now = 0, count = self.table.take(ids[0], AHEAD)
        while count:
            next = self.table.take(ids[1 - now], AHEAD)
            for i in range(next):
                prefetch(words + ids[1 - now][i])
            for i in range(count):
                put_in(self.table.tables.slots[CURRENT], spread(words[ids[now][i]]), <uint32_t>ids[now][i])
            count, now = next, 1 - now
