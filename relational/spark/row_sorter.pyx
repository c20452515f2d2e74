"""RowSorter: encoded rows of one partition in whatever order they come, given back by key, each key once.

Rows stay in the memory in which they arrived: what is sorted are their numbers beside the first bytes of their keys.
Of rows with one key the one of the highest rank stays. Senders tell, in rows without a key, how many rows of what
content each of them has sent here, so that one that was lost or came twice on its way is noticed; or, in other than 16
bytes, why they do not go on.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

import numpy as np

from hummock.binary_column cimport BinaryColumn
from hummock.checksum cimport hash64
from hummock.iterator.base cimport FORWARD, Entry, HummockIterator, low_of
from hummock.key cimport Slice, compare_bytes, head_of
from relational.table.key_order cimport KeyItem, item_of, sort_items

from hummock.load import PLACEHOLDER

cdef extern from * nogil:
    """
    #define hummock_prefetch_row(address) __builtin_prefetch(address)
    """
    void prefetch_row "hummock_prefetch_row"(const void* address) noexcept

cdef enum:
    TOLD_BYTES = 16             # of a sender's account: rows and content, both u64 of this machine's order
    SHOWN_KEYS = 10             # of duplicates
    AHEAD = 12                  # rows whose bytes are fetched before they are asked for
cdef int64_t ROW_MASK = 0xFFFFFFFF
cdef uint64_t PLACE_HOLDER = PLACEHOLDER
cdef uint64_t SPREAD = 0x9E3779B97F4A7C15     # odd, so that nothing is lost by it


cdef inline uint64_t content_of(Slice key, Slice value) noexcept nogil:
    """A number of the row that no swap of bytes between key and value leaves as it is."""
    return hash64(key.data, key.size) * SPREAD + hash64(value.data, value.size)


cdef Slice key_source(void* owner, int64_t row) noexcept nogil:
    cdef RowColumns* batch = <RowColumns*>owner + (row >> 32)
    cdef Py_ssize_t at = row & ROW_MASK
    cdef Slice out
    out.data, out.size = batch.key_data + batch.key_offsets[at], batch.key_offsets[at + 1] - batch.key_offsets[at]
    return out


cdef class RowSorter:

    def __cinit__(self):
        self.held, self.duplicate_keys, self.refusals = [], [], []

    def __dealloc__(self):
        free(self.batches)
        free(self.items)

    def add(self, keys, values, ranks=None) -> None:
        """Rows of a batch: Arrow binary arrays, and int64 ranks where duplicates are told apart. A row whose key is
        empty is a sender's account.
        """
        cdef BinaryColumn of_keys = BinaryColumn.from_arrow(keys), of_values = BinaryColumn.from_arrow(values)
        cdef const int64_t[::1] view
        cdef RowColumns* batch
        if len(of_keys) != len(of_values) or of_keys.null_count or of_values.null_count:
            raise ValueError("rows have a key and a value each")
        if len(of_keys) == 0:
            return
        self.reserve(len(of_keys))
        batch = self.batches + self.batch_count
        batch.key_offsets, batch.key_data = of_keys.offsets, of_keys.data
        batch.value_offsets, batch.value_data = of_values.offsets, of_values.data
        batch.ranks = NULL
        numbers = None
        if ranks is not None:
            numbers = np.ascontiguousarray(ranks, np.int64)
            view = numbers
            batch.ranks = &view[0]
        self.held.append((of_keys, of_values, numbers))
        self.nbytes += of_keys.nbytes + of_values.nbytes
        with nogil:
            self.take(self.batch_count, of_keys.rows)
        self.batch_count += 1

    def sort(self, by_rank=False) -> SortedRows:
        """All rows so far by key, those that give way counted; they stay here until `clear`.

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
        """Lets all rows go; what was counted stays."""
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

    cdef int take(self, Py_ssize_t batch, Py_ssize_t rows) except -1 nogil:
        cdef Py_ssize_t at
        cdef int64_t number
        cdef Slice key
        for at in range(rows):
            number = (<int64_t>batch << 32) | at
            key = self.key_of(number)
            if key.size == 0:
                self.hear(self.value_of(number))
                continue
            self.content += content_of(key, self.value_of(number))
            self.counted += 1
            self.items[self.rows].row = number
            self.rows += 1
        return 0

    cdef int hear(self, Slice told) except -1 nogil:
        cdef uint64_t numbers[2]
        if told.size != TOLD_BYTES:
            with gil:
                self.refusals.append(told.data[:told.size])
            return 0
        memcpy(numbers, told.data, TOLD_BYTES)
        self.told_rows += <Py_ssize_t>numbers[0]
        self.told_content += numbers[1]
        self.senders += 1
        return 0

    cdef Slice key_of(self, int64_t row) noexcept nogil:
        return key_source(self.batches, row)

    cdef Slice value_of(self, int64_t row) noexcept nogil:
        cdef RowColumns* batch = self.batches + (row >> 32)
        cdef Py_ssize_t at = row & ROW_MASK
        cdef Slice out
        out.data = batch.value_data + batch.value_offsets[at]
        out.size = batch.value_offsets[at + 1] - batch.value_offsets[at]
        return out

    cdef uint64_t rank_of(self, int64_t row) noexcept nogil:
        cdef const int64_t* ranks = self.batches[row >> 32].ranks
        return PLACE_HOLDER if ranks == NULL else <uint64_t>ranks[row & ROW_MASK]

    cdef order_by_rank(self):
        """The highest first: rows of one key stay in that order."""
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
        """How many bytes all keys begin with alike."""
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
        """Leaves the first row of each key; how many are left."""
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
    """Walks the rows of a sorter that was sorted, forward, once or again; holds it."""

    def __cinit__(self, RowSorter sorter not None, bint by_rank):
        self.sorter, self.by_rank, self.direction = sorter, by_rank, FORWARD

    cdef int rewind(self) except -1 nogil:
        self.at = 0
        return self.settle()

    cdef int next(self) except -1 nogil:
        self.at += 1
        return self.settle()

    cdef Py_ssize_t pull(self, Entry* out, Py_ssize_t most) except -1 nogil:
        cdef Py_ssize_t count, place
        cdef int64_t row
        self.at += self.pulled
        count = min(most, self.sorter.rows - self.at)
        for place in range(count):
            if self.at + place + AHEAD < self.sorter.rows:
                row = self.sorter.items[self.at + place + AHEAD].row
                prefetch_row(self.sorter.key_of(row).data)
                prefetch_row(self.sorter.value_of(row).data)
            row = self.sorter.items[self.at + place].row
            out[place].user_key, out[place].value = self.sorter.key_of(row), self.sorter.value_of(row)
            out[place].epoch = self.sorter.rank_of(row) if self.by_rank else PLACE_HOLDER
            out[place].high = head_of(out[place].user_key.data, out[place].user_key.size)
            out[place].low = low_of(out[place].user_key.data, out[place].user_key.size)
        self.pulled = count
        return count

    cdef int settle(self) noexcept nogil:
        cdef int64_t row
        self.valid = self.at < self.sorter.rows
        if self.valid:
            row = self.sorter.items[self.at].row
            self.user_key, self.value = self.sorter.key_of(row), self.sorter.value_of(row)
            self.epoch = self.sorter.rank_of(row) if self.by_rank else PLACE_HOLDER
        return 0


cdef class Accounts:
    """What one sender has sent to each of `partitions`, for the rows without a key that tell of it."""

    def __cinit__(self, Py_ssize_t partitions):
        self.table = np.zeros((partitions, 2), np.uint64)
        self.told = self.table

    def count(self, keys, values, partitions) -> None:
        """Rows that are sent; `partitions`: int32 of each."""
        cdef BinaryColumn of_keys = keys, of_values = values
        cdef const int32_t[::1] places = partitions
        cdef Py_ssize_t row
        with nogil:
            for row in range(of_keys.rows):
                self.told[places[row], 0] += 1
                self.told[places[row], 1] += content_of(of_keys.at(row), of_values.at(row))

    def rows(self) -> list:
        """The value of the row that tells each partition."""
        return [line.tobytes() for line in self.table]
