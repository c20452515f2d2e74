"""The rows of one partition, sorted in the messages that hold them."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from hummock.base.key cimport Slice
from hummock.iterator.base cimport HummockIterator
from relational.table.key_sort cimport KeyItem

cpdef enum:
    SHOWN_KEYS = 10             # sample of duplicate keys

cdef struct RowColumns:         # one message as received; the sorter keeps it alive
    const uint32_t* key_ends    # the end of the previous row is at -1
    const uint8_t* key_data
    const uint32_t* value_ends
    const uint8_t* value_data
    const uint64_t* ranks       # NULL: rows have none


cdef class RowSorter:
    cdef RowColumns* batches
    cdef Py_ssize_t batch_count, batch_room
    cdef list held              # owners of each message's memory
    cdef KeyItem* items         # of each row: its row is batch << 32 | row in the batch
    cdef Py_ssize_t room
    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t nbytes         # of the added rows
    cdef readonly Py_ssize_t duplicates     # rows of this run superseded by others with their key
    cdef readonly list duplicate_keys       # of the first of those
    cdef readonly uint64_t content          # sum of the hashes of all rows that were added
    cdef readonly Py_ssize_t counted        # their number
    cdef readonly uint64_t reported_content     # the same as reported by the senders
    cdef readonly Py_ssize_t reported_rows
    cdef readonly Py_ssize_t senders
    cdef readonly list refusals             # errors of senders that stopped

    cdef int reserve(self, Py_ssize_t rows) except -1
    cdef int receive(self, Slice message) except -1
    cdef int add_batch(self, Py_ssize_t batch, Py_ssize_t rows) noexcept nogil
    cdef int receive_account(self, Slice message) except -1
    cdef Slice key_of(self, int64_t row) noexcept nogil
    cdef Slice value_of(self, int64_t row) noexcept nogil
    cdef uint64_t rank_of(self, int64_t row) noexcept nogil
    cdef order_by_rank(self)
    cdef Py_ssize_t shared_bytes(self) noexcept nogil
    cdef Py_ssize_t keep_one_of_each(self) except -1 nogil
    cdef show(self, Slice key)


cdef class SortedRows(HummockIterator):
    cdef RowSorter sorter
    cdef Py_ssize_t at
    cdef bint by_rank

    cdef int settle(self) noexcept nogil
