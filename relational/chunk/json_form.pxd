"""The pieces of canonical JSON text: numbers, characters of strings, and the order of keys."""

from libc.stdint cimport int64_t, uint8_t

from hummock.columnar.buffer_pool cimport ByteBuffer

cdef struct Member:                     # of an object that is being written; positions in the output
    Py_ssize_t start                    # of the key's first quote
    Py_ssize_t key_stop                 # behind the key's last quote
    Py_ssize_t stop
    Py_ssize_t key_bytes                # of the key unescaped
    Py_ssize_t number                   # in the order of the text
    const uint8_t* base                 # where the output stands while members are sorted


cdef inline uint8_t unescaped(const uint8_t** at) noexcept nogil:
    """The next byte of a canonical string; moves behind it."""
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
cdef int compare_members(const void* a, const void* b) noexcept nogil   # by key, then as they stood; for qsort
