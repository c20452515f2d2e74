"""The blocked Bloom filter: a lookup reads one cache line.

Bytes: u32 blocks | u8 probes | 3 zero bytes | 64 bytes for each block (little-endian u64 words). A hash belongs
to block (hash * blocks) >> 64; its bits there are the lowest `probes` groups of nine bits of
hash * 0x9FB21C651E98DF25 mod 2**64: six bits name the bit, the three above them the word.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy

from hummock.base.coding cimport get_u32, put_u32
from hummock.base.foreground cimport ForegroundWork
from hummock.columnar.slab_allocator cimport slab_capacity, slab_release, slab_share, slab_acquire

from hummock.errors import Corruption

cdef enum:
    HEADER_BYTES = 8
    BLOCK_BYTES = 64
    BLOCK_BITS = 512
    MOST_PROBES = 7             # each uses nine bits of a 64-bit product
    MAX_BLOCKS = 1 << 26        # 4 GiB of filter
    AHEAD = 32                  # hashes whose lines are prefetched as a batch
    PART_HASHES = 16384         # between two pauses: less than a millisecond


cdef class BloomFilter:
    """`may_contain(hash)`: False only for hashes it was not built from."""

    def __dealloc__(self):
        slab_release(self.memory, self.memory_bytes)

    @staticmethod
    def load(const uint8_t[::1] data, str object_name="filter") -> BloomFilter:
        """Decodes the result of `build_filter`. Raises Corruption if it is malformed."""
        cdef BloomFilter filter = BloomFilter.__new__(BloomFilter)
        cdef Py_ssize_t size = data.shape[0]
        cdef uint8_t* words
        if size < HEADER_BYTES + BLOCK_BYTES:
            raise Corruption(object_name, "filter", f"at least {HEADER_BYTES + BLOCK_BYTES} bytes", size)
        filter.blocks, filter.probes = get_u32(&data[0]), data[4]
        if (filter.blocks * BLOCK_BYTES + HEADER_BYTES != <uint64_t>size or filter.probes < 1
                or filter.probes > MOST_PROBES or data[5] | data[6] | data[7]):
            raise Corruption(
                object_name, "filter", f"{size} bytes", f"{filter.blocks} blocks, {filter.probes} probes")
        filter.memory_bytes = slab_capacity(size + BLOCK_BYTES)
        filter.memory = slab_acquire(filter.memory_bytes)
        if filter.memory == NULL:
            raise MemoryError(f"no memory for {size} bytes of a filter")
        words = <uint8_t*>((<uintptr_t>filter.memory + BLOCK_BYTES - 1) & ~<uintptr_t>(BLOCK_BYTES - 1))
        with nogil:
            memcpy(words, &data[HEADER_BYTES], <size_t>(size - HEADER_BYTES))
        filter.words = <const uint64_t*>words
        filter.size_bytes = slab_share(filter.memory_bytes) + sizeof(BloomFilter)
        return filter

    def contains(self, uint64_t hash) -> bool:
        """`may_contain`, for Python."""
        return self.may_contain(hash)


def build_filter(const uint64_t[::1] hashes, int bits_per_key, ForegroundWork foreground=None) -> bytes:
    """A filter of `hashes` (uint64[n], in any order, repeats allowed) with about `bits_per_key` bits per hash. While
    there is `foreground` work it pauses, unless it is short: that of a large file takes as long as a checkpoint."""
    cdef Py_ssize_t count = hashes.shape[0]
    cdef uint64_t blocks = (<uint64_t>count * <uint64_t>bits_per_key + BLOCK_BITS - 1) // BLOCK_BITS
    cdef int probes = (bits_per_key * 6 + 5) // 10      # a little below bits * ln 2, as blocks fill unevenly
    cdef bytes out
    cdef uint8_t* at
    cdef Py_ssize_t start = 0, part
    cdef int64_t work_until = 0
    blocks = min(max(blocks, 1), MAX_BLOCKS)
    probes = min(max(probes, 1), MOST_PROBES)
    out = bytes(HEADER_BYTES + BLOCK_BYTES * blocks)
    at = <uint8_t*><char*>out                           # no other reference to these bytes exists yet
    put_u32(at, <uint32_t>blocks)
    at[4] = <uint8_t>probes
    with nogil:
        while start < count:
            if foreground is not None and start > 0:
                work_until = foreground.pause(work_until)
            part = min(count - start, PART_HASHES)
            add_all(<uint64_t*>(at + HEADER_BYTES), blocks, probes, &hashes[start], part)
            start += part
    return out


cdef void add_all(
    uint64_t* words, uint64_t blocks, int probes, const uint64_t* hashes, Py_ssize_t count
) noexcept nogil:
    cdef uint64_t* lines[AHEAD]
    cdef Py_ssize_t start = 0, at, ahead
    while start < count:
        ahead = count - start if count - start < AHEAD else AHEAD
        for at in range(ahead):
            lines[at] = words + 8 * bloom_block(hashes[start + at], blocks)
            prefetch_line(lines[at])
        for at in range(ahead):
            bloom_add(lines[at], hashes[start + at], probes)
        start += AHEAD
