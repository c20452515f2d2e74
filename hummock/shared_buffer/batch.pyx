"""SharedBufferBatch: the rows of one `ingest_batch`, unchanged, under one epoch.

The rows stay in the memory in which they arrived: sorted columns need no tree on top. Immutable; any thread that holds
a reference may read it without the GIL.
"""

import numpy as np

from hummock.sstable.filter.bloom import build_filter

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from hummock.base.checksum cimport hash64
from hummock.base.key cimport Slice, compare_bytes, head_of
from hummock.base.prefetch cimport prefetch
from hummock.iterator.base cimport FORWARD, Direction, Entry, HummockIterator, Span, low_of
from hummock.sstable.filter.bloom cimport BloomFilter
from hummock.sstable.interpolation_search cimport even_guess

cdef Py_ssize_t LINE_BYTES = 64
cdef Py_ssize_t FIRST_STRIDE = 4        # rows around a guess that are examined first
cdef Py_ssize_t MIN_PROBES = 64         # a filter costs about as much as
cdef Py_ssize_t PROBES_SHARE = 16       # a search for each 16th row
FILTER_BITS = 10                        # per key


cdef inline int compare_prefix(Slice key, Slice prefix) noexcept nogil:
    """0 when `key` begins with `prefix`, else negative or positive as it is before or after all keys that do."""
    cdef Py_ssize_t size = key.size if key.size < prefix.size else prefix.size
    cdef int order = memcmp(key.data, prefix.data, <size_t>size) if size > 0 else 0
    return order if order != 0 else (-1 if key.size < prefix.size else 0)


cdef class SharedBufferBatch:
    """Invariant: at least one row; keys ascending; every row has `epoch`."""

    def __init__(self, WriteBatch rows not None, uint64_t epoch, bint is_local=False):
        if len(rows) == 0:
            raise ValueError("a batch of the shared buffer has at least one row")
        self.rows, self.epoch, self.is_local = rows, epoch, is_local
        self.has_deletes = rows.values.null_count > 0
        self.smallest = rows.keys.at(0)
        self.largest = rows.keys.at(rows.keys.rows - 1)
        while (self.shared < self.smallest.size and self.shared < self.largest.size
               and self.smallest.data[self.shared] == self.largest.data[self.shared]):
            self.shared += 1

    @property
    def size_bytes(self) -> int:
        return self.rows.size_bytes

    @property
    def smallest_key(self) -> bytes:
        return self.rows.keys[0]

    @property
    def largest_key(self) -> bytes:
        return self.rows.keys[self.rows.keys.rows - 1]

    cdef uint64_t head_at(self, Py_ssize_t row) noexcept nogil:
        cdef Slice key = self.rows.keys.at(row)
        return head_of(key.data + self.shared, key.size - self.shared)

    cdef Py_ssize_t row_near(self, uint64_t head) noexcept nogil:
        cdef Py_ssize_t low = 0, high = self.rows.keys.rows, stride = FIRST_STRIDE, row
        row = even_guess(self.head_at(0), self.head_at(high - 1), head, high)
        if self.head_at(row) < head:
            low = row + 1
            while low + stride <= high:
                row = low + stride - 1
                if self.head_at(row) >= head:
                    high = row
                    break
                low, stride = row + 1, 2 * stride
        else:
            high = row
            while high - stride >= 0:
                row = high - stride
                if self.head_at(row) < head:
                    low = row + 1
                    break
                high, stride = row, 2 * stride
        while low < high:
            row = (low + high) >> 1
            if self.head_at(row) < head:
                low = row + 1
            else:
                high = row
        return low

    cdef Py_ssize_t lower_bound(self, Slice user_key) noexcept nogil:
        cdef Slice start
        cdef Py_ssize_t low, high, middle, stride = 1
        cdef uint64_t head
        cdef int order
        start.data, start.size = self.smallest.data, self.shared
        order = compare_prefix(user_key, start)
        if order != 0:
            return 0 if order < 0 else self.rows.keys.rows
        head = head_of(user_key.data + self.shared, user_key.size - self.shared)
        low = high = self.row_near(head)
        while high < self.rows.keys.rows and self.head_at(high) == head:    # equal prefixes: compare whole keys
            high = min(high + stride, self.rows.keys.rows)
            stride *= 2
        while low < high:
            middle = (low + high) >> 1
            if compare_bytes(self.rows.keys.at(middle), user_key) < 0:
                low = middle + 1
            else:
                high = middle
        return low

    cdef Py_ssize_t find(self, Slice user_key) noexcept nogil:
        cdef Py_ssize_t row
        if compare_bytes(user_key, self.smallest) < 0 or compare_bytes(user_key, self.largest) > 0:
            return -1
        row = self.lower_bound(user_key)
        return row if compare_bytes(self.rows.keys.at(row), user_key) == 0 else -1

    cdef count_probes(self, Py_ssize_t count):
        self.probes += count
        if self.filter is None and self.probes >= MIN_PROBES and self.probes * PROBES_SHARE >= self.rows.keys.rows:
            self.filter = BloomFilter.load(build_filter(self.hashes(), FILTER_BITS), "a batch")

    def hashes(self) -> np.ndarray:
        """uint64[rows]: the key hash of each user key."""
        cdef uint64_t[::1] out = np.empty(self.rows.keys.rows, np.uint64)
        cdef Py_ssize_t row
        cdef Slice key
        for row in range(self.rows.keys.rows):
            key = self.rows.keys.at(row)
            out[row] = hash64(key.data, key.size)
        return np.asarray(out)

    cdef Slice value_at(self, Py_ssize_t row) noexcept nogil:
        cdef Slice value = self.rows.values.at(row)
        if self.has_deletes and self.rows.values.is_null(row):
            value.data, value.size = NULL, 0
        return value


