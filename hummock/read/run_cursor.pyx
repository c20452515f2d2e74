"""RunCursor: iterates over one sorted run from many keys, one after the other, almost without the GIL.

Before the keys of a slice are sought, the blocks in which their rows begin are fetched, all of a file in one read, and
searched together; a seek is then a lookup. The GIL is needed again only by an iteration beyond the next block: from
there on it is an ordinary scan, which reads ahead and bypasses the cache.
"""

from cpython.object cimport PyObject
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from hummock.base.key cimport Slice
from hummock.columnar.binary_column cimport BinaryColumn
from hummock.iterator.base cimport FORWARD, HummockIterator, Span
from hummock.read.sorted_run cimport SortedRun
from hummock.sstable.block cimport Block
from hummock.sstable.concat_iterator cimport ConcatIterator
from hummock.sstable.reader cimport OpenedSstable, SstableReader, blocks_of


cdef class RunCursor(HummockIterator):
    """Forward. Invariant: while `valid`, the entry is `row` of the current block (`pins` holds it), or in `rest`."""

    def __cinit__(self, SortedRun run not None, epoch):
        self.run, self.newest, self.direction = run, epoch, FORWARD
        self.pins = []

    def __dealloc__(self):
        free(self.aims)
        free(self.key)

    cdef int aim(
        self, BinaryColumn keys, Py_ssize_t first, Py_ssize_t rows, Py_ssize_t wanted_rows, const uint8_t* among,
        Py_ssize_t stride
    ) except -1:
        cdef Aim* grown
        self.valid, self.block = False, NULL
        self.pins = []
        if rows > self.capacity:
            grown = <Aim*>realloc(self.aims, sizeof(Aim) * <size_t>rows)
            if grown == NULL:
                raise MemoryError
            self.aims, self.capacity = grown, rows
        self.first, self.aimed = first, rows
        self.pin_first(keys, among, stride)
        with nogil:
            self.search(keys)
        return self.pin_following(wanted_rows)

    cdef int pin_first(self, BinaryColumn keys, const uint8_t* among, Py_ssize_t stride) except -1:
        cdef Aim* aim
        cdef PyObject* found
        cdef void* last = NULL
        cdef SstableReader reader = None
        cdef OpenedSstable opened = None
        cdef Py_ssize_t row
        cdef dict missing = {}
        for row in range(self.aimed):
            aim = &self.aims[row]
            aim.reader = aim.block = aim.following = NULL
            if among != NULL and not among[row * stride]:
                continue
            aim.file = self.run.file_from(keys.at(self.first + row))
            if aim.file == self.run.count:
                continue
            aim.reader, aim.row = self.run.files[aim.file].reader, -1
            if aim.reader != <void*>reader:
                reader = <SstableReader>aim.reader
                opened = reader.opened()
            aim.blocks = opened.index.blocks
            aim.block_index = opened.index.find_block(keys.at(self.first + row), self.newest)
            found = reader.slots.peek(aim.block_index)
            if found == NULL:
                missing.setdefault(reader, set()).add(aim.block_index)
            else:
                if <void*>found != last:
                    self.pins.append(<object>found)
                aim.block = last = <void*>found
        return self.load_missing(missing, False) if missing else 0

    cdef int pin_following(self, Py_ssize_t wanted_rows) except -1:
        cdef Aim* aim
        cdef PyObject* found
        cdef void* last = NULL
        cdef Py_ssize_t row
        cdef dict missing = {}
        for row in range(self.aimed):
            aim = &self.aims[row]
            if aim.block == NULL or (<Block>aim.block).rows - aim.row >= wanted_rows or (
                    aim.block_index + 1 == aim.blocks):
                continue
            found = (<SstableReader>aim.reader).slots.peek(aim.block_index + 1)
            if found == NULL:
                missing.setdefault(<SstableReader>aim.reader, set()).add(aim.block_index + 1)
            else:
                if <void*>found != last:
                    self.pins.append(<object>found)
                aim.following = last = <void*>found
        return self.load_missing(missing, True) if missing else 0

    cdef int load_missing(self, dict missing, bint is_following) except -1:
        """Reads the blocks, file by file, and sets them in the aims that wait for them."""
        cdef Aim* aim
        cdef Py_ssize_t row
        cdef dict loaded = blocks_of(missing, self.pins)
        for row in range(self.aimed):
            aim = &self.aims[row]
            if aim.reader == NULL or (aim.block != NULL) != is_following or aim.following != NULL:
                continue
            block = loaded.get(<SstableReader>aim.reader, {}).get(aim.block_index + is_following)
            if block is not None and is_following:
                aim.following = <void*>block
            elif block is not None:
                aim.block = <void*>block
        return 0

    cdef void search(self, BinaryColumn keys) noexcept nogil:
        cdef Py_ssize_t row
        for row in range(self.aimed):
            if self.aims[row].block != NULL:
                self.aims[row].row = (<Block>self.aims[row].block).lower_bound(keys.at(self.first + row), self.newest)

    cdef int seek(self, Slice user_key, uint64_t epoch) except -1 nogil:
        """REQUIRES that `user_key` is the key at `turn`, and `epoch` that of the cursor."""
        cdef Aim* aim = &self.aims[self.turn[0] - self.first]
        self.valid = self.in_rest = False
        if aim.block == NULL:
            return 0
        self.file, self.blocks, self.block_index = aim.file, aim.blocks, aim.block_index
        self.block, self.following, self.row = aim.block, aim.following, aim.row
        self.enter()
        return self.settle()

    cdef int next(self) except -1 nogil:
        self.valid = False
        if self.in_rest:
            self.rest.next()
            return self.follow()
        self.row += 1
        return self.settle()

    cdef bint span(self, Span* out, bint as_rows) noexcept nogil:
        if self.in_rest:
            return self.rest.span(out, as_rows)
        return (<Block>self.block).span_from(self.row, out, as_rows)

    cdef int skip(self, Py_ssize_t rows) except -1 nogil:
        self.valid = False
        if self.in_rest:
            self.rest.skip(rows)
            return self.follow()
        self.row += rows
        return self.settle()

    cdef int settle(self) except -1 nogil:
        cdef Slice suffix
        cdef Py_ssize_t prefix
        while self.row >= (<Block>self.block).rows:
            if self.following == NULL:
                return self.continue_run()
            self.block, self.following, self.row = self.following, NULL, 0
            self.block_index += 1
            self.enter()
        suffix, prefix = (<Block>self.block).suffix_at(self.row), (<Block>self.block).prefix.size
        memcpy(self.key + prefix, suffix.data, <size_t>suffix.size)
        self.user_key.data, self.user_key.size = self.key, prefix + suffix.size
        self.epoch, self.value = (<Block>self.block).epoch_at(self.row), (<Block>self.block).value_at(self.row)
        self.valid = True
        return 0

    cdef int continue_run(self) except -1 nogil:
        if self.block_index + 1 == self.blocks:
            if self.file + 1 == self.run.count:
                return 0
            self.file, self.block_index = self.file + 1, -1
        if self.rest is None:
            with gil:
                self.rest = ConcatIterator(self.run.store, self.run.infos)
        self.rest.move_to_block(self.file, self.block_index + 1)
        self.in_rest = True
        return self.follow()

    cdef int follow(self) except -1 nogil:
        self.valid = self.rest.valid
        if self.valid:
            self.user_key, self.epoch, self.value = self.rest.user_key, self.rest.epoch, self.rest.value
        return 0

    cdef int enter(self) except -1 nogil:
        """Copies the block's prefix to the assembled key, with room for any suffix."""
        cdef Slice prefix = (<Block>self.block).prefix
        cdef Py_ssize_t wanted = prefix.size + (<Block>self.block).longest_suffix
        cdef uint8_t* grown
        if wanted >= self.key_capacity:
            grown = <uint8_t*>realloc(self.key, <size_t>(2 * wanted + 16))
            if grown == NULL:
                with gil:
                    raise MemoryError
            self.key, self.key_capacity = grown, 2 * wanted + 16
        memcpy(self.key, prefix.data, <size_t>prefix.size)
        return 0
