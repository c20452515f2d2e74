"""Sorted batches of rows laid together: those of several ranges, and changes over what the store holds.

Within a table the vnode follows from the rest of the key, so rows of several vnodes order by the bytes behind
`table id | vnode`: that is what `skip` leaves out of every comparison here. With `reverse` the batches are in
descending order, and so are the results.
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memcpy

from hummock.base.key cimport compare_bytes, slice_of
from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.table.key_sort cimport KeyItem, item_of, sort_items

cdef extern from * nogil:
    void __builtin_prefetch(const void*, ...) noexcept

cdef enum:
    BLOCK = 64              # rows whose bytes are asked for, and then gathered, together


cdef class BatchWriter:
    """Collects rows; `finish` gives them as a KvBatch and starts again."""

    def __cinit__(self):
        self.keys, self.values = BinaryColumnBuilder(), BinaryColumnBuilder()

    cdef int put(self, Slice key, Slice value) except -1 nogil:
        self.keys.append(key)
        return self.values.append(value)

    cdef int put_block(self, const Slice* keys, const Slice* values, Py_ssize_t rows) except -1 nogil:
        append_block(self.keys, keys, rows)
        return append_block(self.values, values, rows)

    cdef int copy_row(self, KvBatch source, Py_ssize_t row) except -1 nogil:
        self.keys.append(source.keys.at(row))
        if source.values.is_null(row):
            return self.values.append_null()
        return self.values.append(source.values.at(row))

    cdef int cut(self, Py_ssize_t rows) noexcept nogil:
        if rows < self.keys.rows:
            self.keys.rows = self.values.rows = rows
            self.keys.data_bytes = self.keys.offsets[rows]
            self.values.data_bytes = self.values.offsets[rows]
        return 0

    cdef KvBatch finish(self):
        return KvBatch(self.keys.finish(), self.values.finish())


cdef int append_block(BinaryColumnBuilder out, const Slice* values, Py_ssize_t rows) except -1 nogil:
    """Appends `rows` values, those at NULL as null. The copies stand in a loop of their own, short enough for
    the processor to wait for many of them at once.
    """
    cdef Py_ssize_t row, size = 0, nulls = 0
    cdef uint8_t* target
    for row in range(rows):
        size += values[row].size
        nulls += values[row].data == NULL
    out.reserve(rows, size)
    if nulls or out.validity != NULL:
        for row in range(rows):
            if values[row].data == NULL:
                out.append_null()
            else:
                out.append(values[row])
        return 0
    target = out.data + out.data_bytes
    for row in range(rows):
        memcpy(target, values[row].data, <size_t>values[row].size)
        target += values[row].size
        out.offsets[out.rows + row + 1] = <int32_t>(target - out.data)
    out.rows += rows
    out.data_bytes += size
    return 0


cdef int compare_tails(Slice a, Slice b, Py_ssize_t skip) noexcept nogil:
    a.data += skip
    a.size -= skip
    b.data += skip
    b.size -= skip
    return compare_bytes(a, b)


cdef Slice source_key(void* columns, int64_t row) noexcept nogil:
    """The key of a row numbered batch << 32 | row; `columns` is an array of borrowed BinaryColumns."""
    cdef void* column = (<void**>columns)[row >> 32]
    return (<BinaryColumn>column).at(<uint32_t>row)


def rows_until(
    KvBatch batch not None, Py_ssize_t start, bytes bound not None, Py_ssize_t skip, bint reverse=False
):
    """The first row from `start` on whose key lies beyond the key `bound` in the batch's order."""
    cdef Py_ssize_t low = start, high = batch.keys.rows, middle
    cdef Slice limit
    cdef int sign = -1 if reverse else 1
    limit = slice_of(bound)
    while low < high:
        middle = (low + high) >> 1
        if compare_tails(batch.keys.at(middle), limit, skip) * sign <= 0:
            low = middle + 1
        else:
            high = middle
    return low


