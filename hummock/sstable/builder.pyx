"""SstableBuilder: builds one file from entries in full key order.

Blocks are compressed and checksummed as they fill, and key hashes are collected in a C array, so that `finish` only
builds the filter and the index. `add` runs without the GIL; one writer.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from hummock.base.checksum cimport crc32c, hash64
from hummock.base.codec cimport CODEC_NONE, compress, compress_bound
from hummock.base.key cimport Slice, compare_bytes, head_of, slice_of
from hummock.base.row_digest cimport epoch_weight, row_digest
from hummock.columnar.buffer_pool cimport ByteBuffer, pool_capacity, pool_acquire
from hummock.columnar.write_batch cimport MAX_KEY_BYTES, MAX_VALUE_BYTES
from hummock.iterator.base cimport Entry, low_of
from hummock.sstable.block_builder cimport BlockBuilder
from hummock.sstable.block_format cimport PIECE_BYTES, pieces_of
from hummock.sstable.filter.prefix_extractor cimport PrefixExtractor
from hummock.sstable.index cimport IndexBuilder

from hummock.base.codec import CODEC_IDS, CODEC_NAMES
from hummock.sstable.filter.policy import FilterPolicy
from hummock.sstable.filter.prefix_extractor import key_prefix
from hummock.sstable.index import SstableIndex
from hummock.sstable.info import SstableInfo
from hummock.sstable.meta import MOST_SAMPLES, SAMPLE_KEY_BYTES, SplitSample, digest_of, encode_meta

cdef Py_ssize_t PAGE_BYTES = 4096        # whole pages are written fastest

cdef enum:                              # blocks that do not compress cost lz4 more time than all else that builds them
    SAMPLED_AFTER_BLOCKS = 2            # stored verbatim, one after the other
    SAMPLED_BYTES = 16 << 10            # smaller payloads are just compressed
    SAMPLE_PIECES = 4                   # spread over the payload, ...
    SAMPLE_PIECE_BYTES = 1024           # ... of that size
    SAMPLED_BLOCKS = 8                  # one of so many is sampled, ...
    TRIED_BLOCKS = 64                   # ... and one of so many is compressed as a whole


class SstableOutput(NamedTuple):
    """A finished file. `data` and `meta` support the buffer protocol; their memory is not copied."""

    name: str
    data: object        # contents of `<name>.data` behind the parts already sent
    meta: object        # contents of `<name>.meta`
    info: SstableInfo


cdef class PartSink:

    cdef int leave(self, uint8_t* data, Py_ssize_t size, Py_ssize_t capacity) except -1 nogil:
        with gil:
            raise TypeError(f"{type(self).__name__} does not say where pieces go")

    cdef void begin(self) noexcept nogil:
        pass

    cdef void end(self) noexcept nogil:
        pass


cdef class SstableBuilder:
    """Builds one file from entries in full key order.

    `prefix_rules` maps a table id to the rule for the prefixes of its user keys that also enter the filter, so that a
    scan by that prefix can skip the file; the file records the rules it was built with. `begin` allocates
    `data_bytes` for `.data`: growing to it would touch fresh memory, or copy. With a `sink`, parts of nearly
    `data_bytes`, whole pages, are sent as they fill, and `finish` returns the rest of the file.
    """

    def __init__(self, options, policy: FilterPolicy, str name, dict prefix_rules=None, Py_ssize_t data_bytes=0,
                 PartSink sink=None):
        self.name, self.policy, self.prefix_rules = name, policy, prefix_rules or {}
        self.codec, self.block_bytes = CODEC_IDS[options.codec], options.block_bytes
        self.tables, self.sink, self.data_bytes = ByteBuffer(), sink, data_bytes
        self.note_rules()
        if sink is not None:
            self.part_bytes = max(data_bytes - 2 * options.block_bytes, PAGE_BYTES)
        self.block, self.index = BlockBuilder(), IndexBuilder()
        self.data, self.hashes, self.smallest = ByteBuffer(), ByteBuffer(), ByteBuffer()
        self.block_hashes, self.piece_checksums = ByteBuffer(), ByteBuffer()
        self.min_epoch = <uint64_t>0xFFFFFFFFFFFFFFFF

    def __dealloc__(self):
        free(self.rules)

    cdef int begin(self) except -1 nogil:
        if self.sink is not None:
            self.sink.begin()
        return self.data.reserve(self.data_bytes)

    cdef int add(self, const Entry* entry) except -1 nogil:
        cdef uint32_t table_id = <uint32_t>(entry.high >> 32)
        cdef Py_ssize_t used, entry_bytes = entry.user_key.size + entry.value.size
        cdef uint64_t epoch = entry.epoch
        cdef int order = -1
        if self.is_finished:
            self.refuse(entry.user_key, epoch)
        if self.rows > 0:
            order = self.order_of(entry)
            if order > 0 or (order == 0 and epoch >= self.block.last_epoch):
                self.refuse(entry.user_key, epoch)
        if self.rows == 0 or table_id != self.table_id:
            self.enter_table(table_id)
            if self.rows == 0:
                self.smallest.append(entry.user_key.data, entry.user_key.size)
        used = self.block.keys_bytes + self.block.values_bytes + entry_bytes
        if used > self.check_at:
            self.maybe_cut(used, entry_bytes)
        self.block.append(entry.user_key, epoch, entry.value, order == 0)
        if order == 0:
            self.stale_rows += 1
        else:
            self.start_key(entry.user_key)
            self.last_high, self.last_low = entry.high, entry.low
        self.open_hash += row_digest(self.key_hash, entry.value.data, entry.value.size) * epoch_weight(epoch)
        self.rows += 1
        self.tombstones += entry.value.data == NULL
        self.min_epoch = epoch if epoch < self.min_epoch else self.min_epoch
        self.max_epoch = epoch if epoch > self.max_epoch else self.max_epoch
        return 0

    cdef int order_of(self, const Entry* entry) noexcept nogil:
        if self.last_high != entry.high:
            return -1 if self.last_high < entry.high else 1
        if self.last_low != entry.low:
            return -1 if self.last_low < entry.low else 1
        if entry.user_key.size <= 16 and entry.user_key.size == self.block.last_key_size:
            return 0                    # the 16-byte key prefixes hold the whole keys
        return compare_bytes(self.block.last_key(), entry.user_key)

    cdef int enter_table(self, uint32_t table_id) except -1 nogil:
        """Ends the block, since no block spans two tables, and looks up the table's rule."""
        if self.block.rows > 0:
            self.cut_block()
        self.table_id, self.verbatim_blocks = table_id, 0
        self.prefix = self.prefix_of(table_id)
        return self.tables.append(<uint8_t*>&table_id, sizeof(uint32_t))

    cdef void* prefix_of(self, uint32_t table_id) noexcept nogil:
        cdef Py_ssize_t at
        for at in range(self.rule_count):
            if self.rules[at].table_id == table_id:
                return self.rules[at].prefix
        return NULL

    cdef int note_rules(self) except -1:
        """Copies the rules to a C array, for lookups without the GIL."""
        self.prefixes = [(table_id, key_prefix(rule)) for table_id, rule in self.prefix_rules.items() if rule]
        self.rules = <TableRule*>calloc(<size_t>len(self.prefixes) + 1, sizeof(TableRule))
        if self.rules == NULL:
            raise MemoryError
        for table_id, prefix in self.prefixes:
            self.rules[self.rule_count].table_id = table_id
            self.rules[self.rule_count].prefix = <void*>prefix
            self.rule_count += 1
        return 0

    cdef int start_key(self, Slice user_key) except -1 nogil:
        """Collects the hashes of a new user key."""
        cdef uint64_t hash = hash64(user_key.data, user_key.size)
        cdef Py_ssize_t prefix_bytes
        self.key_hash = hash
        if self.hashes.size + 16 > self.hashes.capacity:
            self.hashes.reserve(16)
        memcpy(self.hashes.data + self.hashes.size, &hash, 8)
        self.hashes.size += 8
        if self.prefix != NULL:
            prefix_bytes = (<PrefixExtractor>self.prefix).length_of(user_key)
            if 0 < prefix_bytes < user_key.size:
                hash = hash64(user_key.data, prefix_bytes)
                if hash != self.last_prefix_hash:
                    self.last_prefix_hash = hash
                    memcpy(self.hashes.data + self.hashes.size, &hash, 8)
                    self.hashes.size += 8
        return 0

    cdef int maybe_cut(self, Py_ssize_t used, Py_ssize_t entry_bytes) except -1 nogil:
        """Ends the block if the next entry would exceed its target size, else sets when to check again."""
        cdef Py_ssize_t room = self.block_bytes - self.block.raw_bytes() - entry_bytes
        if self.block.rows > 0 and room < 0:
            self.cut_block()
            self.check_at = self.block_bytes >> 1
        else:
            # other columns than keys and values grow too, so each check halves the remaining distance
            self.check_at = used + (room >> 1)
        return 0

    cdef int cut_block(self) except -1 nogil:
        cdef Slice payload, first
        cdef Py_ssize_t written = -1
        cdef uint8_t* target
        cdef int codec = self.codec
        cdef uint64_t first_epoch = self.block.epochs[0]
        self.block.encode(&payload)
        self.data.reserve(compress_bound(codec, payload.size) + payload.size)
        target = self.data.data + self.data.size
        if codec != CODEC_NONE and self.is_worth_compressing(payload, target):
            written = compress(codec, payload.data, payload.size, target, payload.size - (payload.size >> 3))
        self.verbatim_blocks = self.verbatim_blocks + 1 if written < 0 else 0
        if written < 0:                 # saves less than an eighth: stored uncompressed
            codec, written = CODEC_NONE, payload.size
            memcpy(target, payload.data, <size_t>payload.size)
            self.add_piece_checksums(target, written)
        first.data, first.size = self.block.keys, self.block.first_key_size
        self.index.add(
            first, first_epoch, self.block.max_epoch, <uint32_t>written, <uint32_t>payload.size,
            crc32c(target, written), <uint32_t>self.block.rows, <uint8_t>codec)
        self.block_hashes.append(<uint8_t*>&self.open_hash, 8)
        self.content_hash += self.open_hash
        self.open_hash = 0
        self.data.size += written
        self.uncompressed_bytes += <uint64_t>payload.size
        self.block.clear()
        if 0 < self.part_bytes <= self.data.size:
            self.send_part()
        return 0

    cdef int add_piece_checksums(self, const uint8_t* stored, Py_ssize_t size) except -1 nogil:
        """Computes the checksums of the pieces of a block stored verbatim."""
        cdef Py_ssize_t piece
        cdef uint32_t checksum
        for piece in range(pieces_of(True, size)):
            checksum = crc32c(stored + piece * PIECE_BYTES, min(PIECE_BYTES, size - piece * PIECE_BYTES))
            self.piece_checksums.append(<uint8_t*>&checksum, 4)
        return 0

    cdef bint is_worth_compressing(self, Slice payload, uint8_t* scratch) noexcept nogil:
        """Where the table's blocks before saved too little, a block is compressed if a sample of it saves something.
        A sample misses what repeats farther apart, so some blocks are tried whatever it says.
        """
        cdef uint8_t sample[SAMPLE_PIECES * SAMPLE_PIECE_BYTES]
        cdef Py_ssize_t piece, step = (payload.size - SAMPLE_PIECE_BYTES) // SAMPLE_PIECES
        if self.verbatim_blocks < SAMPLED_AFTER_BLOCKS or payload.size < SAMPLED_BYTES:
            return True
        if self.verbatim_blocks % SAMPLED_BLOCKS != 0:
            return False
        if self.verbatim_blocks % TRIED_BLOCKS == 0:
            return True
        for piece in range(SAMPLE_PIECES):
            memcpy(sample + piece * SAMPLE_PIECE_BYTES, payload.data + piece * step, SAMPLE_PIECE_BYTES)
        return compress(self.codec, sample, sizeof(sample), scratch, sizeof(sample) - (sizeof(sample) >> 4)) >= 0

    cdef int end_rows(self) except -1 nogil:
        cdef uint8_t* rest
        cdef Py_ssize_t size, held
        if self.block.rows > 0:
            self.cut_block()
        if self.part_bytes > 0:
            rest, size, held = self.data.data, self.data.size, self.data.capacity
            self.data.data, self.data.size, self.data.capacity = NULL, 0, 0
            self.left_bytes += size
            self.sink.leave(rest, size, held)
            self.sink.end()
        return 0

    cdef int send_part(self) except -1 nogil:
        """Sends the whole pages encoded so far, and continues in other pooled memory."""
        cdef Py_ssize_t whole = self.data.size & ~(PAGE_BYTES - 1), capacity = pool_capacity(self.data_bytes)
        cdef uint8_t* piece = self.data.data
        cdef uint8_t* fresh = pool_acquire(capacity)
        cdef Py_ssize_t held = self.data.capacity
        if fresh == NULL:
            with gil:
                raise MemoryError(f"no memory for {capacity} bytes of file {self.name}")
        memcpy(fresh, piece + whole, <size_t>(self.data.size - whole))
        self.data.data, self.data.capacity, self.data.size = fresh, capacity, self.data.size - whole
        self.left_bytes += whole
        return self.sink.leave(piece, whole, held)

    cdef Py_ssize_t bytes_so_far(self) noexcept nogil:
        return self.left_bytes + self.data.size + self.block.keys_bytes + self.block.values_bytes

    cdef int refuse(self, Slice user_key, uint64_t epoch) except -1 with gil:
        key = (<const char*>user_key.data)[:user_key.size]
        if self.is_finished:
            raise ValueError(f"file {self.name} is finished, ({key!r}, {epoch}) came after")
        last = self.block.last_key()
        before = (<const char*>last.data)[:last.size]
        raise ValueError(
            f"entry {self.rows} of file {self.name}: ({key!r}, {epoch}) is not after "
            f"({before!r}, {self.block.last_epoch})")

    def put(self, bytes user_key, uint64_t epoch, value) -> None:
        """Adds one entry; `value` None is a tombstone. ValueError unless its full key is after all previous ones."""
        cdef bytes held = value if value is not None else b""
        cdef Entry entry
        if len(user_key) > MAX_KEY_BYTES or len(held) > MAX_VALUE_BYTES:
            raise ValueError(f"a key of {len(user_key)} bytes with a value of {len(held)} bytes is too long")
        fill_entry(&entry, user_key, epoch, held, value is None)
        with nogil:                     # sending a part may block
            self.add(&entry)

    @property
    def size_bytes(self) -> int:
        """Bytes of `.data` so far; the open block counts uncompressed."""
        return self.bytes_so_far()

    def finish(self) -> SstableOutput:
        """The finished file. ValueError if it is empty or was finished before."""
        cdef Slice last
        if self.rows == 0 or self.is_finished:
            raise ValueError(f"file {self.name} holds {self.rows} entries, finished: {self.is_finished}")
        self.is_finished = True
        if self.block.rows > 0:
            with nogil:
                self.cut_block()
        tables = np.frombuffer(self.tables, np.uint32).tolist()
        last = self.block.last_key()
        info = SstableInfo(
            name=self.name, smallest=self.smallest.to_bytes(), largest=(<const char*>last.data)[:last.size],
            rows=self.rows, data_bytes=self.left_bytes + self.data.size, uncompressed_bytes=self.uncompressed_bytes,
            table_ids=tuple(tables), min_epoch=self.min_epoch, max_epoch=self.max_epoch,
            stale_rows=self.stale_rows, tombstones=self.tombstones, filter_policy=self.policy.name,
            codec=CODEC_NAMES[self.codec], content_hash=self.content_hash,
            prefixes=tuple([(table, self.prefix_rules[table]) for table in tables
                            if self.prefix_rules.get(table) is not None]))
        index = self.index.encode()
        filter = self.policy.build(np.frombuffer(self.hashes, np.uint64))
        samples = split_samples(SstableIndex.decode(index, self.name, info.data_bytes, info.rows))
        meta = encode_meta(info, index, filter, self.block_hashes.to_bytes(), samples, self.piece_checksums.to_bytes())
        info = replace(info, meta_bytes=len(meta), meta_digest=digest_of(meta))
        return SstableOutput(self.name, self.data, meta, info)


cdef int fill_entry(Entry* entry, bytes user_key, uint64_t epoch, bytes value, bint deletes) except -1:
    """Fills `entry`, valid while the caller holds `user_key` and `value`."""
    entry.user_key = slice_of(user_key)
    entry.value.data = NULL if deletes else <const uint8_t*><const char*>value
    entry.value.size, entry.epoch = len(value), epoch
    entry.high = head_of(entry.user_key.data, entry.user_key.size)
    entry.low = low_of(entry.user_key.data, entry.user_key.size)
    return 0


def split_samples(index: SstableIndex) -> list:
    """Keys that split the file into at most MOST_SAMPLES ranges of about equal size."""
    step = -(-len(index) // MOST_SAMPLES)
    blocks = [index[at] for at in range(step, len(index), step)]
    return [SplitSample(block.first_key[:SAMPLE_KEY_BYTES], block.offset) for block in blocks]
