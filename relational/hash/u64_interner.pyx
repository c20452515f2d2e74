"""U64Interner: assigns dense ids to 64-bit words.

The slot of a row is prefetched some rows before it is read, and with what it has the word that it refers to, so that
cache misses overlap. One writer, no locks.
"""

cimport cython
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from hummock.base.prefetch cimport prefetch, prefetch_for_write
from relational.chunk.scalar cimport load64, uint128_t
from relational.hash.record_arena cimport RecordArena

cdef enum:
    AHEAD = 32              # rows between prefetching a slot and using it
    NEAR = 16               # rows between prefetching a word and reading it
    FIRST_EXPONENT = 10     # log2 of the slots of an empty index
    MOST_WORDS = 0x7FFFFFF0
    EMPTY = 0xFFFFFFFF      # slot

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
        self.slots, self.words = RecordArena(), RecordArena()
        self.make_room(1)

    @property
    def size_bytes(self):
        """Memory used by slots and words."""
        return self.slots.capacity + self.words.capacity

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
            fill_slots(self, first)

    cdef int make_room(self, Py_ssize_t more) except -1:
        cdef uint64_t wanted = <uint64_t>1 << FIRST_EXPONENT
        if self.count + more > MOST_WORDS:
            raise OverflowError(f"{self.count} keys and {more} more: numbers are int32")
        self.words.reserve(more * sizeof(uint64_t))
        cdef int shift = 64 - FIRST_EXPONENT
        while <uint64_t>(self.count + more) * 8 > wanted * 5:
            wanted *= 2
            shift -= 1
        if self.slots.size >= <Py_ssize_t>(wanted * sizeof(uint32_t)):
            return 0
        self.slots = RecordArena()
        self.slots.reserve(wanted * sizeof(uint32_t))
        self.slots.size = wanted * sizeof(uint32_t)
        self.shift = shift
        with nogil:
            memset(self.slots.data, 0xFF, self.slots.size)
            fill_slots(self, 0)
        return 0

    cdef void find_words(self, const uint8_t* words, const uint8_t* presence, Py_ssize_t rows, int32_t* out,
                         bint is_adding) noexcept nogil:
        cdef uint32_t* slots = <uint32_t*>self.slots.data
        cdef const uint64_t* known = <const uint64_t*>self.words.data
        cdef uint64_t mask = self.slots.size // sizeof(uint32_t) - 1, word, hash, at
        cdef uint64_t hashes[AHEAD]         # of the next rows, each at its number modulo AHEAD
        cdef uint32_t ids = <uint32_t>mask, tag
        cdef int shift = self.shift
        cdef Py_ssize_t row
        for row in range(min(rows, <Py_ssize_t>AHEAD)):
            hashes[row] = spread(load64(words + 8 * row))
            prefetch(slots + (hashes[row] >> shift))
        for row in range(rows):
            hash = hashes[row % AHEAD]
            if row + AHEAD < rows:
                hashes[row % AHEAD] = spread(load64(words + 8 * (row + AHEAD)))
                prefetch(slots + (hashes[row % AHEAD] >> shift))
            if row + NEAR < rows:
                prefetch(known + (slots[hashes[(row + NEAR) % AHEAD] >> shift] & ids))
            if presence != NULL and presence[row] != PRESENT:
                if presence[row] == NO_WORD and is_adding and self.null_number < 0:
                    self.null_number = <int32_t>self.count
                    self.add_word(0)
                out[row] = self.null_number if presence[row] == NO_WORD else -1
                continue
            word = load64(words + 8 * row)
            at, tag = hash >> shift, tag_of(hash, shift, ids)
            while slots[at] != EMPTY and ((slots[at] & ~ids) != tag or known[slots[at] & ids] != word):
                at = (at + 1) & mask
            if slots[at] != EMPTY:
                out[row] = <int32_t>(slots[at] & ids)
            elif is_adding:
                out[row] = self.add_word(word)
                slots[at] = tag | <uint32_t>out[row]
            else:
                out[row] = -1

    cdef int32_t add_word(self, uint64_t word) noexcept nogil:
        (<uint64_t*>self.words.data)[self.count] = word
        self.words.size += sizeof(uint64_t)
        self.count += 1
        return <int32_t>(self.count - 1)


cdef inline uint32_t tag_of(uint64_t hash, int shift, uint32_t ids) noexcept nogil:
    """The bits of a slot that do not belong to the id."""
    return <uint32_t>((hash << (64 - shift)) >> 32) & ~ids


cdef void fill_slots(U64Interner index, Py_ssize_t first) noexcept nogil:
    """Fills slots for all words from id `first` on, except "no word". REQUIRES that none of them has one."""
    cdef uint32_t* slots = <uint32_t*>index.slots.data
    cdef const uint64_t* words = <const uint64_t*>index.words.data
    cdef uint64_t hash, at, mask = index.slots.size // sizeof(uint32_t) - 1
    cdef Py_ssize_t number
    for number in range(first, index.count):
        if number + AHEAD < index.count:
            prefetch_for_write(slots + (spread(words[number + AHEAD]) >> index.shift))
        if number == index.null_number:
            continue
        hash = spread(words[number])
        at = hash >> index.shift
        while slots[at] != EMPTY:
            at = (at + 1) & mask
        slots[at] = tag_of(hash, index.shift, <uint32_t>mask) | <uint32_t>number
