"""RowLists: for each key number the row numbers that belong to it. One writer, no locks."""

import numpy as np

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

from relational.state.record_buffer cimport RecordBuffer

cdef enum:
    MOST_ROWS = 1 << 30     # of one key

ENTRY = np.dtype({
    "names": ["rows", "touched"], "formats": [np.int32, np.uint32], "offsets": [0, 16], "itemsize": sizeof(KeyEntry),
})


@cython.final
cdef class RowLists:
    """A row stands at most once, under one key."""

    def __init__(self):
        self.entries = RecordBuffer()
        self.clear_blocks()

    @property
    def size_bytes(self):
        """Memory held."""
        return self.entries.capacity + self.numbers.capacity

    def columns(self):
        """(rows int32, touched uint32) of each key, as a copy."""
        entries = np.frombuffer((<const char*>self.entries.data)[:self.entries.size] if self.keys else b"", ENTRY)
        return entries["rows"], entries["touched"]

    def clear_blocks(self):
        """No key has a block."""
        cdef int size
        self.numbers = RecordBuffer()
        for size in range(SIZES):
            self.free_blocks[size] = -1

    cdef int grow(self, Py_ssize_t keys) except -1:
        if keys > self.keys:
            self.entries.extend((keys - self.keys) * sizeof(KeyEntry))
            self.empty_keys += keys - self.keys
            self.keys = keys
        return 0

    cdef int32_t add(self, int32_t key, int32_t row) except -1 nogil:
        cdef KeyEntry* entry = self.entry(key)
        cdef int64_t block
        if entry.rows == 0 and entry.exponent == 0:
            entry.place = row
        else:
            if entry.exponent == 0 or entry.rows == (<int64_t>1 << entry.exponent):
                if entry.rows >= MOST_ROWS:
                    with gil:
                        raise OverflowError(f"{entry.rows} rows of one key")
                block = self.take_block(entry.exponent + 1)
                if entry.exponent == 0:
                    (<int32_t*>self.numbers.data)[block] = <int32_t>entry.place
                else:
                    memcpy(self.numbers.data + 4 * block, self.block(entry), <size_t>entry.rows * sizeof(int32_t))
                    self.give_block(entry)
                entry.place = block
                entry.exponent += 1
            (<int32_t*>self.numbers.data)[entry.place + entry.rows] = row
        self.empty_keys -= entry.rows == 0
        entry.rows += 1
        self.rows += 1
        return entry.rows - 1

    cdef int32_t remove(self, int32_t key, int32_t place) noexcept nogil:
        cdef KeyEntry* entry = self.entry(key)
        cdef int32_t* numbers
        entry.rows -= 1
        self.rows -= 1
        self.empty_keys += entry.rows == 0
        if entry.exponent == 0:
            return -1
        if entry.rows == 0:
            self.give_block(entry)
            entry.exponent = 0
            return -1
        numbers = <int32_t*>self.numbers.data + entry.place
        numbers[place] = numbers[entry.rows]
        return numbers[place] if place < entry.rows else -1

    cdef int64_t take_block(self, int exponent) except -1 nogil:
        cdef int64_t block = self.free_blocks[exponent]
        cdef Py_ssize_t size = (<Py_ssize_t>sizeof(int32_t)) << exponent
        if block >= 0:
            memcpy(&self.free_blocks[exponent], self.numbers.data + 4 * block, 8)
            return block
        self.numbers.reserve(size)
        block = self.numbers.size // <Py_ssize_t>sizeof(int32_t)
        self.numbers.size += size
        return block

    cdef void give_block(self, KeyEntry* entry) noexcept nogil:
        memcpy(self.numbers.data + 4 * entry.place, &self.free_blocks[entry.exponent], 8)
        self.free_blocks[entry.exponent] = entry.place

    cdef int keep(self, const int32_t[::1] keys, int32_t* order) except -1:
        cdef RowLists kept = RowLists()
        cdef Py_ssize_t key
        cdef const KeyEntry* entry
        cdef int32_t place, row = 0
        kept.grow(keys.shape[0])
        with nogil:
            for key in range(keys.shape[0]):
                entry = self.entry(keys[key])
                kept.entry(key).touched = entry.touched
                for place in range(entry.rows):
                    order[row] = self.block(entry)[place] if entry.exponent else <int32_t>entry.place
                    kept.add(<int32_t>key, row)
                    row += 1
        self.keys, self.empty_keys, self.rows = kept.keys, kept.empty_keys, kept.rows
        self.entries, self.numbers = kept.entries, kept.numbers
        memcpy(self.free_blocks, kept.free_blocks, sizeof(self.free_blocks))
        return 0
