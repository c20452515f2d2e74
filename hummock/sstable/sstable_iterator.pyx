"""SstableIterator: iterates over the blocks of one file, and acquires the GIL only to move its window of blocks.

The window holds cached blocks as they are, and the others as stored bytes from one ranged read; each of those is
decoded when reached, without the GIL, always into the same memory. The first block after a seek is read alone and
cached, since short reads tend to repeat; each following window is twice as large, up to `prefetch_bytes`, and bypasses
the cache. Consecutive cached blocks form one window, up to a whole file, because a warm scan beside a busy Python
thread mostly waits for the GIL. For the same reason a long forward scan of a local file uses a window of a whole file
and reads uncached blocks when reached, a few at a time and without the GIL.
"""

from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport free

from hummock.base.key cimport Slice, compare_bytes
from hummock.columnar.buffer_pool cimport pool_capacity, pool_release, pool_acquire
from hummock.iterator.base cimport FORWARD, Direction, HummockIterator, Span
from hummock.sstable.block cimport Block
from hummock.sstable.reader cimport load_block

cdef Py_ssize_t WINDOW_BLOCKS = 1024
cdef Py_ssize_t CACHED_GROWTH = 8               # of consecutive windows of cached blocks
cdef Py_ssize_t BITE_BYTES = 128 << 10          # per read of a local file: stays in a core's cache
cdef uint64_t EXPECTED_BYTES = 2 << 20          # behind those, announced to the kernel's readahead


