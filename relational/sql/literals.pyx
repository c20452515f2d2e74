"""Rows of literals in SQL text, parsed without a tree: the usual INSERT … VALUES of an application.

    rows    = row { "," row }
    row     = "(" literal { "," literal } ")"
    literal = NULL | TRUE | FALSE | DEFAULT | [+-] number | '…'

Blanks and comments may be between any tokens. Any other text, including strings with escapes and numbers of more than
18 digits, is not a list of literals: the caller then parses it as ordinary SQL. No cdef function here raises or
acquires the GIL.
"""

from libc.stdint cimport int64_t, uint8_t

import numpy as np

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

NULL_KIND, BOOLEAN_KIND, WHOLE_KIND, DECIMAL_KIND, DOUBLE_KIND, TEXT_KIND, DEFAULT_KIND = range(7)
"""The values of CELL's kind."""
CELL = np.dtype(
    {
        "names": ["value", "begin", "end", "kind", "scale"],
        "formats": ["<i8", "<i8", "<i8", "u1", "u1"],
        "offsets": [0, 8, 16, 24, 25],
        "itemsize": sizeof(Cell),
    }
)
"""The numpy dtype of a cell."""
cdef int64_t BYTES_PER_CELL = 2     # a literal and its separator


def scan_rows(const uint8_t[::1] text):
    """CELL[rows, columns] of a list of rows that spans all of `text` (UTF-8); None for any other text."""
    cdef Cursor cursor
    cdef int64_t width = 0, found, capacity = text.shape[0] // BYTES_PER_CELL + 1
    if text.shape[0] == 0:
        return None
    cells = np.empty(capacity, CELL)
    cdef uint8_t[::1] buffer = cells.view(np.uint8)
    cursor.text, cursor.at, cursor.size = &text[0], 0, text.shape[0]
    with nogil:
        found = read_rows(&cursor, <Cell*>&buffer[0], capacity, &width)
    return None if found < 0 else cells[:found].reshape(-1, width)


def gather_texts(const uint8_t[::1] text, const int64_t[::1] begins, const int64_t[::1] ends):
    """int32[rows + 1] and uint8[bytes]: offsets and bytes of the texts between quotes, with doubled quotes unescaped.
    """
    cdef int64_t rows = begins.shape[0], row, at, out = 0
    offsets = np.zeros(rows + 1, np.int32)
    total = int(np.sum(np.asarray(ends) - np.asarray(begins))) if rows else 0
    data = np.empty(max(total, 1), np.uint8)
    cdef int[::1] offset = offsets
    cdef uint8_t[::1] target = data
    with nogil:
        for row in range(rows):
            at = begins[row]
            while at < ends[row]:
                target[out] = text[at]
                out += 1
                at += 2 if text[at] == c"'" else 1
            offset[row + 1] = <int>out
    return offsets, data[:out]


cdef int64_t read_rows(Cursor* cursor, Cell* cells, int64_t capacity, int64_t* width) noexcept nogil:
    """The number of cells up to the end of the text, in rows of `width`; -1 if the text is not a list of rows of
    literals, -2 if there are more than `capacity`.
    """
    cdef int64_t found = 0, begun
    while True:
        skip_blanks(cursor)
        if not take(cursor, c"("):
            return -1
        begun = found
        while True:
            skip_blanks(cursor)
            if found == capacity:
                return -2
            if not read_cell(cursor, &cells[found]):
                return -1
            found += 1
            skip_blanks(cursor)
            if not take(cursor, c","):
                break
        if not take(cursor, c")"):
            return -1
        if width[0] == 0:
            width[0] = found
        if found - begun != width[0]:
            return -1
        skip_blanks(cursor)
        if cursor.at == cursor.size:
            return found
        if not take(cursor, c","):
            return -1


cdef bint read_cell(Cursor* cursor, Cell* cell) noexcept nogil:
    """Reads one literal at the cursor and advances past it; false if there is none."""
    cdef uint8_t first
    if cursor.at >= cursor.size:
        return False
    first = cursor.text[cursor.at]
    cell.value = cell.begin = cell.end = 0
    cell.scale = 0
    if first == c"'":
        return read_text(cursor, cell)
    if is_digit(first) or first == c"." or first == c"-" or first == c"+":
        return read_number(cursor, cell)
    return read_word(cursor, cell)


cdef bint read_text(Cursor* cursor, Cell* cell) noexcept nogil:
    """Reads a text between single quotes; a doubled quote is one quote."""
    cdef int64_t at = cursor.at + 1
    cell.kind, cell.begin = TEXT_CELL, at
    while at < cursor.size:
        if cursor.text[at] == c"'":
            if at + 1 < cursor.size and cursor.text[at + 1] == c"'":
                at += 1
            else:
                cell.end = at
                cursor.at = at + 1
                return True
        at += 1
    return False


