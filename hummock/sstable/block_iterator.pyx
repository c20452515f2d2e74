"""BlockIterator: walks the entries of one block, either way, without the GIL.

The user key of an entry is put together in memory of the iterator, values are read where they lie in the block.
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from hummock.byte_buffer cimport pool_give, pool_take
from hummock.iterator.base cimport FORWARD, Direction, HummockIterator, Span
from hummock.key cimport Slice, compare_bytes
from hummock.sstable.block cimport Block


cdef class BlockIterator(HummockIterator):
    """Holds its block; several iterators may walk one block at once, each from one thread."""

    def __cinit__(self, Block block not None, int direction=FORWARD):
        self.block, self.direction = block, <Direction>direction
        self.key_bytes = block.prefix.size + block.longest_suffix
        self.key = pool_take(self.key_bytes)
        if self.key == NULL:
            raise MemoryError(f"no memory for a key of {self.key_bytes} bytes")
        if block.prefix.size > 0:
            memcpy(self.key, block.prefix.data, <size_t>block.prefix.size)

    def __dealloc__(self):
        pool_give(self.key, self.key_bytes)

    cdef int rewind(self) except -1 nogil:
        return self.stand(0 if self.direction == FORWARD else self.block.rows - 1)

    cdef int seek(self, Slice user_key, uint64_t epoch) except -1 nogil:
        cdef Py_ssize_t row = self.block.lower_bound(user_key, epoch)
        self.stand(row)
        if self.direction != FORWARD and not (
                self.valid and self.epoch == epoch and compare_bytes(self.user_key, user_key) == 0):
            self.stand(row - 1)
        return 0

    cdef int next(self) except -1 nogil:
        return self.stand(self.row + <int>self.direction)

    cdef int stand(self, Py_ssize_t row) noexcept nogil:
        cdef Slice suffix
        self.row = row
        self.valid = 0 <= row < self.block.rows
        if not self.valid:
            return 0
        suffix = self.block.suffix_at(row)
        memcpy(self.key + self.block.prefix.size, suffix.data, <size_t>suffix.size)
        self.user_key.data, self.user_key.size = self.key, self.block.prefix.size + suffix.size
        self.epoch = self.block.epoch_at(row)
        self.value = self.block.value_at(row)
        return 0

    cdef bint span(self, Span* out) noexcept nogil:
        return self.direction == FORWARD and self.block.span_from(self.row, out)

    cdef int skip(self, Py_ssize_t rows) except -1 nogil:
        return self.stand(self.row + rows)
