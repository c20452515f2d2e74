"""Keys as borrowed bytes, and their order.

A user key is `table_id u32 BE | vnode u16 BE | table key`. A full key is a user key and an epoch. The two are kept
apart everywhere in memory: full keys order by user key bytes (a proper prefix before the longer key), then newest epoch
first, which memcmp over concatenated bytes cannot do.

A *key prefix* or *head* is the first 8 bytes of a key as a big-endian integer: searches compare these first.
"""

from libc.stdint cimport uint8_t, uint64_t

cdef extern from * nogil:
    """
    #ifndef HUMMOCK_SAME_BYTES
    #define HUMMOCK_SAME_BYTES
    #include <stdint.h>
    #include <string.h>
    static inline int hummock_same_bytes(const uint8_t *a, const uint8_t *b, int64_t size) {
        if (size > 16) return memcmp(a, b, (size_t)size) == 0;
        if (size >= 8) {
            uint64_t first, last, other_first, other_last;
            memcpy(&first, a, 8); memcpy(&last, a + size - 8, 8);
            memcpy(&other_first, b, 8); memcpy(&other_last, b + size - 8, 8);
            return ((first ^ other_first) | (last ^ other_last)) == 0;
        }
        if (size >= 4) {
            uint32_t first, last, other_first, other_last;
            memcpy(&first, a, 4); memcpy(&last, a + size - 4, 4);
            memcpy(&other_first, b, 4); memcpy(&other_last, b + size - 4, 4);
            return ((first ^ other_first) | (last ^ other_last)) == 0;
        }
        return size <= 0 || (a[0] == b[0] && a[size >> 1] == b[size >> 1] && a[size - 1] == b[size - 1]);
    }
    static inline int64_t hummock_shared_size(const uint8_t *a, const uint8_t *b, int64_t most) {
        int64_t at = 0;
        for (; at + 8 <= most; at += 8) {
            uint64_t first, other;
            memcpy(&first, a + at, 8); memcpy(&other, b + at, 8);
            if (first != other) return at + (__builtin_clzll(__builtin_bswap64(first ^ other)) >> 3);
        }
        while (at < most && a[at] == b[at]) at++;
        return at;
    }
    static inline void hummock_copy_bytes(uint8_t *to, const uint8_t *from, int64_t size) {
        if (size > 64) { memcpy(to, from, (size_t)size); return; }
        if (size > 32) {
            uint64_t words[8];
            memcpy(words, from, 32); memcpy(words + 4, from + size - 32, 32);
            memcpy(to, words, 32); memcpy(to + size - 32, words + 4, 32);
            return;
        }
        if (size >= 16) {
            uint64_t words[4];
            memcpy(words, from, 16); memcpy(words + 2, from + size - 16, 16);
            memcpy(to, words, 16); memcpy(to + size - 16, words + 2, 16);
        } else if (size >= 8) {
            uint64_t first, last;
            memcpy(&first, from, 8); memcpy(&last, from + size - 8, 8);
            memcpy(to, &first, 8); memcpy(to + size - 8, &last, 8);
        } else if (size >= 4) {
            uint32_t first, last;
            memcpy(&first, from, 4); memcpy(&last, from + size - 4, 4);
            memcpy(to, &first, 4); memcpy(to + size - 4, &last, 4);
        } else for (int64_t i = 0; i < size; i++) to[i] = from[i];
    }
    static inline uint64_t hummock_head_of(const uint8_t *data, int64_t size) {
        if (size >= 8) {
            uint64_t word;
            memcpy(&word, data, 8);
            return __builtin_bswap64(word);
        }
        if (size >= 4) {        /* two words that overlap: reading 8 bytes that were written singly takes long */
            uint32_t first, last;
            memcpy(&first, data, 4); memcpy(&last, data + size - 4, 4);
            return (uint64_t)__builtin_bswap32(first) << 32 | (uint64_t)__builtin_bswap32(last) << (8 * (8 - size));
        }
        if (size <= 0) return 0;
        return (uint64_t)data[0] << 56 | (uint64_t)data[size >> 1] << (8 * (7 - (size >> 1)))
            | (uint64_t)data[size - 1] << (8 * (8 - size));
    }
    static inline int hummock_compare_bytes(const uint8_t *a, int64_t a_size, const uint8_t *b, int64_t b_size) {
        int64_t size = a_size < b_size ? a_size : b_size, at = 0;
        uint64_t first, other;
        if (size > 64) {
            int order = memcmp(a, b, (size_t)size);
            if (order) return order;
        } else {
            for (; at + 8 <= size; at += 8) {
                memcpy(&first, a + at, 8); memcpy(&other, b + at, 8);
                if (first != other) return __builtin_bswap64(first) < __builtin_bswap64(other) ? -1 : 1;
            }
            first = hummock_head_of(a + at, size - at); other = hummock_head_of(b + at, size - at);
            if (first != other) return first < other ? -1 : 1;
        }
        return (a_size > b_size) - (a_size < b_size);
    }
    #endif
    """
    bint same_bytes "hummock_same_bytes"(const uint8_t* a, const uint8_t* b, Py_ssize_t size) noexcept
    # memcmp == 0, without a call for few bytes, as most prefixes are
    Py_ssize_t shared_size "hummock_shared_size"(const uint8_t* a, const uint8_t* b, Py_ssize_t most) noexcept
    # how many of the first `most` bytes come before the first in which both differ
    void copy_bytes "hummock_copy_bytes"(uint8_t* to, const uint8_t* source, Py_ssize_t size) noexcept
    # memcpy, without a call for few bytes, as most keys and numbers are
    uint64_t head_of "hummock_head_of"(const uint8_t* data, Py_ssize_t size) noexcept
    # the first 8 bytes as a big-endian integer, those of short keys padded with zeros: unequal heads order as their
    # keys do, equal heads decide nothing
    int compare_slices "hummock_compare_bytes"(
        const uint8_t* a, Py_ssize_t a_size, const uint8_t* b, Py_ssize_t b_size) noexcept
    # as compare_bytes, without a call for few bytes

    const uint64_t MAX_EPOCH "UINT64_MAX"   # a seek to it finds the newest operation on its key
    const uint64_t NOWHERE "UINT64_MAX"     # no table and vnode, which are the first 48 bits of a user key

cpdef enum:
    TABLE_ID_BYTES = 4          # at the beginning of every user key

cdef enum:
    SPILL_MASK = 0xFFFF         # bits of the spill offset in a stored epoch; see epoch.py


cdef struct Slice:              # borrowed bytes; the function that returns one documents their owner and lifetime
    const uint8_t* data
    Py_ssize_t size


cdef inline Slice slice_of(bytes data):
    cdef Slice out
    out.data, out.size = <const uint8_t*><const char*>data, len(data)
    return out


cdef inline int compare_bytes(Slice a, Slice b) noexcept nogil:
    """Negative, 0 or positive as `a` is before, equal to or after `b`; a proper prefix is before the longer one."""
    return compare_slices(a.data, a.size, b.data, b.size)


cdef inline bint begins_with(Slice key, Slice prefix) noexcept nogil:
    return key.size >= prefix.size and same_bytes(key.data, prefix.data, prefix.size)


cdef inline int compare_full_key(Slice a, uint64_t a_epoch, Slice b, uint64_t b_epoch) noexcept nogil:
    """User key ascending, then epoch DEscending."""
    cdef int order = compare_bytes(a, b)
    if order != 0:
        return order
    return -1 if a_epoch > b_epoch else (1 if a_epoch < b_epoch else 0)
