"""Rows of literals in SQL text: `VALUES (1, 'a'), (2, NULL)` without a tree. No function here raises or takes the GIL."""

from libc.stdint cimport int64_t, uint8_t

cdef enum Kind:
    NULL_CELL = 0
    BOOLEAN_CELL = 1
    WHOLE_CELL = 2              # a whole number of at most 18 digits
    DECIMAL_CELL = 3            # a number with a point, of at most 18 digits
    DOUBLE_CELL = 4             # a number with an exponent
    TEXT_CELL = 5
    DEFAULT_CELL = 6

cdef struct Cell:
    int64_t value               # of a number, without its point; 0 or 1 of a BOOLEAN
    int64_t begin               # first byte of a text inside its quotes, or of a number
    int64_t end                 # past its last byte
    uint8_t kind
    uint8_t scale               # digits after the point

cdef struct Cursor:
    const uint8_t* text
    int64_t at
    int64_t size

cdef bint read_cell(Cursor* cursor, Cell* cell) noexcept nogil
    # one literal at the cursor, which moves behind it; false where it is no literal
cdef int64_t read_rows(Cursor* cursor, Cell* cells, int64_t capacity, int64_t* width) noexcept nogil
    # how many cells there are up to the end of the text, in rows of `width`; -1 where it is no list of rows of literals,
    # -2 where there are more than `capacity`
