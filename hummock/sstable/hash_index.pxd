"""The hash index of a cached block: from the hash of a user key to its newest row in the block.

RocksDB stores such an index with a block (`kDataBlockBinaryAndHash`); here it is computed when a block is cached, so it
is no part of the format. It needs no evenly distributed keys and no equal lengths, and a lookup reads one cache line to
learn where suffix and value begin. Buckets are cache lines of eight u64 entries, filled from the front; a key whose
bucket is full is in the next one that is not.

    bit 0       1: the entry is used
    bits 1-10   the same bits of the key's hash
    bits 11-26  row
    bits 27-44  position of the suffix in the block's suffixes
    bits 45-63  position of the value in the block's values
"""

from libc.stdint cimport uint64_t

cdef extern from * nogil:
    """
    #ifndef HUMMOCK_HASH_INDEX
    #define HUMMOCK_HASH_INDEX
    #include <stdint.h>
    /* the entry of eight with this tag, the last of several, or 0; without branches, which would be mispredicted */
    static inline uint64_t hummock_tagged_entry(const uint64_t *bucket, uint64_t tag) {
        uint64_t found = 0;
        for (int i = 0; i < 8; i++) found = (bucket[i] & 0x7FF) == tag ? bucket[i] : found;
        return found;
    }
    #endif
    """
    uint64_t tagged_entry "hummock_tagged_entry"(const uint64_t* bucket, uint64_t tag) noexcept


cdef enum:
    BUCKET_ENTRIES = 8
    BUCKET_BYTES = 64
    BUCKET_KEYS = 5             # on average
    TAG_MASK = 0x7FF
    ROW_SHIFT = 11
    SUFFIX_SHIFT = 27
    VALUE_SHIFT = 45
    MAX_INDEXED_ROWS = 1 << 16
    MAX_INDEXED_SUFFIXES = 1 << 18      # bytes
    MAX_INDEXED_VALUES = 1 << 19
    MAX_INDEXED_KEY = 1 << 10


cdef inline Py_ssize_t buckets_for(Py_ssize_t rows) noexcept nogil:
    return rows // BUCKET_KEYS + 1


cdef inline Py_ssize_t index_room(Py_ssize_t rows) noexcept nogil:
    """Bytes of the index of so many rows, and what aligning it to a cache line may cost."""
    return BUCKET_BYTES * (buckets_for(rows) + 1)


cdef inline const uint64_t* bucket_of(const uint64_t* buckets, Py_ssize_t count, uint64_t hash) noexcept nogil:
    return buckets + BUCKET_ENTRIES * <Py_ssize_t>(((hash >> 32) * <uint64_t>count) >> 32)


cdef inline uint64_t entry_of(const uint64_t* buckets, Py_ssize_t count, uint64_t hash) noexcept nogil:
    """The entry of a key with this hash, or of another one with the same tag; 0: the block has no such key."""
    cdef const uint64_t* bucket = bucket_of(buckets, count, hash)
    cdef uint64_t found = tagged_entry(bucket, (hash & TAG_MASK) | 1)
    cdef Py_ssize_t left = count
    while found == 0 and bucket[BUCKET_ENTRIES - 1] != 0 and left > 1:
        bucket += BUCKET_ENTRIES
        left -= 1
        if bucket == buckets + BUCKET_ENTRIES * count:
            bucket = buckets
        found = tagged_entry(bucket, (hash & TAG_MASK) | 1)
    return found


cdef inline void put_entry(
    uint64_t* buckets, Py_ssize_t count, uint64_t hash, Py_ssize_t row, uint64_t suffix, uint64_t value
) noexcept nogil:
    """REQUIRES fewer entries than the buckets have room for."""
    cdef uint64_t* bucket = <uint64_t*>bucket_of(buckets, count, hash)
    cdef int place = 0
    while bucket[place] != 0:
        place += 1
        if place == BUCKET_ENTRIES:
            bucket, place = bucket + BUCKET_ENTRIES, 0
            if bucket == buckets + BUCKET_ENTRIES * count:
                bucket = buckets
    bucket[place] = (hash & TAG_MASK) | 1 | (<uint64_t>row << ROW_SHIFT) | (suffix << SUFFIX_SHIFT) | (
        value << VALUE_SHIFT)


cdef inline Py_ssize_t row_of_entry(uint64_t entry) noexcept nogil:
    return <Py_ssize_t>((entry >> ROW_SHIFT) & (MAX_INDEXED_ROWS - 1))


cdef inline Py_ssize_t suffix_of_entry(uint64_t entry) noexcept nogil:
    return <Py_ssize_t>((entry >> SUFFIX_SHIFT) & (MAX_INDEXED_SUFFIXES - 1))


cdef inline Py_ssize_t value_of_entry(uint64_t entry) noexcept nogil:
    return <Py_ssize_t>(entry >> VALUE_SHIFT)
