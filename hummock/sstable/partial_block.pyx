"""PartialBlock: an uncached block, read for a few rows and not kept.

The stored bytes are read without the GIL from an open file into the previous block's memory, which is in the
processor's cache, and all of them are checked. Only the keys, which come first, are decoded; after the search the
values are decoded up to the requested one. A block that is stored verbatim is read to where it is parsed.
"""

from libc.stdint cimport uint8_t

from hummock.base.checksum cimport crc32c
from hummock.base.codec cimport CODEC_LZ4, CODEC_NONE, can_hold, decompress
from hummock.base.coding cimport get_u32
from hummock.base.key cimport Slice
from hummock.base.lz4_incremental cimport LZ4_SLACK, lz4_begin, lz4_until
from hummock.columnar.buffer_pool cimport pool_capacity, pool_release, pool_acquire
from hummock.object_store.fd_cache cimport CachedFd
from hummock.sstable.block cimport Block, room_of
from hummock.sstable.block_format cimport HEADER_BYTES, MAX_RAW_BYTES
from hummock.sstable.index cimport SstableIndex

cdef enum:
    VALUES_SIZE_AT = 24         # offset in the header


cdef class PartialBlock:

    def __cinit__(self):
        self.block = Block("")

    def __dealloc__(self):
        pool_release(self.stored, self.capacity)

    cdef Py_ssize_t read(self, CachedFd file, SstableIndex index, Py_ssize_t number, bint may_wait) except -1 nogil:
        cdef Py_ssize_t size = <Py_ssize_t>(index.offsets[number + 1] - index.offsets[number]), got
        cdef Py_ssize_t raw_size = index.raw_sizes[number], rows = index.rows[number]
        cdef bint is_verbatim = index.codecs[number] == CODEC_NONE
        cdef uint8_t* target
        if raw_size < HEADER_BYTES or raw_size > MAX_RAW_BYTES or rows > raw_size or (
                is_verbatim and raw_size != size):
            return NOT_READ
        self.block.make_room(room_of(raw_size, rows) + LZ4_SLACK, 0)        # decoding must not reallocate
        if not is_verbatim:
            self.make_room(size + LZ4_SLACK)
        self.is_partial = index.codecs[number] == CODEC_LZ4
        target = self.block.memory if is_verbatim else self.stored
        if may_wait:
            got = file.read(target, size, index.offsets[number])
        else:
            got = file.read_now(target, size, index.offsets[number])
        if got != size or crc32c(target, size) != index.checksums[number]:
            return NOT_READ
        if not (is_verbatim or self.unpack(index, number, size)):
            return NOT_READ
        self.block.parse(raw_size, number, False)
        if self.block.rows != rows:
            return NOT_READ
        if index.global_epoch > 0:
            self.block.override_epochs(index.global_epoch, number)
        return self.block.rows

    cdef bint unpack(self, SstableIndex index, Py_ssize_t number, Py_ssize_t size) except -1 nogil:
        """Decompresses at least the keys."""
        cdef Py_ssize_t raw_size = index.raw_sizes[number]
        cdef int codec = index.codecs[number]
        if not can_hold(codec, self.stored, size, raw_size):
            return False
        if self.is_partial:
            lz4_begin(&self.cursor, self.stored, size, self.block.memory, raw_size)
            if not lz4_until(&self.cursor, HEADER_BYTES) or get_u32(self.block.memory) != index.rows[number]:
                return False
            self.keys_end = raw_size - get_u32(self.block.memory + VALUES_SIZE_AT)
            if self.keys_end < HEADER_BYTES or not lz4_until(&self.cursor, self.keys_end):
                return False
        elif not decompress(codec, self.stored, size, self.block.memory, raw_size):
            return False
        return True

    cdef int make_room(self, Py_ssize_t size) except -1 nogil:
        if size > self.capacity:
            pool_release(self.stored, self.capacity)
            self.capacity = pool_capacity(2 * size)
            self.stored = pool_acquire(self.capacity)
            if self.stored == NULL:
                self.capacity = 0
                with gil:
                    raise MemoryError
        return 0

    cdef bint show(self, Slice value) noexcept nogil:
        return not self.is_partial or value.data == NULL or lz4_until(
            &self.cursor, value.data + value.size - self.block.memory)