cdef bint span_of(SharedBufferBatch batch, Py_ssize_t row, Span* out, bint as_rows) noexcept nogil:
    """The rows of `batch` from `row` on; `as_rows`: False if one of them may be a delete."""
    if as_rows and batch.has_deletes:
        return False
    out.prefix.data, out.prefix.size, out.longest_key = batch.rows.keys.data, 0, 0
    out.key_offsets = <const uint32_t*>batch.rows.keys.offsets
    out.key_data = batch.rows.keys.data
    out.value_offsets = <const uint32_t*>batch.rows.values.offsets
    out.value_data = batch.rows.values.data
    out.epochs, out.one_epoch = &batch.epoch, True
    out.max_epoch = out.min_epoch = batch.epoch
    out.marks = batch.rows.values.validity if batch.has_deletes else NULL
    out.marks_at, out.marks_puts = batch.rows.values.validity_offset, True
    out.row, out.end = row, batch.rows.keys.rows
    return True


cdef inline void fill_entry(const Span* span, Py_ssize_t row, Entry* out) noexcept nogil:
    """The entry of a row of `span_of`."""
    cdef Py_ssize_t bit = span.marks_at + row
    out.user_key.data = span.key_data + span.key_offsets[row]
    out.user_key.size = span.key_offsets[row + 1] - span.key_offsets[row]
    out.high = head_of(out.user_key.data, out.user_key.size)
    out.low = low_of(out.user_key.data, out.user_key.size)
    out.epoch = span.epochs[0]
    out.value.data = span.value_data + span.value_offsets[row]
    out.value.size = span.value_offsets[row + 1] - span.value_offsets[row]
    if span.marks != NULL and not (span.marks[bit >> 3] >> (bit & 7)) & 1:
        out.value.data, out.value.size = NULL, 0


