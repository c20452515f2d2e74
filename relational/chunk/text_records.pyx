"""Positions at which the records of a text end: lines, or lines of CSV whose quoted values may contain line ends.

A record ends after its line end, or at the end of the text. Empty lines are no records: they belong to the record that
follows. A quote opens a quoted value only at the beginning of a value; inside it two quotes stand for one; an escape
character takes away the meaning of the next one, in any value. These are the rules of pyarrow's CSV reader.
"""

import numpy as np

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memchr

from hummock.columnar.buffer_pool cimport ByteBuffer

cdef enum:
    NONE = -1                   # instead of a character that the format does not have


cdef struct Format:
    int delimiter
    int quote
    int escape
    bint has_returns            # a carriage return alone ends a line too
    bint skips_blank            # lines of white space are no records


def record_ends(
    const uint8_t[::1] data not None, *, bint is_last, int delimiter=NONE, int quote=NONE, int escape=NONE,
    bint has_returns=False, bint skips_blank=False,
) -> np.ndarray:
    """int64[records]: the end of each record of `data`, whose first byte begins a record.

    `is_last`: the text ends with `data`, so that a record without a line end is complete; one that ends within a quoted
    value never is. Characters are bytes, -1: none. `has_returns`: a carriage return alone ends a line. `skips_blank`:
    lines of white space count as empty lines.
    """
    cdef Format format
    cdef Py_ssize_t size = data.shape[0]
    cdef ByteBuffer ends = ByteBuffer()
    format.delimiter, format.quote, format.escape = delimiter, quote, escape
    format.has_returns, format.skips_blank = has_returns, skips_blank
    if size:
        with nogil:
            find_ends(&data[0], size, is_last, &format, ends)
    return np.frombuffer(ends, np.int64)


def edge_bytes(const uint8_t[::1] data not None, const int64_t[::1] ends not None) -> np.ndarray:
    """uint8[2, records]: the first and the last byte of each record that is no white space, 0 if there is none.
    REQUIRES the ends of records of `data`, ascending.
    """
    out = np.zeros((2, ends.shape[0]), np.uint8)
    cdef uint8_t[:, ::1] found = out
    cdef Py_ssize_t record, at, stop, start = 0
    with nogil:
        for record in range(ends.shape[0]):
            at, stop = start, ends[record]
            start = stop
            while at < stop and is_white(data[at]):
                at += 1
            while at < stop and is_white(data[stop - 1]):
                stop -= 1
            if at < stop:
                found[0, record], found[1, record] = data[at], data[stop - 1]
    return out


cdef inline bint is_white(uint8_t byte) noexcept nogil:
    return byte == 32 or byte == 9 or byte == 10 or byte == 13


def has_hexadecimal(const uint8_t[::1] data not None) -> bool:
    """Whether 0x or 0X occurs in `data`."""
    cdef bint found = False
    if data.shape[0] > 1:
        with nogil:
            found = follows_zero(&data[0], data.shape[0], b"x") or follows_zero(&data[0], data.shape[0], b"X")
    return found


cdef bint follows_zero(const uint8_t* text, Py_ssize_t size, int mark) noexcept nogil:
    """Whether a `mark` comes after a digit 0."""
    cdef const uint8_t* at = text
    while True:
        at = <const uint8_t*>memchr(at + 1, mark, <size_t>(text + size - at - 1))
        if at == NULL:
            return False
        if at[-1] == b"0":
            return True


cdef struct Marks:
    const uint8_t* quote        # the first one at or after the record, or the end of the text
    const uint8_t* escape
    const uint8_t* carriage     # return


cdef int find_ends(
    const uint8_t* text, Py_ssize_t size, bint is_last, const Format* format, ByteBuffer ends
) except -1 nogil:
    """Appends the end of each record, int64."""
    cdef const uint8_t* stop = text + size
    cdef Py_ssize_t at = 0, end
    cdef int64_t found
    cdef Marks marks
    marks.quote = next_mark(text, stop, format.quote)
    marks.escape = next_mark(text, stop, format.escape)
    marks.carriage = next_mark(text, stop, 13 if format.has_returns else NONE)
    while at < size:
        if marks.quote < text + at:
            marks.quote = next_mark(text + at, stop, format.quote)
        if marks.escape < text + at:
            marks.escape = next_mark(text + at, stop, format.escape)
        if marks.carriage < text + at:
            marks.carriage = next_mark(text + at, stop, 13)
        end = record_end(text, at, size, is_last, format, &marks)
        if end < 0:
            break
        if not is_blank(text, at, end, format.skips_blank):
            found = end
            ends.append(<const uint8_t*>&found, sizeof(int64_t))
        at = end
    return 0


