"""BatchRows: the rows of several batches, each with one number."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from hummock.base.key cimport Slice
from hummock.columnar.buffer_pool cimport ByteBuffer
from hummock.columnar.write_batch cimport KvBatch
from relational.table.batch_writer cimport BatchWriter
from relational.table.key_sort cimport KeyItem


cdef struct RowSource:      # the columns of one batch, borrowed
    const int32_t* key_offsets
    const uint8_t* key_data
    const int32_t* value_offsets
    const uint8_t* value_data
    const uint8_t* validity     # of the values; NULL: none is null
    Py_ssize_t validity_offset
    Py_ssize_t rows


cdef inline int64_t number_of(Py_ssize_t batch, Py_ssize_t row) noexcept nogil:
    return (<int64_t>batch << 32) | row


cdef inline Slice key_in(const RowSource* sources, int64_t number) noexcept nogil:
    cdef const RowSource* source = sources + (number >> 32)
    cdef uint32_t row = <uint32_t>number
    cdef Slice out
    out.data = source.key_data + source.key_offsets[row]
    out.size = source.key_offsets[row + 1] - source.key_offsets[row]
    return out


cdef inline Slice value_in(const RowSource* sources, int64_t number) noexcept nogil:
    """`data` is NULL for a null value."""
    cdef const RowSource* source = sources + (number >> 32)
    cdef uint32_t row = <uint32_t>number
    cdef Py_ssize_t bit = source.validity_offset + row
    cdef Slice out
    out.data = source.value_data + source.value_offsets[row]
    out.size = source.value_offsets[row + 1] - source.value_offsets[row]
    if source.validity != NULL and not (source.validity[bit >> 3] >> (bit & 7)) & 1:
        out.data, out.size = NULL, 0
    return out


cdef Slice key_source(void* sources, int64_t number) noexcept nogil     # `key_in` as a KeySource


cdef class BatchRows:
    """Row r of batch b has the number b << 32 | r."""
    cdef readonly list batches          # of KvBatch
    cdef ByteBuffer sources             # RowSource of each batch
    cdef readonly Py_ssize_t rows       # of all batches
    cdef readonly Py_ssize_t key_bytes  # of all their keys
    cdef readonly Py_ssize_t value_bytes
    cdef Py_ssize_t key_size            # of every key; -1: not the same for all, or no rows
    cdef Py_ssize_t value_size          # of every value, if none is null; -1 else

    cdef int add(self, KvBatch batch) except -1
    cdef int clear(self) except -1
    cdef void note_sizes(self, const RowSource* source) noexcept nogil
    cdef inline const RowSource* source(self) noexcept nogil:
        return <const RowSource*>self.sources.data
    cdef void fill(self, KeyItem* items) noexcept nogil     # an item for each row, in order; they skip the table id
    cdef void prefetch_keys(self, const KeyItem* items, Py_ssize_t count) noexcept nogil
    # of items that do not differ from the next one or the one before: their keys are about to be compared
    cdef int copy_rows(self, int64_t number, Py_ssize_t rows, BatchWriter out) except -1 nogil
    # appends rows that follow one another in one batch
    cdef int gather(self, const KeyItem* items, Py_ssize_t count, bint reverse, BatchWriter out) except -1 nogil
    # appends the rows of the items, from the last to the first in reverse
    cdef int gather_sorted(self, const KeyItem* items, Py_ssize_t count, BatchWriter out) except -1 nogil
    # the same in order, for items of `fill`. REQUIRES that all keys are of one table
    cdef int gather_even(self, const KeyItem* items, Py_ssize_t count, BatchWriter out) except -1 nogil
    # for values of one size, and keys of one that their items contain
    cdef int gather_block(self, const int64_t* numbers, Py_ssize_t rows, BatchWriter out) except -1 nogil
