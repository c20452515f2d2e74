"""crc32c of stored bytes, and the key hash for filters."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

# CRC-32C (Castagnoli), init and final xor ~0
cdef uint32_t crc32c(const uint8_t* data, Py_ssize_t size) noexcept nogil


cdef extern from * nogil:
    """
    #ifndef HUMMOCK_HASH64
    #define HUMMOCK_HASH64
    #include <stdint.h>
    #include <string.h>
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define hummock_le64(x) __builtin_bswap64(x)
    #else
    #define hummock_le64(x) (x)
    #endif
    static inline uint64_t hummock_word(const uint8_t *p) {
        uint64_t word; memcpy(&word, p, 8); return hummock_le64(word);
    }
    static inline uint64_t hummock_fold(uint64_t a, uint64_t b) {
        unsigned __int128 product = (unsigned __int128)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    static inline uint64_t hummock_hash64(const uint8_t *p, int64_t size) {
        const uint64_t K0 = 0x9E3779B97F4A7C15ull, K1 = 0xD1B54A32D192ED03ull, K2 = 0x8CB92BA72F3D8DD7ull;
        uint64_t hash = K0 ^ ((uint64_t)size * K1), a = 0, b = 0;
        const uint8_t *last = p + size - 16;
        if (size >= 16) {
            for (; p < last; p += 16) hash = hummock_fold(hash ^ hummock_word(p), K2 ^ hummock_word(p + 8));
            a = hummock_word(last); b = hummock_word(last + 8);
        } else if (size >= 8) {
            a = hummock_word(p);
            if (size > 8) b = hummock_word(p + size - 8) >> (8 * (16 - size));
        } else {
            for (int64_t i = 0; i < size; i++) a |= (uint64_t)p[i] << (8 * i);
        }
        hash = hummock_fold(hash ^ a, K2 ^ b);
        return hummock_fold(hash ^ K1, K0);
    }
    #endif
    """
    uint64_t hash64 "hummock_hash64"(const uint8_t* data, Py_ssize_t size) noexcept
    # part of the file format: see sstable/FORMAT.md
