"""RowLists: the row ids of each key id. One writer, no locks."""

import numpy as np

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memcpy

from hummock.base.prefetch cimport prefetch, prefetch_for_write
from relational.hash.record_arena cimport RecordArena
from relational.join.tag_table cimport TagTable

cdef enum:
    MOST_ROWS = 1 << 30     # of one key

ENTRY = np.dtype({
    "names": ["rows", "touched"], "formats": [np.int32, np.uint32], "offsets": [0, 16], "itemsize": sizeof(KeyEntry),
})


@cython.final
cdef class RowLists:
    """A row occurs at most once, under one key."""

    def __init__(self, bint has_tags):
        cdef int size
        self.has_tags = has_tags
        self.entries, self.numbers, self.tagged = RecordArena(), RecordArena(), TagTable()
        for size in range(SIZES):
            self.free_blocks[size] = -1

    @property
    def size_bytes(self):
        """Memory used."""
        return self.entries.capacity + self.numbers.capacity + self.tagged.slots.capacity

    def columns(self):
        """(rows int32, touched uint32) of each key, as a copy."""
        entries = np.frombuffer((<const char*>self.entries.data)[:self.entries.size] if self.keys else b"", ENTRY)
        return entries["rows"], entries["touched"]

    cdef int grow(self, Py_ssize_t keys) except -1:
        if keys > self.keys:
            self.entries.extend((keys - self.keys) * sizeof(KeyEntry))
            self.empty_keys += keys - self.keys
            self.keys = keys
        return 0

    cdef int32_t add_further(self, KeyEntry* entry, int32_t row, uint32_t tag) except -1 nogil:
        if entry.exponent == 0 or entry.rows == (<int64_t>1 << entry.exponent):
            self.widen(entry)
        self.block(entry)[entry.rows] = row
        self.empty_keys -= entry.rows == 0
        if self.has_tags:
            self.tags(entry)[entry.rows] = tag
            if entry.exponent > SCANNED_EXPONENT:
                self.tagged.put(tag, row)
        entry.rows += 1
        self.rows += 1
        return entry.rows - 1

    cdef int widen(self, KeyEntry* entry) except -1 nogil:
        cdef KeyEntry wider = entry[0]
        cdef Py_ssize_t bytes = <Py_ssize_t>entry.rows * sizeof(int32_t), i
        if entry.rows >= MOST_ROWS:
            with gil:
                raise OverflowError(f"{entry.rows} rows of one key")
        wider.exponent += 1
        wider.start = self.allocate_block(wider.exponent)
        if entry.exponent == 0:
            self.block(&wider)[0] = <int32_t>entry.start
            if self.has_tags:
                self.tags(&wider)[0] = entry.tag
        else:
            memcpy(self.block(&wider), self.block(entry), <size_t>bytes)
            if self.has_tags:
                memcpy(self.tags(&wider), self.tags(entry), <size_t>bytes)
            self.free_block(entry)
        entry[0] = wider
        if self.has_tags and entry.exponent == SCANNED_EXPONENT + 1:
            for i in range(entry.rows):
                self.tagged.put(self.tags(entry)[i], self.block(entry)[i])
        return 0

    cdef int32_t remove(self, int32_t key, int32_t position) noexcept nogil:
        cdef KeyEntry* entry = self.entry(key)
        cdef int32_t* numbers
        entry.rows -= 1
        self.rows -= 1
        self.empty_keys += entry.rows == 0
        if entry.exponent == 0:
            return -1
        numbers = self.block(entry)
        if self.has_tags:
            if entry.exponent > SCANNED_EXPONENT:
                self.tagged.drop(self.tags(entry)[position], numbers[position])
            self.tags(entry)[position] = self.tags(entry)[entry.rows]
        if entry.rows == 0:
            self.free_block(entry)
            entry.exponent = 0
            return -1
        numbers[position] = numbers[entry.rows]
        return numbers[position] if position < entry.rows else -1

    cdef int32_t candidate(self, const KeyEntry* entry, uint32_t tag, uint32_t* after) noexcept nogil:
        cdef const uint32_t* tags
        cdef int32_t position, found = 0
        cdef uint32_t at
        if entry.exponent == 0:
            after[0] += 1
            return <int32_t>entry.start if entry.rows and entry.tag == tag and after[0] == 1 else -1
        if entry.exponent > SCANNED_EXPONENT:
            at = self.tagged.home(tag) + after[0]
            while self.tagged.slot(at).row >= 0:
                at += 1
                after[0] += 1
                if self.tagged.slot(at - 1).tag == tag:
                    return self.tagged.slot(at - 1).row
            return -1
        tags = self.tags(entry)
        for position in range(entry.rows):         # usually there is none, and this loop is branchless
            found += tags[position] == tag
        if found == 0:
            return -1
        for position in range(<int32_t>after[0], entry.rows):
            if tags[position] == tag:
                after[0] = <uint32_t>position + 1
                return self.block(entry)[position]
        return -1

    cdef void prefetch_block(self, const KeyEntry* entry, uint32_t tag) noexcept nogil:
        cdef Py_ssize_t line
        prefetch_for_write(self.block(entry) + entry.rows)
        prefetch_for_write(self.tags(entry) + entry.rows)
        if entry.exponent > SCANNED_EXPONENT:
            prefetch_for_write(self.tagged.slot(self.tagged.home(tag)))
            return
        for line in range(0, entry.rows, 16):   # tags per line
            prefetch(self.tags(entry) + line)

    cdef int64_t allocate_block(self, int exponent) except -1 nogil:
        cdef int64_t block = self.free_blocks[exponent]
        cdef Py_ssize_t size = (<Py_ssize_t>sizeof(int32_t)) << (exponent + self.has_tags)
        if block >= 0:
            memcpy(&self.free_blocks[exponent], self.numbers.data + 4 * block, 8)
            return block
        self.numbers.reserve(size)
        block = self.numbers.size // <Py_ssize_t>sizeof(int32_t)
        self.numbers.size += size
        return block

    cdef void free_block(self, KeyEntry* entry) noexcept nogil:
        memcpy(self.numbers.data + 4 * entry.start, &self.free_blocks[entry.exponent], 8)
        self.free_blocks[entry.exponent] = entry.start

    cdef int keep(self, const int32_t[::1] keys, int32_t* order) except -1:
        cdef RowLists kept = RowLists(self.has_tags)
        cdef Py_ssize_t key
        cdef const KeyEntry* entry
        cdef int32_t position, row = 0
        kept.grow(keys.shape[0])
        with nogil:
            for key in range(keys.shape[0]):
                entry = self.entry(keys[key])
                kept.entry(key).touched = entry.touched
                if entry.exponent == 0:
                    for position in range(entry.rows):
                        order[row] = <int32_t>entry.start
                        kept.add(<int32_t>key, row, entry.tag)
                        row += 1
                    continue
                for position in range(entry.rows):
                    order[row] = self.block(entry)[position]
                    kept.add(<int32_t>key, row, self.tags(entry)[position] if self.has_tags else 0)
                    row += 1
        self.keys, self.empty_keys, self.rows = kept.keys, kept.empty_keys, kept.rows
        self.entries, self.numbers, self.tagged = kept.entries, kept.numbers, kept.tagged
        memcpy(self.free_blocks, kept.free_blocks, sizeof(self.free_blocks))
        return 0
