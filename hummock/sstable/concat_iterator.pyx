"""ConcatIterator: iterates over files with disjoint user keys; each is opened when reached."""

from libc.stdlib cimport calloc, free

from hummock.base.key cimport Slice, compare_bytes, slice_of
from hummock.iterator.base cimport FORWARD, Direction, HummockIterator, Span
from hummock.sstable.sstable_iterator cimport SstableIterator


cdef class ConcatIterator(HummockIterator):
    """Invariant: while `valid`, the entry is that of `current`, the iterator of file `position`."""

    def __cinit__(self, store, infos, int direction=FORWARD, options=None):
        self.store, self.options, self.infos = store, options, tuple(infos)
        self.direction = <Direction>direction
        self.files, self.position = len(self.infos), -1
        self.largest = <Slice*>calloc(<size_t>self.files + 1, sizeof(Slice))
        if self.largest == NULL:
            raise MemoryError
        for position, info in enumerate(self.infos):
            self.largest[<Py_ssize_t>position] = slice_of(info.largest)

    def __dealloc__(self):
        free(self.largest)

    cdef int rewind(self) except -1 nogil:
        self.valid = False
        if self.files == 0:
            return 0
        self.enter(0 if self.direction == FORWARD else self.files - 1)
        self.current.rewind()
        return self.settle()

    cdef int move_to_block(self, Py_ssize_t position, Py_ssize_t index) except -1 nogil:
        self.valid = False
        self.enter(position)
        self.current.move_to_block(index)
        return self.settle()

    cdef int seek(self, Slice user_key, uint64_t epoch) except -1 nogil:
        cdef Py_ssize_t position = self.file_of(user_key)
        self.valid = False
        if position == self.files:
            if self.direction == FORWARD or self.files == 0:
                return 0
            return self.rewind()                    # all entries are before the target: the last one is the result
        self.enter(position)
        self.current.seek(user_key, epoch)
        return self.settle()

    cdef int next(self) except -1 nogil:
        self.valid = False
        self.current.next()
        return self.settle()

    cdef bint span(self, Span* out, bint as_rows) noexcept nogil:
        return self.current.span(out, as_rows)

    cdef int skip(self, Py_ssize_t rows) except -1 nogil:
        self.valid = False
        self.current.skip(rows)
        return self.settle()

    cdef int enter(self, Py_ssize_t position) except -1 nogil:
        if position != self.position:
            with gil:
                self.position = -1
                self.current = SstableIterator(self.store, self.infos[position], self.direction, self.options)
                self.current.floor = self.floor
                self.position = position
        return 0

    cdef int follow(self, Py_ssize_t position) except -1:
        """Opens a neighbouring file and loads its first window, all under one acquisition of the GIL."""
        cdef SstableIterator before = self.current
        self.enter(position)
        self.current.follows_on = True
        self.current.ahead_bytes, self.current.ahead_blocks = before.ahead_bytes, before.ahead_blocks
        return self.current.prepare()

    cdef int settle(self) except -1 nogil:
        cdef Py_ssize_t position
        while not self.current.valid:
            position = self.position + <int>self.direction
            if not 0 <= position < self.files:
                self.valid = False
                return 0
            with gil:
                self.follow(position)
            self.current.rewind()
        self.user_key, self.epoch, self.value = self.current.user_key, self.current.epoch, self.current.value
        self.valid = True
        return 0

    cdef Py_ssize_t file_of(self, Slice user_key) noexcept nogil:
        cdef Py_ssize_t low = 0, high = self.files, middle
        while low < high:
            middle = (low + high) >> 1
            if compare_bytes(self.largest[middle], user_key) < 0:
                low = middle + 1
            else:
                high = middle
        return low
