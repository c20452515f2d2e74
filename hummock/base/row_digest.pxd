"""The content hash of rows: a number that says whether the same rows are there, in whatever order and files.

    content hash = sum over all rows of digest * weight, modulo 2**64
    digest       = fold(hash64(user key) ^ first, (K3 + size * K1) ^ last)
    weight       = the halves of epoch * K0 modulo 2**64 in each other's place, the lowest bit set

`first` and `last` are the value's first and last 8 bytes, little endian. Of a shorter value `first` is all of it,
padded with zeros, and `last` is 0; of a delete both are 0, and its size counts as 2**64 - 1. So a row that is lost, doubled or
stands under another epoch changes the sum, and so do values that stand at each other's keys. What lies between the ends
of a value is left to the checksums of blocks: to read all of it would cost four times as much. A weight is odd, hence
has an inverse: rows that all change from one epoch to another need not be seen again for their hash to be known.

`fold`, `hash64`, K0 and K1 are those of sstable/FORMAT.md. K0 is 2**64 over the golden ratio; K1 and K3 are the odd
numbers nearest 2**64 / g and 2**64 / g**2 where g**4 = g + 1: bits whose pattern nobody chose.
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
    """What one row adds to the content hash; a `value` of NULL deletes."""
    return row_digest(hash64(key, key_size), value, size) * epoch_weight(epoch)


cdef inline uint64_t hash_under(uint64_t content_hash, uint64_t own, uint64_t other) noexcept nogil:
    """The content hash under epoch `other` of rows that all stand under `own`, where theirs is `content_hash`."""
    cdef uint64_t weight = epoch_weight(own), inverse = weight
    cdef int step
    for step in range(5):               # Newton: 3 bits are right at first, and twice as many each time
        inverse *= 2 - weight * inverse
    return content_hash * inverse * epoch_weight(other)