cdef bint read_number(Cursor* cursor, Cell* cell) noexcept nogil:
    cdef int64_t at = cursor.at, value = 0
    cdef int digits = 0
    cdef bint negative = cursor.text[at] == c"-", pointed = False
    cell.begin = at
    if negative or cursor.text[at] == c"+":
        at += 1
    while at < cursor.size:
        if is_digit(cursor.text[at]):
            if digits == 18:
                return False
            value = value * 10 + (cursor.text[at] - c"0")
            digits += 1
            cell.scale += pointed
        elif cursor.text[at] == c"." and not pointed:
            pointed = True
        else:
            break
        at += 1
    if digits == 0:
        return False
    cell.kind = DECIMAL_CELL if pointed else WHOLE_CELL
    if at < cursor.size and (cursor.text[at] == c"e" or cursor.text[at] == c"E"):
        at += 1
        if at < cursor.size and (cursor.text[at] == c"-" or cursor.text[at] == c"+"):
            at += 1
        if at >= cursor.size or not is_digit(cursor.text[at]):
            return False
        while at < cursor.size and is_digit(cursor.text[at]):
            at += 1
        cell.kind = DOUBLE_CELL
    cell.value = -value if negative else value
    cell.end = cursor.at = at
    return at >= cursor.size or not (is_of_word(cursor.text[at]) or cursor.text[at] == c".")


cdef bint read_word(Cursor* cursor, Cell* cell) noexcept nogil:
    cdef int64_t begin = cursor.at
    while cursor.at < cursor.size and is_of_word(cursor.text[cursor.at]):
        cursor.at += 1
    cell.value = 0
    if is_word(cursor, begin, b"NULL", 4):
        cell.kind = NULL_CELL
    elif is_word(cursor, begin, b"TRUE", 4):
        cell.kind, cell.value = BOOLEAN_CELL, 1
    elif is_word(cursor, begin, b"FALSE", 5):
        cell.kind = BOOLEAN_CELL
    elif is_word(cursor, begin, b"DEFAULT", 7):
        cell.kind = DEFAULT_CELL
    else:
        return False
    return True


cdef inline bint is_word(Cursor* cursor, int64_t begin, const char* word, int64_t size) noexcept nogil:
    """Whether the text from `begin` to the cursor is `word`, in any case."""
    cdef int64_t at
    if cursor.at - begin != size:
        return False
    for at in range(size):
        if (cursor.text[begin + at] & 0xDF) != <uint8_t>word[at]:
            return False
    return True


cdef inline bint is_digit(uint8_t letter) noexcept nogil:
    return c"0" <= letter <= c"9"


cdef inline bint is_of_word(uint8_t letter) noexcept nogil:
    cdef uint8_t upper = letter & 0xDF
    return c"A" <= upper <= c"Z" or is_digit(letter) or letter == c"_" or letter == c"$" or letter >= 0x80


cdef inline bint take(Cursor* cursor, uint8_t letter) noexcept nogil:
    """Consumes `letter` if it is next."""
    if cursor.at < cursor.size and cursor.text[cursor.at] == letter:
        cursor.at += 1
        return True
    return False


cdef void skip_blanks(Cursor* cursor) noexcept nogil:
    """Advances to the next letter that is neither blank nor part of a comment; stops at an unclosed comment."""
    cdef uint8_t letter
    while cursor.at < cursor.size:
        letter = cursor.text[cursor.at]
        if letter == c" " or letter == c"\n" or letter == c"\t" or letter == c"\r":
            cursor.at += 1
        elif letter == c"-" and cursor.at + 1 < cursor.size and cursor.text[cursor.at + 1] == c"-":
            while cursor.at < cursor.size and cursor.text[cursor.at] != c"\n":
                cursor.at += 1
        elif letter == c"/" and cursor.at + 1 < cursor.size and cursor.text[cursor.at + 1] == c"*":
            if not skip_comment(cursor):
                return
        else:
            return


cdef bint skip_comment(Cursor* cursor) noexcept nogil:
    """Advances past a comment, nested ones included; false, without advancing, if it is not closed."""
    cdef int64_t at = cursor.at
    cdef int depth = 0
    while at + 1 < cursor.size:
        if cursor.text[at] == c"/" and cursor.text[at + 1] == c"*":
            depth += 1
            at += 2
        elif cursor.text[at] == c"*" and cursor.text[at + 1] == c"/":
            depth -= 1
            at += 2
            if depth == 0:
                cursor.at = at
                return True
        else:
            at += 1
    return False