def merged(list batches not None, starts, ends, Py_ssize_t skip, bint reverse=False):
    """The rows [starts[i], ends[i]) of each KvBatch i as one, in order of their keys less `skip` bytes."""
    cdef ByteBuffer items = ByteBuffer(), scratch = ByteBuffer(), keys = ByteBuffer(), values = ByteBuffer()
    cdef Py_ssize_t rows = 0, key_bytes = 0, value_bytes = 0, i, row, first, last
    cdef KeyItem* item
    cdef KvBatch batch
    cdef void* column
    for i in range(len(batches)):
        batch = batches[i]
        column = <void*>batch.keys
        keys.append(<const uint8_t*>&column, sizeof(void*))
        column = <void*>batch.values
        values.append(<const uint8_t*>&column, sizeof(void*))
        first, last = starts[i], ends[i]
        if not 0 <= first <= last <= batch.keys.rows:
            raise IndexError(f"rows [{first}, {last}) of a batch of {batch.keys.rows}")
        items.reserve((last - first) * sizeof(KeyItem))
        item = <KeyItem*>(items.data + items.size)
        for row in range(first, last):
            item[row - first] = item_of(batch.keys.at(row), skip, (<int64_t>i << 32) | row)
        items.size += (last - first) * sizeof(KeyItem)
        rows += last - first
        key_bytes += batch.keys.offsets[last] - batch.keys.offsets[first]
        value_bytes += batch.values.offsets[last] - batch.values.offsets[first]
    scratch.reserve(rows * sizeof(KeyItem))
    with nogil:
        sort_items(<KeyItem*>items.data, <KeyItem*>scratch.data, rows, source_key, keys.data, skip)
    return gathered(<const KeyItem*>items.data, rows, <void**>keys.data, <void**>values.data, key_bytes, value_bytes,
                    reverse)


cdef KvBatch gathered(const KeyItem* items, Py_ssize_t rows, void** keys, void** values, Py_ssize_t key_bytes,
                      Py_ssize_t value_bytes, bint reverse):
    """The rows that the items number, from the last to the first in reverse; of so many bytes, about."""
    cdef BatchWriter out = BatchWriter()
    cdef Py_ssize_t row = 0
    with nogil:
        out.keys.reserve(rows, key_bytes)
        out.values.reserve(rows, value_bytes)
        while row < rows:
            gather_block(items, row, min(rows - row, <Py_ssize_t>BLOCK), rows, keys, values, reverse, out)
            row += BLOCK
    return out.finish()


cdef int gather_block(const KeyItem* items, Py_ssize_t first, Py_ssize_t count, Py_ssize_t rows, void** keys,
                      void** values, bint reverse, BatchWriter out) except -1 nogil:
    """At most BLOCK rows from row `first` of the result on. They lie anywhere, so their memory is asked for in steps:
    where each begins and ends, then its bytes."""
    cdef int64_t numbers[BLOCK]
    cdef Slice keys_at[BLOCK]
    cdef Slice values_at[BLOCK]
    cdef void* link
    cdef Py_ssize_t place
    for place in range(count):
        numbers[place] = items[rows - 1 - first - place if reverse else first + place].row
        prefetch_row(keys[numbers[place] >> 32], <uint32_t>numbers[place])
        prefetch_row(values[numbers[place] >> 32], <uint32_t>numbers[place])
    for place in range(count):
        link = keys[numbers[place] >> 32]
        keys_at[place] = (<BinaryColumn>link).at(<uint32_t>numbers[place])
        link = values[numbers[place] >> 32]
        values_at[place] = (<BinaryColumn>link).at(<uint32_t>numbers[place])
        if (<BinaryColumn>link).is_null(<uint32_t>numbers[place]):
            values_at[place].data, values_at[place].size = NULL, 0
        __builtin_prefetch(keys_at[place].data)
        __builtin_prefetch(keys_at[place].data + keys_at[place].size)
        __builtin_prefetch(values_at[place].data)
    return out.put_block(keys_at, values_at, count)


cdef inline void prefetch_row(void* column, Py_ssize_t row) noexcept nogil:
    __builtin_prefetch((<BinaryColumn>column).offsets + row)


def overlay(KvBatch rows, KvBatch changes not None, Py_ssize_t position, Py_ssize_t skip, bint reverse=False):
    """(`rows` as the changes from `position` on leave them, the position after the changes that were used).

    Changes replace, add and (null value) remove rows. Those beyond the last row stay unused, for the next
    batch may hold their rows; with `rows` None, which says that no more come, all are used.
    """
    cdef BatchWriter out = BatchWriter()
    cdef Py_ssize_t row = 0, count = 0 if rows is None else rows.keys.rows, change = position
    cdef Py_ssize_t changed = changes.keys.rows
    cdef int order, sign = -1 if reverse else 1
    with nogil:
        while row < count or (rows is None and change < changed):
            order = -1
            if change < changed:
                order = 1
                if row < count:
                    order = compare_tails(rows.keys.at(row), changes.keys.at(change), skip) * sign
            if order < 0:
                out.copy_row(rows, row)
                row += 1
                continue
            if not changes.values.is_null(change):
                out.copy_row(changes, change)
            change += 1
            row += order == 0
    return out.finish(), change
