"""RowSorter: encoded rows of one partition, received in any order and returned by key, each key once.

Rows stay in the messages in which they arrived: only their indices, with the first bytes of their keys, are sorted.
Among rows with equal keys the one of the highest rank is kept. Senders report the number and content of the rows sent
here, so rows that are lost or duplicated in transit are detected; or they report why they stopped.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

import numpy as np

from hummock.base.key cimport Slice, compare_bytes, head_of
from hummock.base.prefetch cimport prefetch
from hummock.columnar.binary_column cimport BinaryColumn
from hummock.iterator.base cimport FORWARD, Entry, HummockIterator, low_of
from relational.spark.message_writer cimport ACCOUNT, ACCOUNT_BYTES, HEAD_BYTES, REFUSAL, content_of
from relational.table.key_sort cimport KeyItem, item_of, sort_items

from hummock.errors import Corruption
from hummock.loaded_files import PLACEHOLDER

cdef enum:
    AHEAD = 12                  # rows whose bytes are prefetched
cdef int64_t ROW_MASK = 0xFFFFFFFF
cdef uint64_t LOAD_EPOCH = PLACEHOLDER


cdef Slice key_source(void* owner, int64_t row) noexcept nogil:
    cdef RowColumns* batch = <RowColumns*>owner + (row >> 32)
    cdef Py_ssize_t at = row & ROW_MASK
    cdef Slice out
    out.data, out.size = batch.key_data + batch.key_ends[at - 1], batch.key_ends[at] - batch.key_ends[at - 1]
    return out


cdef bint ascend(const uint32_t* ends, Py_ssize_t rows) noexcept nogil:
    cdef bint falls = False
    cdef Py_ssize_t row
    for row in range(rows):
        falls |= ends[row] < ends[row - 1]
    return not falls


cdef class RowSorter:

    def __cinit__(self):
        self.held, self.duplicate_keys, self.refusals = [], [], []

    def __dealloc__(self):
        free(self.batches)
        free(self.items)

    def add(self, messages) -> None:
        """Adds an Arrow array of MessageWriter messages. Corruption for malformed ones."""
        cdef BinaryColumn column = BinaryColumn.from_arrow(messages)
        cdef Py_ssize_t at
        if column.null_count:
            raise Corruption("a message", "its column", "bytes", None)
        self.held.append(column)
        self.nbytes += column.nbytes
        for at in range(column.rows):
            self.receive(column.at(at))

    def sort(self, by_rank=False) -> SortedRows:
        """All rows so far by key, superseded ones counted; they stay here until `clear`.

        `by_rank`: each entry's epoch is its row's rank, else the placeholder of loads.
        """
        cdef KeyItem* scratch
        cdef Py_ssize_t row, skip
        if self.batch_count > 0 and self.batches[0].ranks != NULL:
            self.order_by_rank()
        scratch = <KeyItem*>malloc(<size_t>(self.rows + 1) * sizeof(KeyItem))
        if scratch == NULL:
            raise MemoryError
        with nogil:
            skip = self.shared_bytes()
            for row in range(self.rows):
                self.items[row] = item_of(self.key_of(self.items[row].row), skip, self.items[row].row)
            sort_items(self.items, scratch, self.rows, key_source, self.batches, skip)
            free(scratch)
            self.rows = self.keep_one_of_each()
        return SortedRows(self, by_rank)

    def clear(self) -> None:
        """Releases all rows; the counts are kept."""
        self.held, self.rows, self.batch_count, self.nbytes = [], 0, 0, 0

    cdef int reserve(self, Py_ssize_t rows) except -1:
        cdef void* grown
        if self.batch_count == self.batch_room:
            grown = realloc(self.batches, <size_t>(2 * self.batch_room + 16) * sizeof(RowColumns))
            if grown == NULL:
                raise MemoryError
            self.batches, self.batch_room = <RowColumns*>grown, 2 * self.batch_room + 16
        if self.rows + rows > self.room:
            grown = realloc(self.items, <size_t>(2 * (self.rows + rows)) * sizeof(KeyItem))
            if grown == NULL:
                raise MemoryError
            self.items, self.room = <KeyItem*>grown, 2 * (self.rows + rows)
        return 0

    cdef int receive(self, Slice message) except -1:
        """Moves the ends of keys and values to aligned memory; the rest is not copied."""
        cdef uint32_t head[2]
        cdef Py_ssize_t rows, by_row, words
        cdef RowColumns* batch
        cdef uint64_t[::1] ends
        cdef uint32_t* key_ends
        if message.size < HEAD_BYTES:
            raise Corruption("a message", "its size", f"{HEAD_BYTES} bytes or more", message.size)
        memcpy(head, message.data, HEAD_BYTES)
        if head[0] == ACCOUNT or head[0] == REFUSAL:
            return self.receive_account(message)
        rows, by_row = head[0], 16 if head[1] else 8
        if message.size < HEAD_BYTES + by_row * rows or rows == 0:
            raise Corruption("a message", "its size", f"{HEAD_BYTES + by_row * rows} bytes or more", message.size)
        self.reserve(rows)
        words = rows + 1 + (rows if head[1] else 0)         # of 8 bytes: a zero and the ends of both, then the ranks
        held = np.zeros(words, np.uint64)
        ends = held
        batch = self.batches + self.batch_count
        key_ends = <uint32_t*>&ends[0]
        memcpy(key_ends + 1, message.data + HEAD_BYTES, <size_t>(4 * rows))
        memcpy(key_ends + rows + 2, message.data + HEAD_BYTES + 4 * rows, <size_t>(4 * rows))
        batch.key_ends, batch.value_ends, batch.ranks = key_ends + 1, key_ends + rows + 2, NULL
        if head[1]:
            memcpy(&ends[rows + 1], message.data + HEAD_BYTES + 8 * rows, <size_t>(8 * rows))
            batch.ranks = &ends[rows + 1]
        batch.key_data = message.data + HEAD_BYTES + by_row * rows
        batch.value_data = batch.key_data + batch.key_ends[rows - 1]
        if (not ascend(batch.key_ends, rows) or not ascend(batch.value_ends, rows) or message.size !=
                HEAD_BYTES + by_row * rows + batch.key_ends[rows - 1] + <Py_ssize_t>batch.value_ends[rows - 1]):
            raise Corruption("a message", "its ends", "ends that ascend to its size", message.size)
        self.held.append(held)
        self.add_batch(self.batch_count, rows)
        self.batch_count += 1
        return 0

    cdef int add_batch(self, Py_ssize_t batch, Py_ssize_t rows) noexcept nogil:
        cdef Py_ssize_t at
        cdef int64_t number
        for at in range(rows):
            number = (<int64_t>batch << 32) | at
            self.content += content_of(self.key_of(number), self.value_of(number))
            self.items[self.rows + at].row = number
        self.rows += rows
        self.counted += rows
        return 0

    cdef int receive_account(self, Slice message) except -1:
        cdef uint64_t numbers[3]
        memcpy(numbers, message.data, <size_t>min(message.size, ACCOUNT_BYTES))
        if numbers[0] == REFUSAL:
            self.refusals.append(message.data[HEAD_BYTES:message.size].decode())
            return 0
        if message.size != ACCOUNT_BYTES:
            raise Corruption("a message", "an account", f"{ACCOUNT_BYTES} bytes", message.size)
        self.reported_rows += <Py_ssize_t>numbers[1]
        self.reported_content += numbers[2]
        self.senders += 1
        return 0

    cdef Slice key_of(self, int64_t row) noexcept nogil:
        return key_source(self.batches, row)

    cdef Slice value_of(self, int64_t row) noexcept nogil:
        cdef RowColumns* batch = self.batches + (row >> 32)
        cdef Py_ssize_t at = row & ROW_MASK
        cdef Slice out
        cdef uint32_t start = batch.value_ends[at - 1]
        out.data, out.size = batch.value_data + start, batch.value_ends[at] - start
        return out

    cdef uint64_t rank_of(self, int64_t row) noexcept nogil:
        cdef const uint64_t* ranks = self.batches[row >> 32].ranks
        return LOAD_EPOCH if ranks == NULL else ranks[row & ROW_MASK]

    cdef order_by_rank(self):
        """The highest rank first: rows with equal keys stay in that order."""
        cdef int64_t[::1] rows = np.empty(self.rows, np.int64), ranks = np.empty(self.rows, np.int64)
        cdef const int64_t[::1] order
        cdef Py_ssize_t at
        for at in range(self.rows):
            rows[at] = self.items[at].row
            ranks[at] = -<int64_t>self.rank_of(rows[at])
        order = np.argsort(ranks, kind="stable")
        for at in range(self.rows):
            self.items[at].row = rows[order[at]]

    cdef Py_ssize_t shared_bytes(self) noexcept nogil:
        """The length of the common prefix of all keys."""
        cdef Slice first, key
        cdef Py_ssize_t row, shared
        if self.rows == 0:
            return 0
        first = self.key_of(self.items[0].row)
        shared = first.size
        for row in range(1, self.rows):
            key = self.key_of(self.items[row].row)
            shared = min(shared, key.size)
            while shared > 0 and memcmp(first.data, key.data, <size_t>shared) != 0:
                shared -= 1
        return shared

    cdef Py_ssize_t keep_one_of_each(self) except -1 nogil:
        """Keeps the first row of each key; returns the number of rows kept."""
        cdef Py_ssize_t row, kept = 0
        for row in range(self.rows):
            if (kept > 0 and self.items[row].high == self.items[kept - 1].high
                    and self.items[row].low == self.items[kept - 1].low
                    and compare_bytes(self.key_of(self.items[row].row), self.key_of(self.items[kept - 1].row)) == 0):
                self.duplicates += 1
                if self.duplicates <= SHOWN_KEYS:
                    with gil:
                        self.show(self.key_of(self.items[row].row))
                continue
            self.items[kept] = self.items[row]
            kept += 1
        return kept

    cdef show(self, Slice key):
        self.duplicate_keys.append(key.data[:key.size])


cdef class SortedRows(HummockIterator):
    """Iterates the rows of a sorted sorter, forward, repeatedly; keeps the sorter alive."""

    def __cinit__(self, RowSorter sorter not None, bint by_rank):
        self.sorter, self.by_rank, self.direction = sorter, by_rank, FORWARD

    cdef int rewind(self) except -1 nogil:
        self.at = 0
        return self.settle()

    cdef int next(self) except -1 nogil:
        self.at += 1
        return self.settle()

    cdef Py_ssize_t pull(self, Entry* out, Py_ssize_t most) except -1 nogil:
        cdef Py_ssize_t count, slot
        cdef int64_t row
        self.at += self.pulled
        count = min(most, self.sorter.rows - self.at)
        for slot in range(count):
            if self.at + slot + AHEAD < self.sorter.rows:
                row = self.sorter.items[self.at + slot + AHEAD].row
                prefetch(self.sorter.key_of(row).data)
                prefetch(self.sorter.value_of(row).data)
            row = self.sorter.items[self.at + slot].row
            out[slot].user_key, out[slot].value = self.sorter.key_of(row), self.sorter.value_of(row)
            out[slot].epoch = self.sorter.rank_of(row) if self.by_rank else LOAD_EPOCH
            out[slot].high = head_of(out[slot].user_key.data, out[slot].user_key.size)
            out[slot].low = low_of(out[slot].user_key.data, out[slot].user_key.size)
        self.pulled = count
        return count

    cdef int settle(self) noexcept nogil:
        cdef int64_t row
        self.valid = self.at < self.sorter.rows
        if self.valid:
            row = self.sorter.items[self.at].row
            self.user_key, self.value = self.sorter.key_of(row), self.sorter.value_of(row)
            self.epoch = self.sorter.rank_of(row) if self.by_rank else LOAD_EPOCH
        return 0

