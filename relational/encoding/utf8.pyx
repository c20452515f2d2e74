"""UTF-8 validation. Applied where bytes from a file become VARCHAR, since Arrow trusts its strings."""

from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.string cimport memcpy


cdef inline bint is_ascii(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef uint64_t seen = 0, word = 0
    cdef Py_ssize_t at
    for at in range(size >> 3):
        memcpy(&word, data + 8 * at, 8)
        seen |= word
    word = 0
    memcpy(&word, data + (size & ~<Py_ssize_t>7), <size_t>(size & 7))
    return ((seen | word) & <uint64_t>0x8080808080808080) == 0


cdef inline int follow_bytes(uint8_t lead, uint8_t second) noexcept nogil:
    """Bytes that follow a non-ASCII lead byte, -1 for an invalid prefix (overlong, surrogate, too large)."""
    if 0xC2 <= lead <= 0xDF:
        return 1
    if lead == 0xE0:
        return 2 if second >= 0xA0 else -1
    if lead == 0xED:
        return 2 if second <= 0x9F else -1
    if 0xE1 <= lead <= 0xEF:
        return 2
    if lead == 0xF0:
        return 3 if second >= 0x90 else -1
    if lead == 0xF4:
        return 3 if second <= 0x8F else -1
    return 3 if 0xF1 <= lead <= 0xF3 else -1


cdef bint is_utf8(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t at = 0
    cdef int more, i
    while at < size:
        if data[at] < 0x80:
            at += 1
            continue
        if at + 1 >= size:
            return False
        more = follow_bytes(data[at], data[at + 1])
        if more < 0 or at + more >= size:
            return False
        for i in range(1, more + 1):
            if data[at + i] & 0xC0 != 0x80:
                return False
        at += more + 1
    return True


cdef Py_ssize_t first_bad_text(const uint8_t* data, const int32_t* starts, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i
    if count == 0 or is_ascii(data + starts[0], starts[count] - starts[0]):
        return -1
    for i in range(count):
        if not is_utf8(data + starts[i], starts[i + 1] - starts[i]):
            return i
    return -1
