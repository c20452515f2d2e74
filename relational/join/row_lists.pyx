"""RowLists: the row ids of each key id. One writer, no locks."""

import numpy as np

cimport cython
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from hummock.base.prefetch cimport prefetch, prefetch_for_write
from relational.hash.age cimport AGES, age_of
from relational.hash.record_arena cimport RecordArena
from relational.join.tag_table cimport TagTable

cdef enum:
    MOST_ROWS = 1 << 30     # of one key
    MIN_PACKED = 1 << 20    # bytes of free blocks below which they stay


@cython.final
cdef class RowLists:
    """A row occurs at most once, under one key."""

    def __init__(self, bint has_tags):
        self.has_tags = has_tags
        self.entries, self.only_tags = RecordArena(), RecordArena()
        self.lists, self.tagged = RecordArena(), TagTable()
        self.clear_free()

    @property
    def size_bytes(self):
        """Memory used."""
        return self.entries.capacity + self.only_tags.capacity + self.lists.capacity + self.tagged.slots.capacity

    def worth_keeping(self, uint32_t epoch):
        """The keys that have rows or were touched in `epoch`: int32[n], ascending."""
        found = np.empty(self.keys, np.int32)
        cdef int32_t[::1] out = found
        cdef const KeyEntry* entry
        cdef Py_ssize_t key, count = 0
        with nogil:
            for key in range(self.keys):
                entry = self.entry(key)
                if not is_empty(entry) or entry.touched == epoch:
                    out[count] = <int32_t>key
                    count += 1
        return found[:count]

    def latest(self, uint32_t epoch, double per_key, double per_row, double wanted):
        """The last touched keys that need at most `wanted` bytes, so many for a key and for each of its rows: int32[n],
        ascending. Those touched AGES epochs before `epoch` or earlier count as equally old."""
        by_age, found = np.zeros(AGES, np.float64), np.empty(self.keys, np.int32)
        cdef double[::1] used = by_age
        cdef int32_t[::1] out = found
        cdef const KeyEntry* entry
        cdef Py_ssize_t key, age, oldest = 0, count = 0
        with nogil:
            for key in range(self.keys):
                entry = self.entry(key)
                used[age_of(epoch, entry.touched)] += per_key + per_row * self.count(entry)
            while oldest < AGES and used[oldest] <= wanted:
                wanted -= used[oldest]
                oldest += 1
            if oldest < AGES:
                wanted = used[oldest] - wanted      # bytes of keys of this age that go, the first ones
            for key in range(self.keys):
                entry = self.entry(key)
                age = age_of(epoch, entry.touched)
                if age == oldest and wanted > 0:
                    wanted -= per_key + per_row * self.count(entry)
                elif age <= oldest:
                    out[count] = <int32_t>key
                    count += 1
        return found[:count]

    cdef int grow(self, Py_ssize_t keys) except -1:
        cdef Py_ssize_t key
        if keys > self.keys:
            self.entries.extend((keys - self.keys) * sizeof(KeyEntry))
            if self.has_tags:
                self.only_tags.extend((keys - self.keys) * sizeof(uint32_t))
            for key in range(self.keys, keys):
                self.entry(key).start = NO_ROW
            self.empty_keys += keys - self.keys
            self.keys = keys
        return 0

    cdef int add_further(self, int32_t key, int32_t row, uint32_t tag) except -1 nogil:
        cdef KeyEntry* entry = self.entry(key)
        cdef BlockHead* head
        if not has_block(entry) or self.head(entry).rows == block_rows(self.head(entry).size_class):
            self.widen(key)
        head = self.head(entry)
        self.row_ids(entry)[head.rows] = row
        if self.has_tags:
            self.tags(entry)[head.rows] = tag
            if head.size_class > SCANNED_CLASS:
                self.tagged.put(tag, head.rows)
        head.rows += 1
        self.rows += 1
        return 0

    cdef int widen(self, int32_t key) except -1 nogil:
        cdef KeyEntry* entry = self.entry(key)
        cdef KeyEntry wider = entry[0]
        cdef int32_t rows = self.count(entry), i
        cdef uint32_t size_class = self.head(entry).size_class + 1 if has_block(entry) else 0
        cdef size_t bytes = <size_t>rows * sizeof(int32_t)
        if rows >= MOST_ROWS:
            with gil:
                raise OverflowError(f"{rows} rows of one key")
        wider.start = ~self.allocate_block(size_class)
        self.head(&wider).rows, self.head(&wider).size_class = rows, size_class
        memcpy(self.row_ids(&wider), self.row_ids(entry) if has_block(entry) else &entry.start, bytes)
        if self.has_tags:
            memcpy(self.tags(&wider), self.tags(entry) if has_block(entry) else self.only_tag(key), bytes)
        if has_block(entry):
            self.free_block(entry)
        entry[0] = wider
        if self.has_tags and size_class == SCANNED_CLASS + 1:
            for i in range(rows):
                self.tagged.put(self.tags(entry)[i], i)
        return 0

    cdef int remove(self, int32_t key, int32_t position) noexcept nogil:
        cdef KeyEntry* entry = self.entry(key)
        cdef BlockHead* head
        cdef int32_t last
        self.rows -= 1
        if not has_block(entry):
            entry.start = NO_ROW
            self.empty_keys += 1
            return 0
        head = self.head(entry)
        head.rows -= 1
        last = head.rows
        if self.has_tags:
            if head.size_class > SCANNED_CLASS:
                self.tagged.drop(self.tags(entry)[position], position)
                if position < last:
                    self.tagged.move(self.tags(entry)[last], last, position)
            self.tags(entry)[position] = self.tags(entry)[last]
        self.row_ids(entry)[position] = self.row_ids(entry)[last]
        if last == 0:
            self.free_block(entry)
            entry.start = NO_ROW
            self.empty_keys += 1
        return 0

    cdef int32_t candidate(self, int32_t key, uint32_t tag, uint32_t* after) noexcept nogil:
        cdef const KeyEntry* entry = self.entry(key)
        cdef const uint32_t* tags
        cdef int32_t position, found = 0, rows
        cdef uint32_t at
        if not has_block(entry):
            after[0] += 1
            return 0 if after[0] == 1 and not is_empty(entry) and self.only_tag(key)[0] == tag else -1
        tags, rows = self.tags(entry), self.head(entry).rows
        if self.head(entry).size_class > SCANNED_CLASS:
            at = self.tagged.home(tag) + after[0]
            while self.tagged.slot(at).position >= 0:
                position = self.tagged.slot(at).position
                at += 1
                after[0] += 1
                if self.tagged.slot(at - 1).tag == tag and position < rows and tags[position] == tag:
                    return position
            return -1
        for position in range(rows):                # usually there is none, and this loop is branchless
            found += tags[position] == tag
        if found == 0:
            return -1
        for position in range(<int32_t>after[0], rows):
            if tags[position] == tag:
                after[0] = <uint32_t>position + 1
                return position
        return -1

    cdef void prefetch_block(self, const KeyEntry* entry, uint32_t tag) noexcept nogil:
        cdef const BlockHead* head = self.head(entry)
        cdef Py_ssize_t line
        prefetch_for_write(self.row_ids(entry) + head.rows)
        if not self.has_tags:
            return
        prefetch_for_write(self.tags(entry) + head.rows)
        if head.size_class > SCANNED_CLASS:
            prefetch_for_write(self.tagged.slot(self.tagged.home(tag)))
            return
        for line in range(0, head.rows, 16):        # tags per line
            prefetch(self.tags(entry) + line)

    cdef int32_t allocate_block(self, uint32_t size_class) except -1 nogil:
        cdef int32_t block = self.free_blocks[size_class]
        cdef Py_ssize_t size = self.block_bytes(size_class)
        if block >= 0:
            self.free_blocks[size_class] = (<int32_t*>self.lists.data)[block]
            self.free_bytes -= size
            return block
        if (self.lists.size + size) // <Py_ssize_t>sizeof(int32_t) > INT32_MAX:
            with gil:
                raise OverflowError(f"{self.rows} rows of keys with several: their positions are int32")
        self.lists.reserve(size)
        block = <int32_t>(self.lists.size // <Py_ssize_t>sizeof(int32_t))
        self.lists.size += size
        return block

    cdef void free_block(self, const KeyEntry* entry) noexcept nogil:
        cdef uint32_t size_class = self.head(entry).size_class
        (<int32_t*>self.head(entry))[0] = self.free_blocks[size_class]
        self.free_blocks[size_class] = ~entry.start
        self.free_bytes += self.block_bytes(size_class)

    cdef int pack(self) except -1:
        cdef RecordArena packed
        cdef KeyEntry* entry
        cdef const BlockHead* head
        cdef Py_ssize_t key, size
        if self.free_bytes < max(<Py_ssize_t>MIN_PACKED, self.lists.size // 8):
            return 0
        packed = RecordArena()
        packed.reserve(self.lists.size - self.free_bytes)
        with nogil:
            for key in range(self.keys):
                entry = self.entry(key)
                if has_block(entry):
                    head = self.head(entry)
                    size = self.block_bytes(head.size_class)
                    memcpy(packed.data + packed.size, head, <size_t>size)
                    entry.start = ~<int32_t>(packed.size // <Py_ssize_t>sizeof(int32_t))
                    packed.size += size
        self.lists = packed
        self.clear_free()
        return 0

    cdef void mark(self, const int32_t[::1] keys, uint8_t* marks) noexcept nogil:
        cdef Py_ssize_t key
        cdef const KeyEntry* entry
        cdef int32_t position
        for key in range(keys.shape[0]):
            entry = self.entry(keys[key])
            for position in range(self.count(entry)):
                marks[self.row_at(entry, position)] = 1

    cdef int keep(self, const int32_t[::1] keys, const int32_t* numbers) except -1:
        cdef RowLists kept = RowLists(self.has_tags)
        cdef Py_ssize_t key
        cdef const KeyEntry* entry
        cdef const uint32_t* tags = NULL
        cdef int32_t position, row
        kept.grow(keys.shape[0])
        with nogil:
            for key in range(keys.shape[0]):
                entry = self.entry(keys[key])
                kept.entry(key).touched = entry.touched
                if self.has_tags:
                    tags = self.tags(entry) if has_block(entry) else self.only_tag(keys[key])
                for position in range(self.count(entry)):
                    row = numbers[self.row_at(entry, position)]
                    kept.add(<int32_t>key, row, tags[position] if self.has_tags else 0)
        self.keys, self.empty_keys, self.rows = kept.keys, kept.empty_keys, kept.rows
        self.entries, self.only_tags = kept.entries, kept.only_tags
        self.lists, self.tagged = kept.lists, kept.tagged
        memcpy(self.free_blocks, kept.free_blocks, sizeof(self.free_blocks))
        self.free_bytes = kept.free_bytes
        return 0