cdef class SharedBufferBatchIterator(HummockIterator):
    """Iterates over one batch; holds a reference to it."""

    def __init__(self, SharedBufferBatch batch not None, int direction=FORWARD):
        self.batch, self.direction, self.row = batch, <Direction>direction, -1

    cdef int rewind(self) except -1 nogil:
        self.row = 0 if self.direction == FORWARD else self.batch.rows.keys.rows - 1
        return self.settle()

    cdef int seek(self, Slice user_key, uint64_t epoch) except -1 nogil:
        cdef Py_ssize_t row = self.batch.lower_bound(user_key)
        cdef bint is_same = (
            row < self.batch.rows.keys.rows and compare_bytes(self.batch.rows.keys.at(row), user_key) == 0)
        if self.direction == FORWARD:
            self.row = row + 1 if is_same and self.batch.epoch > epoch else row
        else:
            self.row = row if is_same and self.batch.epoch >= epoch else row - 1
        return self.settle()

    cdef int next(self) except -1 nogil:
        self.row += <int>self.direction
        return self.settle()

    cdef bint span(self, Span* out, bint as_rows) noexcept nogil:
        return self.direction == FORWARD and span_of(self.batch, self.row, out, as_rows)

    cdef int skip(self, Py_ssize_t rows) except -1 nogil:
        self.row += rows
        return self.settle()

    cdef int settle(self) noexcept nogil:
        self.valid = 0 <= self.row < self.batch.rows.keys.rows
        if self.valid:
            self.user_key = self.batch.rows.keys.at(self.row)
            self.epoch = self.batch.epoch
            self.value = self.batch.value_at(self.row)
            # a merge of many batches returns here after many rows of others, which defeats the hardware prefetcher
            prefetch(self.user_key.data + self.user_key.size + LINE_BYTES)
            prefetch(self.batch.rows.values.at(self.row).data + self.value.size + LINE_BYTES)
            prefetch(self.batch.rows.values.at(self.row).data + self.value.size + 2 * LINE_BYTES)
        return 0


cdef class SharedBufferChainIterator(HummockIterator):
    """Iterates forward over batches with disjoint key ranges, one after the other; holds references to them.

    Raises ValueError where they overlap or are not ascending.
    """

    def __cinit__(self, batches):
        cdef Py_ssize_t at
        cdef SharedBufferBatch batch, before = None
        self.direction = FORWARD
        self.batches = tuple(batches)
        self.count = self.link = len(self.batches)
        self.links = <void**>calloc(<size_t>self.count + 1, sizeof(void*))
        if self.links == NULL:
            raise MemoryError
        for at, batch in enumerate(self.batches):
            if before is not None and compare_bytes(before.largest, batch.smallest) >= 0:
                raise ValueError(f"batch {at} of a chain does not begin after the one before it")
            self.links[at], before = <void*>batch, batch

    def __dealloc__(self):
        free(self.links)

    cdef int rewind(self) except -1 nogil:
        self.link = self.row = 0
        return self.settle()

    cdef int seek(self, Slice user_key, uint64_t epoch) except -1 nogil:
        cdef Py_ssize_t low = 0, high = self.count, middle
        while low < high:
            middle = (low + high) >> 1
            if compare_bytes((<SharedBufferBatch>self.links[middle]).largest, user_key) < 0:
                low = middle + 1
            else:
                high = middle
        self.link, self.row = low, 0
        if low < self.count:
            self.row = (<SharedBufferBatch>self.links[low]).lower_bound(user_key)
            if ((<SharedBufferBatch>self.links[low]).epoch > epoch
                    and compare_bytes((<SharedBufferBatch>self.links[low]).rows.keys.at(self.row), user_key) == 0):
                self.row += 1
        return self.settle()

    cdef int next(self) except -1 nogil:
        self.row += 1
        return self.settle()

    cdef bint span(self, Span* out, bint as_rows) noexcept nogil:
        return span_of(<SharedBufferBatch>self.links[self.link], self.row, out, as_rows)

    cdef int skip(self, Py_ssize_t rows) except -1 nogil:
        self.row += rows
        return self.settle()

    cdef Py_ssize_t pull(self, Entry* out, Py_ssize_t most) except -1 nogil:
        cdef Py_ssize_t rows = 0, i
        cdef Span span
        while rows == 0 and self.link < self.count:
            span_of(<SharedBufferBatch>self.links[self.link], self.row, &span, False)
            rows = min(most, span.end - span.row)
            for i in range(rows):
                fill_entry(&span, span.row + i, out + i)
            self.row += rows
            if self.row == span.end:
                self.link, self.row = self.link + 1, 0
        return rows

    cdef int settle(self) noexcept nogil:
        if self.link < self.count and self.row >= (<SharedBufferBatch>self.links[self.link]).rows.keys.rows:
            self.link, self.row = self.link + 1, 0
        self.valid = self.link < self.count
        if self.valid:
            self.user_key = (<SharedBufferBatch>self.links[self.link]).rows.keys.at(self.row)
            self.epoch = (<SharedBufferBatch>self.links[self.link]).epoch
            self.value = (<SharedBufferBatch>self.links[self.link]).value_at(self.row)
        return 0
