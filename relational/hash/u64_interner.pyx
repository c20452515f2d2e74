"""U64Interner: assigns dense ids to 64-bit words, one cache line per lookup.

The memory of a row is prefetched some rows before it is read, so that cache misses overlap. One writer, no locks.
"""

cimport cython
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from hummock.base.prefetch cimport prefetch
from relational.chunk.scalar cimport load64, uint128_t
from relational.hash.record_arena cimport RecordArena
from relational.hash.slot_segments cimport SlotSegments, SlotView, segment_of

cdef enum:
    AHEAD = 32              # rows between prefetching a slot and reading it
    BLOCK = 256             # words that are kept together
    MOST_WORDS = 0x7FFFFFF0

cdef uint64_t SALT = <uint64_t>0xD1B54A32D192ED03
cdef uint64_t SPREAD = <uint64_t>0x9E3779B97F4A7C15


cdef inline uint64_t spread(uint64_t word) noexcept nogil:
    """A hash in which every bit depends on all bits of the word."""
    cdef uint128_t product = <uint128_t>(word ^ SALT) * SPREAD
    return <uint64_t>product ^ <uint64_t>(product >> 64)


cdef inline uint32_t tag_of(uint64_t word) noexcept nogil:
    return <uint32_t>(spread(word) >> 32)


cdef inline void prefetch_slot(const SlotView* view, uint64_t word) noexcept nogil:
    cdef uint32_t tag = tag_of(word)
    prefetch(<const WordSlot*>segment_of(view, tag) + (tag & view.mask))


@cython.final
cdef class U64Interner:
    """A bijection between words and the ids below `count`. Only `keep` changes ids."""

    def __init__(self):
        self.null_number = -1
        self.segments, self.words = SlotSegments(sizeof(WordSlot)), RecordArena()

    @property
    def size_bytes(self):
        """Memory used by slots and words."""
        return self.segments.size_bytes + self.words.capacity

    def keep(self, const int32_t[::1] ids not None):
        """Renumbers the words of `ids` to 0, 1, 2 …, in order, and removes the others. REQUIRES them distinct."""
        cdef U64Interner kept = U64Interner()
        cdef const uint64_t* words = <const uint64_t*>self.words.data
        cdef uint64_t taken[BLOCK]
        cdef uint8_t presence[BLOCK]
        cdef int32_t numbers[BLOCK]
        cdef Py_ssize_t first = 0, row, rows
        kept.make_room(ids.shape[0])
        with nogil:
            while first < ids.shape[0]:
                rows = min(ids.shape[0] - first, <Py_ssize_t>BLOCK)
                for row in range(rows):
                    taken[row] = words[ids[first + row]]
                    presence[row] = NO_WORD if ids[first + row] == self.null_number else PRESENT
                kept.find_words(<const uint8_t*>taken, presence, rows, numbers, True)
                first += rows
        self.count, self.null_number = kept.count, kept.null_number
        self.segments, self.words = kept.segments, kept.words

    cdef int make_room(self, Py_ssize_t more) except -1:
        if self.count + more > MOST_WORDS:
            raise OverflowError(f"{self.count} keys and {more} more: numbers are int32")
        return self.words.reserve(more * sizeof(uint64_t))

    cdef int find_words(self, const uint8_t* words, const uint8_t* presence, Py_ssize_t rows, int32_t* out,
                        bint is_adding) except -1 nogil:
        cdef SlotView view = self.segments.view
        cdef WordSlot* slots
        cdef uint64_t word
        cdef uint32_t tag, at
        cdef Py_ssize_t row
        for row in range(min(rows, <Py_ssize_t>AHEAD)):
            prefetch_slot(&view, load64(words + 8 * row))
        for row in range(rows):
            if row + AHEAD < rows:
                prefetch_slot(&view, load64(words + 8 * (row + AHEAD)))
            if presence != NULL and presence[row] != PRESENT:
                if presence[row] == NO_WORD and is_adding and self.null_number < 0:
                    self.null_number = <int32_t>self.count
                    self.add_word(0)
                out[row] = self.null_number if presence[row] == NO_WORD else -1
                continue
            word = load64(words + 8 * row)
            tag = tag_of(word)
            slots, at = <WordSlot*>segment_of(&view, tag), tag & view.mask
            while slots[at].word != word and slots[at].number >= 0:
                at = (at + 1) & view.mask
            out[row] = slots[at].number
            if slots[at].number < 0 and is_adding:
                slots[at].word, slots[at].tag, slots[at].number = word, tag, self.add_word(word)
                out[row] = slots[at].number
                self.segments.count_added(tag)
                view = self.segments.view
        return 0

    cdef int32_t add_word(self, uint64_t word) noexcept nogil:
        (<uint64_t*>self.words.data)[self.count] = word
        self.words.size += sizeof(uint64_t)
        self.count += 1
        return <int32_t>(self.count - 1)
