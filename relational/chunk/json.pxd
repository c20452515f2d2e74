"""Canonical JSON text: the parser that writes it, and the primitives that it is written with."""

from libc.stdint cimport int64_t, uint8_t

from hummock.columnar.buffer_pool cimport ByteBuffer

cdef struct Member:                     # of an object being written; offsets in the output
    Py_ssize_t start                    # of the key's first quote
    Py_ssize_t stop
    Py_ssize_t key_bytes                # of the key unescaped
    Py_ssize_t number                   # in text order
    const uint8_t* base                 # of the output buffer, while members are sorted


cdef inline uint8_t unescaped(const uint8_t** at) noexcept nogil:
    """The next byte of a canonical string; advances past it."""
    cdef uint8_t byte = at[0][0]
    at[0] += 1
    if byte != b"\\":
        return byte
    byte = at[0][0]
    at[0] += 1
    if byte == b"u":
        at[0] += 4
        return <uint8_t>((((at[0] - 2)[0] - 48) << 4) | ((at[0] - 1)[0] - (48 if (at[0] - 1)[0] <= 57 else 87)))
    if byte == b"n":
        return 10
    if byte == b"t":
        return 9
    if byte == b"r":
        return 13
    if byte == b"b":
        return 8
    return 12 if byte == b"f" else byte


cdef inline int put(ByteBuffer out, uint8_t byte) except -1 nogil:
    if out.capacity - out.size < 1:
        out.reserve(64)
    out.data[out.size] = byte
    out.size += 1
    return 0


cdef int put_number(
    ByteBuffer out, bint negative, const uint8_t* digits, Py_ssize_t count, int64_t point
) except -1 nogil
# appends 0.DIGITS * 10 ** point in canonical form; the digits are ASCII, the first and the last are not 0; none: zero
cdef int put_escaped(ByteBuffer out, uint8_t byte) except -1 nogil      # appends a byte of a string in canonical form
cdef int compare_keys(const Member* left, const Member* right) noexcept nogil
# the order of the keys of an object; REQUIRES `base`


cdef class JsonText:
    """Appends canonical texts to `out`. One user at a time."""
    cdef ByteBuffer out
    cdef ByteBuffer members             # a stack of Members of the objects that enclose the current position
    cdef ByteBuffer digits
    cdef ByteBuffer spare
    cdef const char* problem            # with the last invalid text
    cdef const uint8_t* at
    cdef const uint8_t* stop

    # Appends the canonical form of a text. False: invalid JSON, with the reason in `problem` and its position in `at`.
    # An output that is already canonical is returned unchanged.
    cdef bint write(self, const uint8_t* text, Py_ssize_t size) except -1 nogil

    cdef bint fail(self, const char* problem) noexcept nogil
    cdef int skip_blanks(self) noexcept nogil
    cdef bint value(self, int depth) except -1 nogil
    cdef bint word(self, const char* word, Py_ssize_t size) except -1 nogil
    cdef bint array(self, int depth) except -1 nogil
    cdef bint object(self, int depth) except -1 nogil
    cdef int settle(self, Py_ssize_t first, Py_ssize_t start) except -1 nogil
    cdef bint string(self, Py_ssize_t* bytes) except -1 nogil
    cdef bint escape(self, Py_ssize_t* bytes) except -1 nogil
    cdef int hex4(self) noexcept nogil
    cdef bint number(self) except -1 nogil
