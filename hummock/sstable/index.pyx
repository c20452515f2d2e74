"""The block index of a file: position, checksum and first full key of each block.

Bytes of the index section of `.meta` (little endian, n = blocks):

    u32 n | u32 bytes of keys
    first epochs u64 x n | newest epochs u64 x n
    stored sizes u32 x n | payload sizes u32 x n | crc32c u32 x n | rows u32 x n | key lengths u32 x n
    codecs u8 x n | first user keys, concatenated

`.data` holds the blocks in this order without gaps, so their sizes determine their positions.
"""

from typing import NamedTuple

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from hummock.base.codec cimport CODEC_NONE, CODEC_ZSTD
from hummock.base.coding cimport get_u32
from hummock.base.key cimport Slice, compare_bytes, compare_full_key, head_of, same_bytes, shared_size, slice_of
from hummock.base.row_digest cimport hash_under
from hummock.columnar.buffer_pool cimport ByteBuffer
from hummock.columnar.slab_allocator cimport slab_capacity, slab_release, slab_share, slab_acquire
from hummock.sstable.block_format cimport MAX_RAW_BYTES, pieces_of
from hummock.sstable.interpolation_search cimport row_near

from hummock.errors import Corruption

cdef enum:
    HEADER_BYTES = 8
    ROW_BYTES = 37              # per block, without its key
    MAX_BLOCKS = 1 << 26


class BlockMeta(NamedTuple):
    """The index entry of one block."""

    first_key: bytes            # user key
    first_epoch: int
    max_epoch: int
    offset: int                 # in `.data`, bytes
    size: int                   # stored bytes
    raw_size: int               # bytes of the payload
    checksum: int               # crc32c of the stored bytes
    rows: int
    codec: int


