"""U64Interner: assigns dense ids to 64-bit words.

The counterpart of BytesInterner for keys that fit a word. Words get the ids 0, 1, 2 … in the order of their first
appearance; "no word" (NULL) is a key of its own with an id from the same sequence.
"""

cimport cython
from libc.stdint cimport int32_t, uint8_t, uint64_t

from relational.hash.record_arena cimport RecordArena
from relational.hash.slot_table cimport SlotTable

cdef enum Presence:         # of the word of a row
    PRESENT = 0
    NO_WORD = 1             # NULL
    SKIPPED = 2             # the row gets -1

@cython.final
cdef class U64Interner:
    cdef readonly Py_ssize_t count      # ids assigned so far
    cdef int32_t null_number            # id of "no word"; -1: not assigned
    cdef SlotTable table
    cdef RecordArena words              # uint64[count], 0 for "no word"

    cdef int make_room(self, Py_ssize_t more) except -1     # capacity for `more` new words
    cdef void find_words(self, const uint8_t* words, const uint8_t* presence, Py_ssize_t rows, int32_t* out,
                         bint is_adding) noexcept nogil
    # out[rows]: the id of each word (8 bytes each, aligned or not); for a new one the next id when adding, else -1;
    # `presence` (Presence[rows]) may be NULL: all are present. REQUIRES capacity for `rows` when adding
    cdef int32_t add_word(self, uint64_t word) noexcept nogil       # REQUIRES capacity
    cdef void find_in(self, const uint8_t* words, const uint8_t* presence, Py_ssize_t rows, int32_t* out,
                      bint is_adding, bint is_doubling) noexcept nogil
    cdef void put_words(self, Py_ssize_t first) noexcept nogil
    cdef void move_words(self) noexcept nogil
