"""KeyFilter: a Bloom filter of keys that grows, for state that was moved from memory to the store.

Split-block Bloom filters (Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom Filters, JEA 2009, in the
form that Parquet specifies): a key sets one bit in each of the eight words of one 32-byte block, so that a probe costs
one cache miss. When a filter is full, another of twice its size is begun (Almeida et al.: Scalable Bloom Filters,
2007). At BITS_PER_KEY bits a key about 1 % of other keys are not excluded by a layer.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from hummock.base.prefetch cimport prefetch
from relational.chunk.canonical cimport add_hashes
from relational.chunk.column cimport Column
from relational.chunk.data_chunk cimport DataChunk

import numpy as np

cdef enum:
    MOST_LAYERS = 24
    BLOCK_WORDS = 8
    BITS_PER_KEY = 12
    FIRST_BLOCKS = 1 << 12              # 128 KiB
    AHEAD = 16

cdef uint32_t[BLOCK_WORDS] SALT = [
    0x47B6137BU, 0x44974D91U, 0x8824AD5BU, 0xA2B7289DU, 0x705495C7U, 0x2DF1424BU, 0x9EFC4947U, 0x5C6BFB31U]


cdef struct FilterLayer:
    uint32_t* words                     # owned
    uint64_t blocks                     # of BLOCK_WORDS words, a power of two
    Py_ssize_t keys                     # added
    Py_ssize_t capacity                 # keys


cdef inline uint32_t* block_of(const FilterLayer* layer, uint64_t hash) noexcept nogil:
    return layer.words + ((hash >> 32) & (layer.blocks - 1)) * BLOCK_WORDS


cdef inline bint may_hold(const FilterLayer* layer, uint64_t hash) noexcept nogil:
    cdef const uint32_t* words = block_of(layer, hash)
    cdef uint32_t missing = 0
    cdef int word
    for word in range(BLOCK_WORDS):
        missing |= ~words[word] & (<uint32_t>1 << ((<uint32_t>hash * SALT[word]) >> 27))
    return missing == 0


cdef class KeyFilter:
    """Keys are rows of columns, equal as SQL values are [R4]."""

    cdef FilterLayer[MOST_LAYERS] layers        # each twice as large as the one before
    cdef int count
    cdef readonly Py_ssize_t keys

    def __dealloc__(self):
        cdef int layer
        for layer in range(self.count):
            free(self.layers[layer].words)

    @property
    def size_bytes(self) -> int:
        """Memory used."""
        return sum([self.layers[layer].blocks * BLOCK_WORDS * 4 for layer in range(self.count)])

    def add(self, DataChunk keys not None) -> None:
        """Adds each row. MemoryError."""
        cdef const uint64_t[::1] hashes = hashes_of(keys)
        cdef Py_ssize_t done = 0, rows
        while done < hashes.shape[0]:
            if self.count == 0 or self.layers[self.count - 1].keys == self.layers[self.count - 1].capacity:
                self.grow()
            rows = min(hashes.shape[0] - done,
                       self.layers[self.count - 1].capacity - self.layers[self.count - 1].keys)
            with nogil:
                self.add_hashes(&hashes[done], rows)
            done += rows

    def may_contain(self, DataChunk keys not None) -> np.ndarray:
        """bool[rows]: False where a row was certainly not added."""
        cdef const uint64_t[::1] hashes = hashes_of(keys)
        cdef unsigned char[::1] out
        found = np.zeros(hashes.shape[0], np.uint8)
        if hashes.shape[0] and self.count:
            out = found
            with nogil:
                self.probe(&hashes[0], hashes.shape[0], &out[0])
        return found.view(bool)

    cdef int grow(self) except -1:
        cdef FilterLayer* layer = &self.layers[self.count]
        if self.count == MOST_LAYERS:
            raise MemoryError("a key filter is full")
        layer.blocks = <uint64_t>FIRST_BLOCKS << self.count
        layer.words = <uint32_t*>calloc(layer.blocks * BLOCK_WORDS, sizeof(uint32_t))
        if layer.words == NULL:
            raise MemoryError(f"no memory for a key filter of {layer.blocks * BLOCK_WORDS * 4} bytes")
        layer.keys, layer.capacity = 0, <Py_ssize_t>(layer.blocks * BLOCK_WORDS * 32 // BITS_PER_KEY)
        self.count += 1
        return 0

    cdef void add_hashes(self, const uint64_t* hashes, Py_ssize_t rows) noexcept nogil:
        cdef FilterLayer* layer = &self.layers[self.count - 1]
        cdef uint32_t* words
        cdef Py_ssize_t row
        cdef int word
        for row in range(rows):
            if row + AHEAD < rows:
                prefetch(block_of(layer, hashes[row + AHEAD]))
            words = block_of(layer, hashes[row])
            for word in range(BLOCK_WORDS):
                words[word] |= <uint32_t>1 << ((<uint32_t>hashes[row] * SALT[word]) >> 27)
        layer.keys += rows
        self.keys += rows

    cdef void probe(self, const uint64_t* hashes, Py_ssize_t rows, unsigned char* out) noexcept nogil:
        cdef const FilterLayer* layer
        cdef Py_ssize_t row
        cdef int number
        for number in range(self.count):
            layer = &self.layers[number]
            for row in range(rows):
                if row + AHEAD < rows:
                    prefetch(block_of(layer, hashes[row + AHEAD]))
                out[row] |= may_hold(layer, hashes[row])


cdef object hashes_of(DataChunk keys):
    """uint64[rows]"""
    cdef uint64_t[::1] out
    cdef Column column
    hashes = np.zeros(keys.capacity, np.uint64)
    if keys.capacity:
        out = hashes
        for column in keys.columns:
            with nogil:
                add_hashes(&column.view, 0, out.shape[0], &out[0])
    return hashes
