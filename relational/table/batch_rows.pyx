"""BatchRows: the rows of several batches, each with one number, so that they can be sorted and gathered together."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from hummock.base.key cimport TABLE_ID_BYTES, copy_bytes
from hummock.base.prefetch cimport prefetch
from hummock.columnar.binary_column cimport BinaryColumnBuilder
from relational.table.key_sort cimport ITEM_BYTES, are_heads_equal, item_of, write_bytes

cdef enum:
    AHEAD = 24              # rows between prefetching memory and using it
    BLOCK = 64              # rows whose bytes are prefetched, and then gathered, together


cdef Slice key_source(void* sources, int64_t number) noexcept nogil:
    return key_in(<const RowSource*>sources, number)


cdef Py_ssize_t size_of_all(const int32_t* offsets, Py_ssize_t rows) noexcept nogil:
    """The size of each value of a column, -1 if they differ."""
    cdef int32_t size = offsets[1] - offsets[0] if rows > 0 else -1, differ = 0
    cdef Py_ssize_t row
    for row in range(rows):
        differ |= (offsets[row + 1] - offsets[row]) ^ size
    return -1 if differ else size


cdef void put_ends(BinaryColumnBuilder out, Py_ssize_t rows, Py_ssize_t size) noexcept nogil:
    """Counts `rows` values of one size as appended. REQUIRES that their bytes were written, and none so far is null."""
    cdef int32_t* ends = out.offsets + out.rows + 1
    cdef Py_ssize_t row
    for row in range(rows):
        ends[row] = <int32_t>(out.data_bytes + (row + 1) * size)
    out.rows += rows
    out.data_bytes += rows * size


cdef class BatchRows:
    """The batches keep their rows; their pointers are borrowed as long as `batches` has them."""

    def __cinit__(self):
        self.batches, self.sources = [], ByteBuffer()
        self.key_size = self.value_size = -1

    cdef int add(self, KvBatch batch) except -1:
        cdef RowSource source
        source.key_offsets, source.key_data = batch.keys.offsets, batch.keys.data
        source.value_offsets, source.value_data = batch.values.offsets, batch.values.data
        source.rows = batch.keys.rows
        source.validity, source.validity_offset = batch.values.validity, batch.values.validity_offset
        self.sources.append(<const uint8_t*>&source, sizeof(RowSource))
        with nogil:
            self.note_sizes(&source)
        self.batches.append(batch)
        self.rows += batch.keys.rows
        self.key_bytes += batch.keys.offsets[batch.keys.rows] - batch.keys.offsets[0]
        self.value_bytes += batch.values.offsets[batch.keys.rows] - batch.values.offsets[0]
        return 0

    cdef int clear(self) except -1:
        self.batches = []
        self.sources.truncate(0)
        self.rows = self.key_bytes = self.value_bytes = 0
        self.key_size = self.value_size = -1
        return 0

    cdef void note_sizes(self, const RowSource* source) noexcept nogil:
        cdef Py_ssize_t key_size = size_of_all(source.key_offsets, source.rows)
        cdef Py_ssize_t value_size = -1 if source.validity != NULL else size_of_all(source.value_offsets, source.rows)
        if self.rows == 0:
            self.key_size, self.value_size = key_size, value_size
        if key_size != self.key_size:
            self.key_size = -1
        if value_size != self.value_size:
            self.value_size = -1

    cdef void fill(self, KeyItem* items) noexcept nogil:
        cdef const RowSource* sources = self.source()
        cdef Py_ssize_t batch, row
        for batch in range(self.sources.size // sizeof(RowSource)):
            for row in range(sources[batch].rows):
                items[row] = item_of(key_in(sources, number_of(batch, row)), TABLE_ID_BYTES, number_of(batch, row))
            items += sources[batch].rows

    cdef void prefetch_keys(self, const KeyItem* items, Py_ssize_t count) noexcept nogil:
        cdef const RowSource* sources = self.source()
        cdef const RowSource* source
        cdef Py_ssize_t row
        cdef Slice key
        cdef bint is_like_last = False
        for row in range(count):
            source = sources + (items[row].row >> 32)
            prefetch(source.key_offsets + <uint32_t>items[row].row)
        for row in range(count):
            if is_like_last or (row + 1 < count and are_heads_equal(items + row, items + row + 1)):
                key = key_in(sources, items[row].row)
                prefetch(key.data)
                prefetch(key.data + key.size)
            is_like_last = row + 1 < count and are_heads_equal(items + row, items + row + 1)

    cdef int copy_rows(self, int64_t number, Py_ssize_t rows, BatchWriter out) except -1 nogil:
        cdef const RowSource* source = self.source() + (number >> 32)
        cdef uint32_t first = <uint32_t>number
        cdef Py_ssize_t row
        cdef Slice value
        out.keys.append_rows(source.key_offsets + first, source.key_data, rows)
        if source.validity == NULL and out.values.validity == NULL:
            return out.values.append_rows(source.value_offsets + first, source.value_data, rows)
        for row in range(rows):
            value = value_in(self.source(), number + row)
            if value.data == NULL:
                out.values.append_null()
            else:
                out.values.append(value)
        return 0

    cdef int gather(self, const KeyItem* items, Py_ssize_t count, bint reverse, BatchWriter out) except -1 nogil:
        cdef int64_t numbers[BLOCK]
        cdef Py_ssize_t first = 0, rows, i
        while first < count:
            rows = min(count - first, <Py_ssize_t>BLOCK)
            for i in range(rows):
                numbers[i] = items[count - 1 - first - i if reverse else first + i].row
            self.gather_block(numbers, rows, out)
            first += rows
        return 0

    cdef int gather_sorted(self, const KeyItem* items, Py_ssize_t count, BatchWriter out) except -1 nogil:
        if TABLE_ID_BYTES <= self.key_size <= TABLE_ID_BYTES + ITEM_BYTES and self.value_size >= 0:
            return self.gather_even(items, count, out)
        return self.gather(items, count, False, out)

    cdef int gather_even(self, const KeyItem* items, Py_ssize_t count, BatchWriter out) except -1 nogil:
        cdef const RowSource* sources = self.source()
        cdef const RowSource* source
        cdef Py_ssize_t row, key_size = self.key_size, value_size = self.value_size
        cdef uint8_t* keys
        cdef uint8_t* values
        cdef uint8_t room[ITEM_BYTES]
        out.keys.reserve(count, count * key_size)
        out.values.reserve(count, count * value_size)
        keys, values = out.keys.data + out.keys.data_bytes, out.values.data + out.values.data_bytes
        for row in range(count):
            if row + AHEAD < count:
                source = sources + (items[row + AHEAD].row >> 32)
                prefetch(source.value_data + source.value_offsets[0] + <uint32_t>items[row + AHEAD].row * value_size)
                prefetch(source.value_data + source.value_offsets[0]
                         + <uint32_t>items[row + AHEAD].row * value_size + value_size - 1)
            source = sources + (items[row].row >> 32)
            memcpy(keys, source.key_data + source.key_offsets[0], TABLE_ID_BYTES)
            write_bytes(items + row, room)
            copy_bytes(keys + TABLE_ID_BYTES, room, key_size - TABLE_ID_BYTES)
            copy_bytes(values, source.value_data + source.value_offsets[0] + <uint32_t>items[row].row * value_size,
                       value_size)
            keys += key_size
            values += value_size
        put_ends(out.keys, count, key_size)
        put_ends(out.values, count, value_size)
        return 0

    cdef int gather_block(self, const int64_t* numbers, Py_ssize_t rows, BatchWriter out) except -1 nogil:
        """Appends at most BLOCK rows. They are scattered over memory, which is prefetched in steps: the offsets of each
        row, then its bytes.
        """
        cdef const RowSource* sources = self.source()
        cdef const RowSource* source
        cdef Slice keys[BLOCK]
        cdef Slice values[BLOCK]
        cdef Py_ssize_t i
        for i in range(rows):
            source = sources + (numbers[i] >> 32)
            prefetch(source.key_offsets + <uint32_t>numbers[i])
            prefetch(source.value_offsets + <uint32_t>numbers[i])
        for i in range(rows):
            keys[i], values[i] = key_in(sources, numbers[i]), value_in(sources, numbers[i])
            prefetch(keys[i].data)
            prefetch(keys[i].data + keys[i].size)
            prefetch(values[i].data)
            prefetch(values[i].data + values[i].size)
        return out.put_block(keys, values, rows)