cdef class SstableIterator(HummockIterator):
    """Invariant: while `valid`, `row` is a row of the current block; the window holds references to its blocks.

    `options` are ReadOptions; None: the defaults.
    """

    def __cinit__(self, store, info, int direction=FORWARD, options=None):
        self.reader = store.reader(info)
        self.direction = <Direction>direction
        self.fills_cache = options is None or options.fill_cache
        self.prefetch_bytes = store.prefetch_bytes
        self.reads_ahead = options is not None and options.read_ahead
        self.scratch_index = -1

    def __dealloc__(self):
        PyMem_Free(self.ready)
        pool_release(self.bite, self.bite_capacity)
        free(self.key)
        self.leave_source()

    cdef int open(self) except -1 nogil:
        if self.meta is None:
            with gil:
                self.scratch = Block(self.reader.data_path)
                self.meta = self.reader.opened()
        return 0

    cdef int prepare(self) except -1:
        cdef Py_ssize_t index
        self.open()
        index = self.above_floor(0 if self.direction == FORWARD else self.meta.index.blocks - 1)
        return self.fetch(index) if 0 <= index < self.meta.index.blocks else 0

    cdef int rewind(self) except -1 nogil:
        self.open()
        return self.enter_end(0 if self.direction == FORWARD else self.meta.index.blocks - 1)

    cdef int move_to_block(self, Py_ssize_t index) except -1 nogil:
        self.open()
        return self.enter_end(index)

    cdef int seek(self, Slice user_key, uint64_t epoch) except -1 nogil:
        cdef Py_ssize_t index
        self.open()
        index = self.meta.index.find_block(user_key, epoch)
        if self.above_floor(index) != index:
            return self.enter_end(index)
        if self.block == NULL or index != self.block_index:
            self.enter(index)
        self.row = (<Block>self.block).lower_bound(user_key, epoch)
        if self.direction != FORWARD and not self.is_at(user_key, epoch):
            self.row -= 1
        return self.settle()

    cdef int next(self) except -1 nogil:
        self.row += <int>self.direction
        return self.settle()

    cdef bint span(self, Span* out, bint as_rows) noexcept nogil:
        return self.direction == FORWARD and (<Block>self.block).span_from(self.row, out, as_rows)

    cdef int skip(self, Py_ssize_t rows) except -1 nogil:
        self.row += rows
        return self.settle()

    cdef bint is_at(self, Slice user_key, uint64_t epoch) noexcept nogil:
        """Whether `row` is exactly (user_key, epoch)."""
        cdef Slice suffix, rest
        if self.row >= (<Block>self.block).rows or user_key.size < (<Block>self.block).prefix.size:
            return False
        suffix = (<Block>self.block).suffix_at(self.row)
        rest.data = user_key.data + (<Block>self.block).prefix.size
        rest.size = user_key.size - (<Block>self.block).prefix.size
        return (compare_bytes(suffix, rest) == 0 and (<Block>self.block).epoch_at(self.row) == epoch)

    cdef int settle(self) except -1 nogil:
        if 0 <= self.row < (<Block>self.block).rows:
            return self.show()
        return self.enter_end(self.block_index + <int>self.direction)

    cdef int enter_end(self, Py_ssize_t index) except -1 nogil:
        """Moves to the first entry, in this direction, from block `index` on."""
        while True:
            index = self.above_floor(index)
            if not 0 <= index < self.meta.index.blocks:
                self.valid = False
                return 0
            self.enter(index)
            if (<Block>self.block).rows > 0:
                self.row = 0 if self.direction == FORWARD else (<Block>self.block).rows - 1
                return self.show()
            index += <int>self.direction

    cdef Py_ssize_t above_floor(self, Py_ssize_t index) noexcept nogil:
        if self.floor > 0 and self.meta.index.global_epoch == 0:
            while 0 <= index < self.meta.index.blocks and self.meta.index.max_epochs[index] <= self.floor:
                index += <int>self.direction
        return index

    cdef int show(self) noexcept nogil:
        self.user_key = (<Block>self.block).key_at(self.row, self.key)
        self.epoch = (<Block>self.block).epoch_at(self.row)
        self.value = (<Block>self.block).value_at(self.row)
        self.valid = True
        return 0

    cdef int enter(self, Py_ssize_t index) except -1 nogil:
        """Makes block `index` the current one; on an error there is no current block."""
        cdef void* block = <void*>self.scratch
        self.block, self.valid = NULL, False
        if not self.window_start <= index < self.window_end:
            with gil:
                self.fetch(index)
        if self.ready[index - self.window_start] != NULL:
            block = self.ready[index - self.window_start]
        else:
            if index != self.scratch_index:
                self.scratch_index = -1
                if self.source is not None and not self.bite_start <= index < self.bite_end:
                    self.read_bite(index)
                load_block(self.scratch, self.meta.index, index, self.stored_data, self.stored_offset)
                self.scratch_index = index
        (<Block>block).begin_key(&self.key, &self.key_capacity)
        self.block, self.block_index = block, index
        return 0

    cdef int fetch(self, Py_ssize_t index) except -1:
        """Moves the window so that it begins, in this direction, with block `index`."""
        cdef bint follows = (index == self.window_end if self.direction == FORWARD
                             else index + 1 == self.window_start) and self.window_end > 0
        if not follows and not self.follows_on:
            self.ahead_bytes = self.prefetch_bytes if self.reads_ahead else 0
            self.ahead_blocks = WINDOW_BLOCKS if self.reads_ahead else 1
        self.follows_on = False
        self.window_start = self.window_end = 0
        self.leave_source()
        if self.fetch_cached(index):
            return 0
        return self.read_window(index)

    cdef bint fetch_cached(self, Py_ssize_t index) except -1:
        cdef Py_ssize_t at = index, end = index
        cdef PyObject* found
        cdef list taken = []
        while 0 <= at < self.meta.index.blocks and len(taken) < self.ahead_blocks:
            found = self.reader.slots.peek(at)
            if found == NULL:
                break
            taken.append(<object>found)
            at += <int>self.direction
        if not taken:
            return False
        if self.direction != FORWARD:
            taken.reverse()
            index, end = at + 1, index + 1
        else:
            end = at
        self.cached, self.stored, self.stored_data, self.scratch_index = taken, None, NULL, -1
        self.ahead_blocks = min(CACHED_GROWTH * self.ahead_blocks, WINDOW_BLOCKS)
        self.show_window(index, end)
        return True

    cdef int read_window(self, Py_ssize_t index) except -1:
        cdef Py_ssize_t blocks = self.meta.index.blocks, start = index, end = index + 1
        cdef const uint64_t* offsets = self.meta.index.offsets
        if self.direction == FORWARD and self.ahead_bytes >= self.prefetch_bytes > 0 and self.enters_source():
            end = min(blocks, start + WINDOW_BLOCKS)
        elif self.direction == FORWARD:
            while (end < blocks and end - start < WINDOW_BLOCKS
                   and offsets[end + 1] - offsets[start] <= <uint64_t>self.ahead_bytes):
                end += 1
        else:
            while (start > 0 and end - start < WINDOW_BLOCKS
                   and offsets[end] - offsets[start - 1] <= <uint64_t>self.ahead_bytes):
                start -= 1
        self.ahead_bytes = max(2 * self.ahead_bytes, 2 * <Py_ssize_t>(offsets[end] - offsets[start]))
        if self.ahead_bytes > self.prefetch_bytes:
            self.ahead_bytes = self.prefetch_bytes
        if end - start == 1 and self.fills_cache and self.source is None:
            self.cached = [self.reader.block(index)]
        else:
            self.cached = self.reader.cached_blocks(start, end)
        if self.source is None:
            self.read_missing(start, end)
        return self.show_window(start, end)

    cdef int show_window(self, Py_ssize_t start, Py_ssize_t end) except -1:
        cdef Py_ssize_t number
        cdef void* grown
        if end - start > self.ready_blocks:
            grown = PyMem_Realloc(self.ready, <size_t>(end - start) * sizeof(void*))
            if grown == NULL:
                raise MemoryError
            self.ready, self.ready_blocks = <void**>grown, end - start
        for number in range(end - start):
            self.ready[number] = <void*>self.cached[number] if self.cached[number] is not None else NULL
        self.window_start, self.window_end = start, end
        return 0

    cdef int read_missing(self, Py_ssize_t start, Py_ssize_t end) except -1:
        """Reads all uncached blocks of the window by one ranged read."""
        cdef Py_ssize_t first = start, last = end - 1
        self.stored, self.stored_data, self.scratch_index = None, NULL, -1
        while first <= last and self.cached[first - start] is not None:
            first += 1
        while last >= first and self.cached[last - start] is not None:
            last -= 1
        return self.read_stored(first, last) if first <= last else 0

    cdef int read_stored(self, Py_ssize_t first, Py_ssize_t last) except -1:
        self.stored = self.reader.stored(self.meta, first, last)
        self.stored_data = <const uint8_t*><const char*>self.stored
        self.stored_offset = self.meta.index.offsets[first]
        return 0

    cdef bint enters_source(self) except -1:
        """Whether the file is local; it is then kept open until the window moves."""
        if not self.reader.has_file() or not self.reader.file.enter():
            return False
        self.source, self.stored, self.scratch_index = self.reader.file, None, -1
        self.bite_start = self.bite_end = 0
        return True

    cdef int leave_source(self) except -1:
        if self.source is not None:
            self.source.leave()
            self.source = None
        return 0

    cdef int read_bite(self, Py_ssize_t index) except -1 nogil:
        """Reads block `index` and those up to the next cached one, or BITE_BYTES. On failure falls back to the store,
        which retries and reports errors.
        """
        cdef const uint64_t* offsets = self.meta.index.offsets
        cdef Py_ssize_t end = index + 1, wanted
        while (end < self.window_end and self.ready[end - self.window_start] == NULL
               and <Py_ssize_t>(offsets[end + 1] - offsets[index]) <= BITE_BYTES):
            end += 1
        wanted = <Py_ssize_t>(offsets[end] - offsets[index])
        self.bite_start = self.bite_end = 0
        if wanted > self.bite_capacity:
            pool_release(self.bite, self.bite_capacity)
            self.bite_capacity = pool_capacity(wanted if wanted > BITE_BYTES else BITE_BYTES)
            self.bite = pool_acquire(self.bite_capacity)
            if self.bite == NULL:
                self.bite_capacity = 0
        if self.bite != NULL and self.source.read(self.bite, wanted, offsets[index]) == wanted:
            self.stored_data, self.stored_offset = self.bite, offsets[index]
            self.source.expect(offsets[end], EXPECTED_BYTES)
        else:
            with gil:
                self.read_stored(index, end - 1)
        self.bite_start, self.bite_end = index, end
        return 0