cdef inline const uint8_t* next_mark(const uint8_t* at, const uint8_t* stop, int mark) noexcept nogil:
    """The first `mark` from `at` on; `stop` if there is none."""
    cdef const uint8_t* found = NULL
    if mark != NONE:
        found = <const uint8_t*>memchr(at, mark, <size_t>(stop - at))
    return stop if found == NULL else found


cdef bint is_blank(const uint8_t* text, Py_ssize_t at, Py_ssize_t end, bint skips_blank) noexcept nogil:
    while at < end and (text[at] == 10 or text[at] == 13 or (skips_blank and (text[at] == 32 or text[at] == 9))):
        at += 1
    return at == end


cdef inline Py_ssize_t record_end(
    const uint8_t* text, Py_ssize_t at, Py_ssize_t size, bint is_last, const Format* format, const Marks* marks
) noexcept nogil:
    """The end of the record that begins at `at`, -1 if it is not complete."""
    cdef const uint8_t* line = <const uint8_t*>memchr(text + at, 10, <size_t>(size - at))
    cdef const uint8_t* stop = text + size if line == NULL else line    # of the line, without its end
    if marks.escape < stop or (format.escape != NONE and marks.quote < stop):
        return escaped_end(text, at, size, is_last, format)
    if marks.quote < stop:
        return quoted_end(text, at, size, is_last, format)
    if marks.carriage < stop:
        if marks.carriage + 1 < stop:
            return marks.carriage - text + 1
        if line == NULL and not is_last:
            return -1                   # a line feed may follow
    if line != NULL:
        return stop - text + 1
    return size if is_last else -1


cdef Py_ssize_t quoted_end(
    const uint8_t* text, Py_ssize_t at, Py_ssize_t size, bint is_last, const Format* format
) noexcept nogil:
    """As `record_end`, from quote to quote, in a format without an escape character."""
    cdef const uint8_t* stop = text + size
    cdef const uint8_t* begin = text + at
    cdef const uint8_t* here = begin
    cdef const uint8_t* line = next_mark(here, stop, 10)
    cdef const uint8_t* quote
    cdef const uint8_t* limit
    cdef const uint8_t* carriage
    while True:
        quote = next_mark(here, stop, format.quote)
        if line < here:
            line = next_mark(here, stop, 10)
        limit = min(quote, line)
        if format.has_returns:
            carriage = <const uint8_t*>memchr(here, 13, <size_t>(limit - here))
            if carriage != NULL and carriage + 1 == stop:
                return size if is_last else -1
            if carriage != NULL:
                return carriage - text + (2 if carriage[1] == 10 else 1)
        if line < quote:
            return line - text + 1
        if quote == stop:
            return size if is_last else -1
        here = quote + 1
        if quote != begin and quote[-1] != format.delimiter:
            continue                    # within a value that is not quoted
        while True:
            quote = next_mark(here, stop, format.quote)
            if quote == stop or (quote + 1 == stop and not is_last):
                return -1
            here = quote + 1
            if here == stop or here[0] != format.quote:
                break
            here += 1


cdef Py_ssize_t escaped_end(
    const uint8_t* text, Py_ssize_t at, Py_ssize_t size, bint is_last, const Format* format
) noexcept nogil:
    """As `record_end`, byte by byte."""
    cdef bint is_quoted = False, begins_value = True
    cdef int byte
    while at < size:
        byte = text[at]
        if byte == format.escape:
            at += 2
            begins_value = False
            continue
        if is_quoted:
            if byte == format.quote:
                if at + 1 == size and not is_last:
                    return -1           # another quote may follow
                if at + 1 < size and text[at + 1] == format.quote:
                    at += 1
                else:
                    is_quoted = False
        elif byte == 10:
            return at + 1
        elif byte == 13 and format.has_returns:
            if at + 1 == size:
                return size if is_last else -1
            return at + 2 if text[at + 1] == 10 else at + 1
        elif begins_value and byte == format.quote:
            is_quoted = True
        begins_value = not is_quoted and byte == format.delimiter
        at += 1
    return size if is_last and not is_quoted else -1
