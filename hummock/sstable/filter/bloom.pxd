"""The blocked Bloom filter: a lookup reads one cache line."""

cimport cython
from libc.stdint cimport uint8_t, uint64_t

from hummock.sstable.prefetch cimport prefetch_line

cdef extern from * nogil:
    """
    #ifndef HUMMOCK_BLOOM
    #define HUMMOCK_BLOOM
    #include <stdint.h>
    #define HUMMOCK_BLOOM_SPREAD 0x9FB21C651E98DF25ull
    static inline uint64_t hummock_bloom_block(uint64_t hash, uint64_t blocks) {
        return (uint64_t)(((unsigned __int128)hash * blocks) >> 64);
    }
    static inline void hummock_bloom_add(uint64_t *block, uint64_t hash, int probes) {
        uint64_t spread = hash * HUMMOCK_BLOOM_SPREAD;
        for (int i = 0; i < probes; i++, spread >>= 9) block[spread >> 6 & 7] |= 1ull << (spread & 63);
    }
    static inline int hummock_bloom_has(const uint64_t *block, uint64_t hash, int probes) {
        uint64_t spread = hash * HUMMOCK_BLOOM_SPREAD, all = 1;
        for (int i = 0; i < probes; i++, spread >>= 9) all &= block[spread >> 6 & 7] >> (spread & 63);
        return (int)(all & 1);
    }
    #endif
    """
    uint64_t bloom_block "hummock_bloom_block"(uint64_t hash, uint64_t blocks) noexcept
    void bloom_add "hummock_bloom_add"(uint64_t* block, uint64_t hash, int probes) noexcept
    bint bloom_has "hummock_bloom_has"(const uint64_t* block, uint64_t hash, int probes) noexcept


cdef inline const void* filter_line(const uint64_t* words, uint64_t blocks, uint64_t hash) noexcept nogil:
    """The cache line that a lookup of the hash reads."""
    return words + 8 * bloom_block(hash, blocks)


@cython.final
cdef class BloomFilter:
    """Decoded and checked; immutable; safe from any thread."""
    cdef readonly Py_ssize_t size_bytes     # memory held, for cache accounting
    cdef readonly int probes                # bits set for each hash, 1..7
    cdef uint64_t blocks
    cdef const uint64_t* words              # 8 per block, aligned to a cache line; points into `memory`
    cdef uint8_t* memory                    # from a slab
    cdef Py_ssize_t memory_bytes

    cdef inline bint may_contain(self, uint64_t hash) noexcept nogil:   # False: no such key was added
        return bloom_has(self.words + 8 * bloom_block(hash, self.blocks), hash, self.probes)

    cdef inline const void* line_of(self, uint64_t hash) noexcept nogil:        # the line `may_contain` reads
        return filter_line(self.words, self.blocks, hash)

    cdef inline void prefetch(self, uint64_t hash) noexcept nogil:
        prefetch_line(self.line_of(hash))
