"""U64Interner: assigns dense ids to 64-bit words, one cache line per lookup.

The memory of a row is prefetched some rows before it is read, so that cache misses overlap. One writer, no locks.
"""

cimport cython
from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.string cimport memset

from hummock.base.prefetch cimport prefetch, prefetch_for_write
from relational.chunk.scalar cimport load64, uint128_t
from relational.hash.record_arena cimport RecordArena

cdef enum:
    AHEAD = 32              # rows between prefetching a slot and reading it
    FIRST_EXPONENT = 10     # log2 of the slots of an empty index
    STRIDE = 256            # slots moved, or cleared, together
    MOST_WORDS = 0x7FFFFFF0

cdef uint64_t SALT = <uint64_t>0xD1B54A32D192ED03
cdef uint64_t SPREAD = <uint64_t>0x9E3779B97F4A7C15


cdef inline uint64_t spread(uint64_t word) noexcept nogil:
    """A hash in which every bit depends on all bits of the word."""
    cdef uint128_t product = <uint128_t>(word ^ SALT) * SPREAD
    return <uint64_t>product ^ <uint64_t>(product >> 64)


@cython.final
cdef class U64Interner:
    """A bijection between words and the ids below `count`. Only `keep` changes ids."""

    def __init__(self):
        self.null_number = -1
        self.slots, self.words = RecordArena(), RecordArena()
        self.make_room(1)

    @property
    def size_bytes(self):
        """Memory used by slots and words."""
        return self.slots.capacity + self.words.capacity

    def keep(self, const int32_t[::1] ids not None):
        """Renumbers the words of `ids` to 0, 1, 2 …, in order, and removes the others. REQUIRES them distinct."""
        cdef U64Interner kept = U64Interner()
        cdef Py_ssize_t row
        kept.make_room(ids.shape[0])
        for row in range(ids.shape[0]):
            if ids[row] == self.null_number:
                kept.null_number = <int32_t>row
            kept.add_word((<uint64_t*>self.words.data)[ids[row]])
        self.count, self.null_number, self.shift = kept.count, kept.null_number, kept.shift
        self.slots, self.words = kept.slots, kept.words
        fill_slots(self)

    cdef int make_room(self, Py_ssize_t more) except -1:
        cdef uint64_t wanted = <uint64_t>1 << FIRST_EXPONENT
        if self.count + more > MOST_WORDS:
            raise OverflowError(f"{self.count} keys and {more} more: numbers are int32")
        self.words.reserve(more * sizeof(uint64_t))
        cdef int shift = 64 - FIRST_EXPONENT
        cdef RecordArena before = self.slots
        while <uint64_t>(self.count + more) * 8 > wanted * 5:
            wanted *= 2
            shift -= 1
        if self.slots.size >= <Py_ssize_t>(wanted * sizeof(WordSlot)):
            return 0
        self.slots = RecordArena()
        self.slots.reserve(wanted * sizeof(WordSlot))
        self.slots.size = wanted * sizeof(WordSlot)
        self.shift = shift
        with nogil:
            move_slots(<const WordSlot*>before.data, before.size // sizeof(WordSlot), self.slots, shift)
        return 0

    cdef void find_words(self, const uint8_t* words, const uint8_t* presence, Py_ssize_t rows, int32_t* out,
                         bint is_adding) noexcept nogil:
        cdef WordSlot* slots = <WordSlot*>self.slots.data
        cdef uint64_t mask = self.slots.size // sizeof(WordSlot) - 1, word, at
        cdef int shift = self.shift
        cdef Py_ssize_t row
        for row in range(min(rows, <Py_ssize_t>AHEAD)):
            prefetch(slots + (spread(load64(words + 8 * row)) >> shift))
        for row in range(rows):
            if row + AHEAD < rows:
                prefetch(slots + (spread(load64(words + 8 * (row + AHEAD))) >> shift))
            if presence != NULL and presence[row] != PRESENT:
                if presence[row] == NO_WORD and is_adding and self.null_number < 0:
                    self.null_number = <int32_t>self.count
                    self.add_word(0)
                out[row] = self.null_number if presence[row] == NO_WORD else -1
                continue
            word = load64(words + 8 * row)
            at = spread(word) >> shift
            while slots[at].word != word and slots[at].number >= 0:
                at = (at + 1) & mask
            if slots[at].number < 0 and is_adding:
                slots[at].word, slots[at].number = word, self.add_word(word)
            out[row] = slots[at].number

    cdef int32_t add_word(self, uint64_t word) noexcept nogil:
        (<uint64_t*>self.words.data)[self.count] = word
        self.words.size += sizeof(uint64_t)
        self.count += 1
        return <int32_t>(self.count - 1)


cdef void move_slots(const WordSlot* before, Py_ssize_t count, RecordArena into, int shift) noexcept nogil:
    """Moves the entries of `before` into uninitialized slots. The index of a slot is the high bits of its hash, so both
    arrays are traversed in order, and slots are cleared on the way.
    """
    cdef WordSlot* slots = <WordSlot*>into.data
    cdef WordSlot taken[STRIDE]
    cdef Py_ssize_t all_slots = into.size // sizeof(WordSlot), emptied = STRIDE, first = 0, found, i
    cdef uint64_t at, mask = all_slots - 1
    memset(slots, 0xFF, STRIDE * sizeof(WordSlot))
    while first < count:                        # count is a multiple of STRIDE
        found = 0
        for i in range(first, first + STRIDE):  # branchless: half of the slots are free
            taken[found] = before[i]
            found += before[i].number >= 0
        for i in range(found):
            at = spread(taken[i].word) >> shift
            while True:
                if <Py_ssize_t>at >= emptied:
                    memset(slots + emptied, 0xFF, STRIDE * sizeof(WordSlot))
                    emptied += STRIDE
                elif slots[at].number < 0:
                    break
                else:
                    at = (at + 1) & mask
            slots[at] = taken[i]
        first += STRIDE
    memset(slots + emptied, 0xFF, (all_slots - emptied) * sizeof(WordSlot))


cdef void fill_slots(U64Interner index) noexcept nogil:
    """Inserts every word except "no word" into empty slots."""
    cdef WordSlot* slots = <WordSlot*>index.slots.data
    cdef const uint64_t* words = <const uint64_t*>index.words.data
    cdef uint64_t at, mask = index.slots.size // sizeof(WordSlot) - 1
    cdef Py_ssize_t number
    for number in range(index.count):
        if number + AHEAD < index.count:
            prefetch_for_write(slots + (spread(words[number + AHEAD]) >> index.shift))
        if number == index.null_number:
            continue
        at = spread(words[number]) >> index.shift
        while slots[at].number >= 0:
            at = (at + 1) & mask
        slots[at].word, slots[at].number = words[number], <int32_t>number
