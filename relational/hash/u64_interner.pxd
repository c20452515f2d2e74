"""U64Interner: assigns dense ids to 64-bit words.

The counterpart of BytesInterner for keys that fit a word: a slot holds the word itself, so a lookup touches one cache
line and compares nothing else. Words get the ids 0, 1, 2 … in the order of their first appearance; "no word" (NULL) is
a key of its own with an id from the same sequence.
"""

cimport cython
from libc.stdint cimport int32_t, uint8_t, uint64_t

from relational.hash.record_arena cimport RecordArena

cdef enum Presence:         # of a row's word
    PRESENT = 0
    NO_WORD = 1             # NULL
    SKIPPED = 2             # the row gets -1

cdef struct WordSlot:
    uint64_t word
    int32_t number          # negative if the slot is empty
    int32_t unused          # four slots to a cache line


@cython.final
cdef class U64Interner:
    cdef readonly Py_ssize_t count      # numbers given out so far
    cdef int32_t null_number            # of "no word"; -1: not met
    cdef RecordArena slots             # WordSlot: a power of two of them, at most 5/8 taken
    cdef int shift                      # a hash shifted right by it is the index of its slot
    cdef RecordArena words               # uint64[count], 0 for "no word"

    cdef int make_room(self, Py_ssize_t more) except -1     # for `more` new words
    cdef void find_words(self, const uint8_t* words, const uint8_t* presence, Py_ssize_t rows, int32_t* out,
                         bint is_adding) noexcept nogil
    # out[rows]: the number of each word (8 bytes each, aligned or not), of a new one the next when adding, else -1;
    # `presence` (Presence[rows]) may be NULL: all are there. REQUIRES room for `rows` when adding
    cdef int32_t add_word(self, uint64_t word) noexcept nogil       # REQUIRES room
