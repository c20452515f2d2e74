"""The first 16 bytes of user keys as integers, which order nearly all of them without reading the keys.

Unequal key prefixes order as their keys do; equal ones decide nothing, except for two keys of one size up to 16 bytes.
"""

from libc.stdint cimport uint8_t, uint64_t

from hummock.base.key cimport Slice, head_of
from hummock.iterator.base cimport Span, low_of

cdef extern from * nogil:
    """
    #ifndef HUMMOCK_NUMBERS
    #define HUMMOCK_NUMBERS
    #include <stdint.h>
    #include <string.h>
    static inline uint64_t hummock_big_endian(const uint8_t *data) {
        uint64_t word;
        memcpy(&word, data, 8);
        return __builtin_bswap64(word);
    }
    static inline void hummock_put_big_endian(uint8_t *data, uint64_t word) {
        word = __builtin_bswap64(word);
        memcpy(data, &word, 8);
    }
    #endif
    """
    int leading_zeros "__builtin_clzll"(uint64_t word) noexcept
    uint64_t big_endian "hummock_big_endian"(const uint8_t* data) noexcept
    void put_big_endian "hummock_put_big_endian"(uint8_t* data, uint64_t word) noexcept

cdef enum:
    KEY_PREFIX_BYTES = 16


cdef struct KeyPrefix128:               # big endian, short keys padded with zeros
    uint64_t high
    uint64_t low


cdef inline bint is_less(const KeyPrefix128* a, const KeyPrefix128* b) noexcept nogil:
    return (a.high < b.high) | ((a.high == b.high) & (a.low < b.low))


cdef inline bint is_equal(const KeyPrefix128* a, const KeyPrefix128* b) noexcept nogil:
    return a.high == b.high and a.low == b.low


cdef inline Slice suffix_of(const Span* span, Py_ssize_t row) noexcept nogil:
    cdef Slice out
    out.data = span.key_data + span.key_offsets[row]
    out.size = span.key_offsets[row + 1] - span.key_offsets[row]
    return out


cdef inline KeyPrefix128 key_prefix_of(Slice key) noexcept nogil:
    cdef KeyPrefix128 out
    out.high, out.low = head_of(key.data, key.size), low_of(key.data, key.size)
    return out


cdef inline void put_key_prefix(uint8_t* target, KeyPrefix128 key_prefix) noexcept nogil:
    """Writes the 16 bytes of the key prefix."""
    put_big_endian(target, key_prefix.high)
    put_big_endian(target + 8, key_prefix.low)


cdef inline uint64_t head_behind(const KeyPrefix128* key_prefix, int bits) noexcept nogil:
    """The 64 bits of the key prefix behind the first `bits`, 0..64 of them."""
    if bits == 64:
        return key_prefix.low
    return key_prefix.high << bits | (key_prefix.low >> 1) >> (63 - bits)


cdef inline uint64_t word_of(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """As head_of. REQUIRES 8 readable bytes."""
    cdef uint64_t word = big_endian(data)
    return word if size >= 8 else word & ~(~<uint64_t>0 >> (8 * size))


cdef inline void fill_key_prefixes(
    const Span* span, KeyPrefix128 prefix, Py_ssize_t first, Py_ssize_t end, KeyPrefix128* out
) noexcept nogil:
    """Sets out[first : end] to the key prefixes of rows counted from the current one; `prefix`: of their prefix."""
    cdef Py_ssize_t size = span.prefix.size, at
    cdef Slice key
    cdef uint64_t high, low
    for at in range(first, end):
        key = suffix_of(span, span.row + at)
        if size == 0:
            out[at] = key_prefix_of(key)
        elif size >= KEY_PREFIX_BYTES:
            out[at] = prefix
        elif size >= 8:
            out[at].high = prefix.high
            out[at].low = prefix.low | word_of(key.data, key.size) >> (8 * (size - 8))
        else:
            high = word_of(key.data, key.size)
            low = word_of(key.data + 8, key.size - 8) if key.size > 8 else 0
            out[at].high = prefix.high | high >> (8 * size)
            out[at].low = high << (64 - 8 * size) | low >> (8 * size)
