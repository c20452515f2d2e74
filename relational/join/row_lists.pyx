"""RowLists: the row ids of each key id. One writer, no locks."""

import numpy as np

cimport cython
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint32_t
from libc.string cimport memcpy

from hummock.base.prefetch cimport prefetch, prefetch_for_write
from relational.hash.record_arena cimport RecordArena
from relational.join.tag_table cimport TagTable

cdef enum:
    MOST_ROWS = 1 << 30     # of one key
    MIN_PACKED = 1 << 20    # bytes of free blocks below which they stay

ENTRY = np.dtype({
    "names": ["rows", "touched"], "formats": [np.int32, np.uint32], "offsets": [0, 8], "itemsize": sizeof(KeyEntry),
})


@cython.final
cdef class RowLists:
    """A row occurs at most once, under one key."""

    def __init__(self, bint has_tags):
        self.has_tags = has_tags
        self.entries, self.numbers, self.tagged = RecordArena(), RecordArena(), TagTable()
        self.clear_free()

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
        if not has_block(entry) or entry.rows == block_rows(entry.tag):
            self.widen(entry)
        self.block(entry)[entry.rows] = row
        if self.has_tags:
            self.tags(entry)[entry.rows] = tag
            if entry.tag > SCANNED_CLASS:
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
        wider.tag = entry.tag + 1 if has_block(entry) else 0
        wider.start = ~self.allocate_block(wider.tag)
        if not has_block(entry):
            self.block(&wider)[0] = entry.start
            if self.has_tags:
                self.tags(&wider)[0] = entry.tag
        else:
            memcpy(self.block(&wider), self.block(entry), <size_t>bytes)
            if self.has_tags:
                memcpy(self.tags(&wider), self.tags(entry), <size_t>bytes)
            self.free_block(entry)
        entry[0] = wider
        if self.has_tags and entry.tag == SCANNED_CLASS + 1:
            for i in range(entry.rows):
                self.tagged.put(self.tags(entry)[i], self.block(entry)[i])
        return 0

    cdef int32_t remove(self, int32_t key, int32_t position) noexcept nogil:
        cdef KeyEntry* entry = self.entry(key)
        cdef int32_t* numbers
        entry.rows -= 1
        self.rows -= 1
        self.empty_keys += entry.rows == 0
        if not has_block(entry):
            return -1
        numbers = self.block(entry)
        if self.has_tags:
            if entry.tag > SCANNED_CLASS:
                self.tagged.drop(self.tags(entry)[position], numbers[position])
            self.tags(entry)[position] = self.tags(entry)[entry.rows]
        if entry.rows == 0:
            self.free_block(entry)
            entry.start = 0
            return -1
        numbers[position] = numbers[entry.rows]
        return numbers[position] if position < entry.rows else -1

    cdef int32_t candidate(self, const KeyEntry* entry, uint32_t tag, uint32_t* after) noexcept nogil:
        cdef const uint32_t* tags
        cdef int32_t position, found = 0
        cdef uint32_t at
        if not has_block(entry):
            after[0] += 1
            return entry.start if entry.rows and entry.tag == tag and after[0] == 1 else -1
        if entry.tag > SCANNED_CLASS:
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
        if entry.tag > SCANNED_CLASS:
            prefetch_for_write(self.tagged.slot(self.tagged.home(tag)))
            return
        for line in range(0, entry.rows, 16):   # tags per line
            prefetch(self.tags(entry) + line)

    cdef int32_t allocate_block(self, uint32_t size_class) except -1 nogil:
        cdef int32_t block = self.free_blocks[size_class]
        cdef Py_ssize_t size = self.block_bytes(size_class)
        if block >= 0:
            self.free_blocks[size_class] = (<int32_t*>self.numbers.data)[block]
            self.free_bytes -= size
            return block
        if (self.numbers.size + size) // <Py_ssize_t>sizeof(int32_t) > INT32_MAX:
            with gil:
                raise OverflowError(f"{self.rows} rows of keys with several: their positions are int32")
        self.numbers.reserve(size)
        block = <int32_t>(self.numbers.size // <Py_ssize_t>sizeof(int32_t))
        self.numbers.size += size
        return block

    cdef void free_block(self, const KeyEntry* entry) noexcept nogil:
        self.block(entry)[0] = self.free_blocks[entry.tag]
        self.free_blocks[entry.tag] = ~entry.start
        self.free_bytes += self.block_bytes(entry.tag)

    cdef int pack(self) except -1:
        cdef RecordArena before = self.numbers
        cdef KeyEntry* entry
        cdef Py_ssize_t key, size
        if self.free_bytes < max(<Py_ssize_t>MIN_PACKED, before.size // 4):
            return 0
        self.numbers = RecordArena()
        self.numbers.reserve(before.size - self.free_bytes)
        with nogil:
            for key in range(self.keys):
                entry = self.entry(key)
                if has_block(entry):
                    size = self.block_bytes(entry.tag)
                    memcpy(self.numbers.data + self.numbers.size, before.data + 4 * <Py_ssize_t>~entry.start,
                           <size_t>size)
                    entry.start = ~<int32_t>(self.numbers.size // <Py_ssize_t>sizeof(int32_t))
                    self.numbers.size += size
        self.clear_free()
        return 0

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
                if not has_block(entry):
                    for position in range(entry.rows):
                        order[row] = entry.start
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
        self.free_bytes = kept.free_bytes
        return 0
