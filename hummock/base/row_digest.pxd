"""The content hash of rows: equal for the same multiset of rows, in any order and distribution over files.

    content hash = sum over all rows of digest * weight, modulo 2**64
    digest       = fold(hash64(user key) ^ first, (K3 + size * K1) ^ last)
    weight       = epoch * K0 modulo 2**64, with its halves swapped and the lowest bit set

`first` and `last` are the value's first and last 8 bytes, little endian. For a shorter value `first` is all of it,
padded with zeros, and `last` is 0; for a delete both are 0, and the size counts as 2**64 - 1. So a row that is lost,
duplicated or has another epoch changes the sum, and so do values swapped between keys. The bytes between the ends of a
value are covered by block checksums only: reading all of them would cost four times as much. Weights are odd, hence
invertible: the hash of rows that all change from one epoch to another is computed without reading the rows.

`fold`, `hash64`, K0 and K1 are those of sstable/FORMAT.md. K0 is 2**64 over the golden ratio; K1 and K3 are the odd
integers nearest 2**64 / g and 2**64 / g**2 where g**4 = g + 1: nothing-up-my-sleeve numbers.
"""

from libc.stdint cimport uint8_t, uint64_t

from hummock.base.checksum cimport hash64

cdef extern from * nogil:
    """
    #ifndef HUMMOCK_CONTENT_HASH
    #define HUMMOCK_CONTENT_HASH
    /* `value` NULL: a delete. */
    static inline uint64_t hummock_row_digest(uint64_t key_hash, const uint8_t *value, int64_t size) {
        const uint64_t K1 = 0xD1B54A32D192ED03ull, K3 = 0xABC98388FB8FAC03ull;
        uint64_t first = 0, last = 0;
        if (size >= 8) { first = hummock_word(value); last = hummock_word(value + size - 8); }
        else for (int64_t i = 0; i < size; i++) first |= (uint64_t)value[i] << (8 * i);
        if (value == NULL) size = -1;
        return hummock_fold(key_hash ^ first, (K3 + (uint64_t)size * K1) ^ last);
    }
    static inline uint64_t hummock_epoch_weight(uint64_t epoch) {
        uint64_t spread = epoch * 0x9E3779B97F4A7C15ull;
        return (spread << 32 | spread >> 32) | 1;
    }
    #endif
    """
    uint64_t row_digest "hummock_row_digest"(uint64_t key_hash, const uint8_t* value, Py_ssize_t size) noexcept
    uint64_t epoch_weight "hummock_epoch_weight"(uint64_t epoch) noexcept


cdef inline uint64_t row_hash(
    const uint8_t* key, Py_ssize_t key_size, const uint8_t* value, Py_ssize_t size, uint64_t epoch
) noexcept nogil:
    """The contribution of one row to the content hash; `value` NULL: a tombstone."""
    return row_digest(hash64(key, key_size), value, size) * epoch_weight(epoch)


cdef inline uint64_t hash_under(uint64_t content_hash, uint64_t own, uint64_t other) noexcept nogil:
    """Converts the content hash of rows that all have epoch `own` to epoch `other`."""
    cdef uint64_t weight = epoch_weight(own), inverse = weight
    cdef int step
    for step in range(5):               # Newton's iteration: 3 correct bits at first, twice as many each step
        inverse *= 2 - weight * inverse
    return content_hash * inverse * epoch_weight(other)