cdef class SstableIndex:
    """One entry per block, as C arrays; `index[i]` is a BlockMeta."""

    def __dealloc__(self):
        slab_release(self.memory, self.memory_bytes)

    @staticmethod
    def decode(const uint8_t[::1] data, str object_name, data_bytes: int, rows: int) -> SstableIndex:
        """The index in a section's payload. Corruption unless it describes `data_bytes` and `rows` exactly."""
        cdef SstableIndex index = SstableIndex.__new__(SstableIndex)
        cdef Py_ssize_t size = data.shape[0], blocks, padded = (size + 7) & ~7
        cdef uint32_t keys_bytes
        if size < HEADER_BYTES:
            raise Corruption(object_name, "block index", f"at least {HEADER_BYTES} bytes", size)
        blocks, keys_bytes = get_u32(&data[0]), get_u32(&data[4])
        if blocks < 1 or blocks > MAX_BLOCKS or HEADER_BYTES + blocks * ROW_BYTES + keys_bytes != size:
            raise Corruption(object_name, "size of the block index", f"that of {blocks} blocks", size)
        index.memory_bytes = slab_capacity(padded + 20 * blocks + 16)
        index.memory = slab_acquire(index.memory_bytes)
        if index.memory == NULL:
            raise MemoryError(f"no memory for {index.memory_bytes} bytes of an index")
        memcpy(index.memory, &data[0], <size_t>size)
        index.blocks, index.size_bytes = blocks, slab_share(index.memory_bytes) + sizeof(SstableIndex)
        index.point_into_memory()
        fault = index.fault_in(keys_bytes, data_bytes, rows)
        if fault is not None:
            raise Corruption(object_name, "block index", None, fault)
        index.derive()
        return index

    cdef void point_into_memory(self) noexcept nogil:
        """Sets the pointers: stored columns at the front of the memory, derived ones behind them."""
        cdef Py_ssize_t n = self.blocks
        cdef const uint8_t* at = self.memory + HEADER_BYTES
        cdef const uint32_t* words = <const uint32_t*>(at + 16 * n)
        cdef Py_ssize_t keys_bytes = get_u32(self.memory + 4)
        cdef Py_ssize_t stored = (HEADER_BYTES + ROW_BYTES * n + keys_bytes + 7) & ~<Py_ssize_t>7
        self.first_epochs, self.max_epochs = <const uint64_t*>at, <const uint64_t*>at + n
        self.raw_sizes, self.checksums, self.rows = words + n, words + 2 * n, words + 3 * n
        self.codecs = <const uint8_t*>(words + 5 * n)
        self.keys = self.codecs + n
        self.offsets = <const uint64_t*>(self.memory + stored)
        self.heads = self.offsets + n + 1
        self.key_offsets = <const uint32_t*>(self.heads + n)

    cdef str fault_in(self, uint32_t keys_bytes, uint64_t data_bytes, uint64_t rows):
        """Computes the positions from the sizes; returns what is wrong with them, or None."""
        cdef const uint32_t* sizes = <const uint32_t*>(self.max_epochs + self.blocks)
        cdef const uint32_t* key_sizes = self.rows + self.blocks
        cdef uint64_t* offsets = <uint64_t*>self.offsets
        cdef uint32_t* key_offsets = <uint32_t*>self.key_offsets
        cdef uint64_t key_at = 0, all_rows = 0
        cdef Py_ssize_t block
        offsets[0], key_offsets[0] = 0, 0
        for block in range(self.blocks):
            if sizes[block] == 0 or self.raw_sizes[block] > MAX_RAW_BYTES or self.codecs[block] > CODEC_ZSTD:
                return f"block {block}: {sizes[block]} bytes, codec {self.codecs[block]}"
            offsets[block + 1] = offsets[block] + sizes[block]
            all_rows += self.rows[block]
            key_at += key_sizes[block]
            if key_at > keys_bytes:
                break
            key_offsets[block + 1] = <uint32_t>key_at
        if key_at != keys_bytes:
            return f"{key_at} bytes of keys where {keys_bytes} stand"
        if offsets[self.blocks] != data_bytes or all_rows != rows:
            return f"{offsets[self.blocks]} bytes, {all_rows} rows where the file has {data_bytes}, {rows}"
        for block in range(1, self.blocks):
            if compare_full_key(self.first_key(block - 1), self.first_epochs[block - 1],
                                self.first_key(block), self.first_epochs[block]) >= 0:
                return f"block {block} does not begin after block {block - 1}"
        return None

    cdef void derive(self) noexcept nogil:
        """Computes the common prefix of all first keys (of the first and the last: they ascend) and key prefixes."""
        cdef Slice first = self.first_key(0), last = self.first_key(self.blocks - 1), key
        cdef Py_ssize_t shared = shared_size(first.data, last.data, min(first.size, last.size)), block
        self.prefix.data, self.prefix.size = first.data, shared
        for block in range(self.blocks):
            key = self.first_key(block)
            (<uint64_t*>self.heads)[block] = head_of(key.data + shared, key.size - shared)
        self.even.first_head, self.even.prefix_size = self.heads[0], <uint32_t>shared
        self.even.last_block = <uint32_t>(self.blocks - 1)
        if self.heads[self.blocks - 1] > self.heads[0]:
            self.even.blocks_per_head = (
                <double>(self.blocks - 1) / <double>(self.heads[self.blocks - 1] - self.heads[0]))

    def set_hashes(self, const uint8_t[::1] data, uint64_t content_hash, str object_name) -> None:
        """Loads the content hash of each block. Corruption unless there is one per block and they add up to the file's.

        REQUIRES the only reference to the index, and no global epoch.
        """
        cdef Py_ssize_t block
        cdef uint64_t total = 0
        if data.shape[0] != 8 * self.blocks:
            raise Corruption(object_name, "content hashes", f"{self.blocks} of them", f"{data.shape[0]} bytes")
        self.hashes_held = ByteBuffer(8 * self.blocks)
        self.hashes_held.append(&data[0], data.shape[0])
        self.hashes = <const uint64_t*>self.hashes_held.data
        for block in range(self.blocks):
            total += self.hashes[block]
        if total != content_hash:
            raise Corruption(object_name, "sum of the content hashes", content_hash, total)

    def set_piece_checksums(self, const uint8_t[::1] data, str object_name) -> None:
        """Loads the checksums of the pieces of all blocks stored verbatim. Corruption unless there are as many.

        REQUIRES the only reference to the index.
        """
        cdef Py_ssize_t block, size = data.shape[0]
        cdef uint32_t* starts
        if size == 0 or size % 4 != 0:
            raise Corruption(object_name, "checksums of pieces", "some u32", f"{size} bytes")
        self.pieces_held = ByteBuffer(size + 4 * (self.blocks + 1))
        self.pieces_held.append(&data[0], size)
        starts = <uint32_t*>(self.pieces_held.data + size)
        starts[0] = 0
        for block in range(self.blocks):
            starts[block + 1] = starts[block] + <uint32_t>pieces_of(
                self.codecs[block] == CODEC_NONE, self.offsets[block + 1] - self.offsets[block])
        if size != 4 * <Py_ssize_t>starts[self.blocks]:
            raise Corruption(object_name, "checksums of pieces", f"{starts[self.blocks]} of them", f"{size} bytes")
        self.piece_checksums, self.piece_starts = <const uint32_t*>self.pieces_held.data, starts
        self.size_bytes += self.pieces_held.capacity

    def override_epochs(self, uint64_t epoch, str object_name) -> None:
        """Overrides the epoch of every entry. Corruption unless the first user keys of all blocks differ.

        REQUIRES the only reference to the index.
        """
        cdef Py_ssize_t block
        for block in range(1, self.blocks):
            if compare_bytes(self.first_key(block - 1), self.first_key(block)) >= 0:
                raise Corruption(object_name, "block index", "one version of a key under one epoch", block)
        for block in range(self.blocks if self.hashes != NULL else 0):
            (<uint64_t*>self.hashes)[block] = hash_under(self.hashes[block], self.max_epochs[block], epoch)
        for block in range(self.blocks):
            (<uint64_t*>self.first_epochs)[block] = (<uint64_t*>self.max_epochs)[block] = epoch
        self.global_epoch = epoch

    cdef Py_ssize_t find_block(self, Slice user_key, uint64_t epoch) noexcept nogil:
        return self.find_near(user_key, epoch, <Py_ssize_t>even_position(&self.even, user_key))

    cdef Py_ssize_t find_near(self, Slice user_key, uint64_t epoch, Py_ssize_t guess) noexcept nogil:
        cdef Py_ssize_t shared = self.prefix.size if self.prefix.size < user_key.size else user_key.size
        cdef Py_ssize_t low, high
        cdef uint64_t head
        if not same_bytes(user_key.data, self.prefix.data, shared):
            return 0 if memcmp(user_key.data, self.prefix.data, <size_t>shared) < 0 else self.blocks - 1
        if user_key.size < self.prefix.size:
            return 0
        head = head_of(user_key.data + shared, user_key.size - shared)
        low = row_near(self.heads, self.blocks, head, guess)        # the first block whose key prefix is not below
        high = low
        while high < self.blocks and self.heads[high] == head and high - low < 8:
            high += 1
        if high - low == 8:
            high = self.blocks                      # many equal key prefixes: compare whole keys up to the end
        low = self.count_upto(user_key, epoch, low, high)
        return low - 1 if low > 0 else 0

    cdef double share_before(self, Py_ssize_t block, Slice user_key) noexcept nogil:
        cdef Py_ssize_t shared = self.prefix.size, other = block + 1 if block + 1 < self.blocks else block - 1
        cdef uint64_t head, first = self.heads[block], gap
        if user_key.size < shared or other < 0:
            return 0.5
        head = head_of(user_key.data + shared, user_key.size - shared)
        gap = self.heads[other] - first if other > block else first - self.heads[other]
        if head <= first or gap == 0:
            return 0 if gap > 0 else 0.5
        return <double>(head - first) / <double>gap if head - first < gap else 1

    cdef Py_ssize_t count_upto(
        self, Slice user_key, uint64_t epoch, Py_ssize_t low, Py_ssize_t high
    ) noexcept nogil:
        """The first block of [low, high) that begins after the target; `high` if none does."""
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high) >> 1
            if compare_full_key(self.first_key(middle), self.first_epochs[middle], user_key, epoch) <= 0:
                low = middle + 1
            else:
                high = middle
        return low

    def find(self, bytes user_key, uint64_t epoch) -> int:
        """The last block whose first full key is at or before (user_key, epoch), or 0."""
        cdef Slice target
        target = slice_of(user_key)
        return self.find_block(target, epoch)

    def __len__(self) -> int:
        return self.blocks

    def __getitem__(self, Py_ssize_t block) -> BlockMeta:
        cdef Slice key
        if block < 0 or block >= self.blocks:
            raise IndexError(f"block {block} of a file of {self.blocks} blocks")
        key = self.first_key(block)
        return BlockMeta(
            (<const char*>key.data)[:key.size], self.first_epochs[block], self.max_epochs[block],
            self.offsets[block], self.offsets[block + 1] - self.offsets[block], self.raw_sizes[block],
            self.checksums[block], self.rows[block], self.codecs[block])


