"""PartialBlock: an uncached block, read for a few rows and not kept.

The stored bytes are read without the GIL from an open file into the previous block's memory, which is in the
processor's cache, and all that is read is checked. Only the keys, which come first, are decoded; after the search the
values are decoded up to the requested one. A block that is stored verbatim is read to where it is parsed; for one row,
only the pieces that hold the keys and the value.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from hummock.base.checksum cimport crc32c
from hummock.base.codec cimport CODEC_LZ4, CODEC_NONE, can_hold, decompress
from hummock.base.coding cimport get_u32
from hummock.base.key cimport Slice
from hummock.base.lz4_incremental cimport LZ4_SLACK, lz4_begin, lz4_until
from hummock.columnar.buffer_pool cimport pool_capacity, pool_release, pool_acquire
from hummock.object_store.fd_cache cimport CachedFd
from hummock.sstable.block cimport Block, room_of
from hummock.sstable.block_format cimport HEADER_BYTES, MAX_RAW_BYTES, PIECE_BYTES
from hummock.sstable.index cimport SstableIndex

cdef enum:
    VALUES_SIZE_AT = 24         # offset in the header
    FEWEST_PIECES = 4           # of a block that is not read as a whole


cdef class PartialBlock:

    def __cinit__(self):
        self.block = Block("")
        self.front = PIECE_BYTES

    def __dealloc__(self):
        pool_release(self.stored, self.capacity)

    cdef Py_ssize_t read(
        self, CachedFd file, SstableIndex index, Py_ssize_t number, bint may_wait, bint is_for_one
    ) except -1 nogil:
        cdef Py_ssize_t size = <Py_ssize_t>(index.offsets[number + 1] - index.offsets[number])
        cdef Py_ssize_t raw_size = index.raw_sizes[number], rows = index.rows[number]
        if raw_size < HEADER_BYTES or raw_size > MAX_RAW_BYTES or rows > raw_size or (
                index.codecs[number] == CODEC_NONE and raw_size != size):
            return NOT_READ
        self.block.make_room(room_of(raw_size, rows) + LZ4_SLACK, 0)        # decoding must not reallocate
        self.may_wait = may_wait
        self.checksums = index.pieces_in(number) if (
            is_for_one and size >= FEWEST_PIECES * PIECE_BYTES and not file.is_cold) else NULL
        if self.checksums != NULL and not self.read_front(file, index, number):
            self.checksums = NULL
            if not may_wait:            # the caller comes back and waits, for all of the block at once
                file.expect(index.offsets[number], <uint64_t>size)
                return NOT_READ
        if self.checksums == NULL and not self.read_whole(file, index, number, may_wait):
            return NOT_READ
        self.block.parse(raw_size, number, False)
        if self.block.rows != rows:
            return NOT_READ
        if index.global_epoch > 0:
            self.block.override_epochs(index.global_epoch, number)
        return self.block.rows

    cdef bint read_whole(
        self, CachedFd file, SstableIndex index, Py_ssize_t number, bint may_wait
    ) except -1 nogil:
        cdef Py_ssize_t size = <Py_ssize_t>(index.offsets[number + 1] - index.offsets[number]), got
        cdef bint is_verbatim = index.codecs[number] == CODEC_NONE
        cdef uint8_t* target
        if not is_verbatim:
            self.make_room(size + LZ4_SLACK)
        self.is_partial = index.codecs[number] == CODEC_LZ4
        target = self.block.memory if is_verbatim else self.stored
        got = file.read_now(target, size, index.offsets[number])
        if got != size and may_wait:
            got = file.read(target, size, index.offsets[number])
            file.waited(size)
        if got != size or crc32c(target, size) != index.checksums[number]:
            return False
        return is_verbatim or self.unpack(index, number, size)

    cdef bint read_front(self, CachedFd file, SstableIndex index, Py_ssize_t number) except -1 nogil:
        """Reads the pieces before the values, if the page cache has them: one read of the disk takes less time than
        one of the front and another one of a value. So a file that the page cache lacked is read by whole blocks, until
        it has one.
        """
        cdef Py_ssize_t front
        self.is_partial, self.file, self.checked = False, <void*>file, 0
        self.offset, self.size = index.offsets[number], index.raw_sizes[number]
        if not self.read_pieces(0, min(max(self.front, <Py_ssize_t>HEADER_BYTES), self.size)):
            return False
        front = self.size - get_u32(self.block.memory + VALUES_SIZE_AT)
        if front < HEADER_BYTES or not self.read_pieces(self.checked, front):
            return False
        self.front = front
        return True

    cdef bint read_pieces(self, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
        """Reads and checks the pieces of the payload from `start` to `end` that are not at its front already."""
        cdef Py_ssize_t piece, stop, at = max(start, self.checked) & ~<Py_ssize_t>(PIECE_BYTES - 1)
        cdef Py_ssize_t until = min((end + PIECE_BYTES - 1) & ~<Py_ssize_t>(PIECE_BYTES - 1), self.size)
        if end <= self.checked:
            return True
        if (<CachedFd>self.file).read_now(self.block.memory + at, until - at, self.offset + at) != until - at and not (
                self.may_wait and self.checked > 0
                and (<CachedFd>self.file).read(self.block.memory + at, until - at, self.offset + at) == until - at):
            return False
        for piece in range(at // PIECE_BYTES, (until + PIECE_BYTES - 1) // PIECE_BYTES):
            stop = min(PIECE_BYTES, self.size - piece * PIECE_BYTES)
            if crc32c(self.block.memory + piece * PIECE_BYTES, stop) != self.checksums[piece]:
                return False
        if at <= self.checked:
            self.checked = until
        return True

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
        cdef Py_ssize_t start = value.data - self.block.memory
        if value.data == NULL:
            return True
        if self.checksums != NULL:
            return self.read_pieces(start, start + value.size)
        return not self.is_partial or lz4_until(&self.cursor, start + value.size)
