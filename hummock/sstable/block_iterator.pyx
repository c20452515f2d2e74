"""BlockIterator: walks the entries of one block, either way, without the GIL.

The user key of an entry is put together in memory of the iterator, values are read where they lie in the block.
"""

from libc.stdint cimport uint64_t
from libc.stdlib cimport free

from hummock.base.key cimport Slice, compare_bytes
from hummock.iterator.base cimport FORWARD, Direction, HummockIterator, Span
from hummock.sstable.block cimport Block


cdef class BlockIterator(HummockIterator):
    """Holds its block; several iterators may walk one block at once, each from one thread."""

    def __cinit__(self, Block block not None, int direction=FORWARD):
        self.block, self.direction = block, <Direction>direction
        block.begin_key(&self.key, &self.key_capacity)

    def __dealloc__(self):
        free(self.key)

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
        self.row = row
        self.valid = 0 <= row < self.block.rows
        if not self.valid:
            return 0
        self.user_key = self.block.key_at(row, self.key)
        self.epoch = self.block.epoch_at(row)
        self.value = self.block.value_at(row)
        return 0

    cdef bint span(self, Span* out) noexcept nogil:
        return self.direction == FORWARD and self.block.span_from(self.row, out)

    cdef int skip(self, Py_ssize_t rows) except -1 nogil:
        return self.stand(self.row + rows)