cdef class IndexBuilder:
    """Collects one entry per block; columns are in stored order."""

    def __cinit__(self):
        self.first_epochs, self.max_epochs, self.sizes, self.raw_sizes = (
            ByteBuffer(), ByteBuffer(), ByteBuffer(), ByteBuffer())
        self.checksums, self.rows, self.key_sizes, self.codecs, self.keys = (
            ByteBuffer(), ByteBuffer(), ByteBuffer(), ByteBuffer(), ByteBuffer())

    cdef int add(
        self, Slice first_key, uint64_t first_epoch, uint64_t max_epoch, uint32_t size, uint32_t raw_size,
        uint32_t checksum, uint32_t rows, uint8_t codec,
    ) except -1 nogil:
        cdef uint32_t key_size = <uint32_t>first_key.size
        self.first_epochs.append(<const uint8_t*>&first_epoch, 8)
        self.max_epochs.append(<const uint8_t*>&max_epoch, 8)
        self.sizes.append(<const uint8_t*>&size, 4)
        self.raw_sizes.append(<const uint8_t*>&raw_size, 4)
        self.checksums.append(<const uint8_t*>&checksum, 4)
        self.rows.append(<const uint8_t*>&rows, 4)
        self.key_sizes.append(<const uint8_t*>&key_size, 4)
        self.codecs.append(&codec, 1)
        self.keys.append(first_key.data, first_key.size)
        self.blocks += 1
        return 0

    def encode(self) -> bytes:
        """The index section. OverflowError if the keys exceed 4 GiB."""
        header = self.blocks.to_bytes(4, "little") + self.keys.size.to_bytes(4, "little")
        return b"".join((
            header, self.first_epochs, self.max_epochs, self.sizes, self.raw_sizes, self.checksums, self.rows,
            self.key_sizes, self.codecs, self.keys))
