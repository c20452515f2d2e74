"""The pieces of canonical JSON text: numbers, characters of strings, and the order of keys."""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset

from hummock.columnar.buffer_pool cimport ByteBuffer

cdef enum:
    MOST_ZEROS = 20                     # that a plain number adds to its digits

cdef const char* HEX = "0123456789abcdef"


cdef int put_zeros(ByteBuffer out, int64_t count) except -1 nogil:
    out.reserve(count)
    memset(out.data + out.size, b"0", <size_t>count)
    out.size += count
    return 0


cdef int put_integer(ByteBuffer out, int64_t value) except -1 nogil:
    if value >= 10:
        put_integer(out, value // 10)
    return put(out, <uint8_t>(48 + value % 10))


cdef int put_number(
    ByteBuffer out, bint negative, const uint8_t* digits, Py_ssize_t count, int64_t point
) except -1 nogil:
    if count == 0:
        return put(out, b"0")
    if negative:
        put(out, b"-")
    if point > 0 and point - count <= MOST_ZEROS:
        out.append(digits, min(count, point))
        if point >= count:
            return put_zeros(out, point - count)
        put(out, b".")
        return out.append(digits + point, count - point)
    if -MOST_ZEROS <= point <= 0:
        out.append(<const uint8_t*>b"0.", 2)
        put_zeros(out, -point)
        return out.append(digits, count)
    put(out, digits[0])
    if count > 1:
        put(out, b".")
        out.append(digits + 1, count - 1)
    out.append(<const uint8_t*>(b"e+" if point > 0 else b"e-"), 2)
    return put_integer(out, point - 1 if point > 0 else 1 - point)


cdef int put_escaped(ByteBuffer out, uint8_t byte) except -1 nogil:
    cdef uint8_t short_form = 0
    if byte >= 32 and byte != b'"' and byte != b"\\":
        return put(out, byte)
    put(out, b"\\")
    if byte == b'"' or byte == b"\\":
        short_form = byte
    elif byte == 10:
        short_form = b"n"
    elif byte == 9:
        short_form = b"t"
    elif byte == 13:
        short_form = b"r"
    elif byte == 8:
        short_form = b"b"
    elif byte == 12:
        short_form = b"f"
    if short_form:
        return put(out, short_form)
    out.append(<const uint8_t*>b"u00", 3)
    put(out, HEX[byte >> 4])
    return put(out, HEX[byte & 15])


cdef int compare_members(const void* a, const void* b) noexcept nogil:
    """By length of the key, by its bytes, then as they stood."""
    cdef const Member* left = <const Member*>a
    cdef const Member* right = <const Member*>b
    cdef int order = compare_keys(left, right)
    return order if order else (1 if left.number > right.number else -1)


cdef int compare_keys(const Member* left, const Member* right) noexcept nogil:
    cdef const uint8_t* x = left.base + left.start + 1
    cdef const uint8_t* y = right.base + right.start + 1
    cdef Py_ssize_t i
    cdef int order
    if left.key_bytes != right.key_bytes:
        return 1 if left.key_bytes > right.key_bytes else -1
    for i in range(left.key_bytes):
        order = <int>unescaped(&x) - <int>unescaped(&y)
        if order:
            return order
    return 0
