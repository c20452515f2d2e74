"""CellEncoder: rows as one entry per value, the older row format of a table.

    key    key of the row | u32 BE 0                  value  empty: the row exists
    key    key of the row | u32 BE column id + 1      value  the payload of a value, as in rows

A NULL has no entry, and neither has a column that was added later, so nothing but NULL can be its default. Entries of a
row lie together in the order of ids, because no key of a row begins another. An update of one column writes one entry,
which is what this format is for; everything else costs an entry per value.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from hummock.binary_column cimport BinaryColumn, BinaryColumnBuilder
from hummock.key cimport Slice
from relational.chunk.column cimport Column, ColumnView, as_column, is_null
from relational.chunk.column_builder cimport ColumnBuilder
from relational.chunk.json_text cimport JsonText
from relational.chunk.scalar cimport __builtin_bswap32, load32, store32
from relational.encoding.field cimport BAD_FORM, FINE, OUT_OF_RANGE, Reason, RowFormat, TRUNCATED, raise_encoding
from relational.encoding.value cimport VALUE_BYTES
from relational.encoding.value_cells cimport payload_size, read_cells, write_payload



cdef class CellEncoder(RowFormat):
    """Rows of `types`, whose columns have the distinct ids `column_ids` (0, 1, 2 … where left out)."""

    def __init__(self, types, column_ids=None):
        cdef int i
        self.plant(VALUE_BYTES)
        self.column_ids = tuple(range(self.count)) if column_ids is None else tuple(column_ids)
        if len(self.column_ids) != self.count or len(set(self.column_ids)) != self.count:
            raise ValueError(f"{self.count} types with the ids {self.column_ids}")
        ascending = sorted(range(self.count), key=self.column_ids.__getitem__)
        self.ids = <int32_t*>malloc((self.count + 1) * sizeof(int32_t))
        self.order = <int32_t*>malloc((self.count + 1) * sizeof(int32_t))
        if self.ids == NULL or self.order == NULL:
            raise MemoryError("no memory for the fields of a row")
        for i in range(self.count):
            self.ids[i], self.order[i] = self.column_ids[i], ascending[i]

    def __dealloc__(self):
        free(self.ids)
        free(self.order)

    cdef tuple write(self, BinaryColumn keys, tuple columns):
        cdef BinaryColumnBuilder cell_keys = BinaryColumnBuilder(), cell_values = BinaryColumnBuilder()
        cdef const ColumnView** views = <const ColumnView**>malloc((self.count + 1) * sizeof(ColumnView*))
        cdef int i
        try:
            if views == NULL:
                raise MemoryError("no memory to encode rows")
            for i in range(self.count):
                if (<Column?>columns[i]).data_type != self.types[i] or (<Column>columns[i]).view.rows != keys.rows:
                    raise ValueError(f"column {i} is {columns[i]!r}, not {keys.rows} rows of {self.types[i]}")
                views[i] = &(<Column>columns[i]).view
            with nogil:
                write_entries(self, views, keys, cell_keys, cell_values)
        finally:
            free(views)
        return cell_keys.finish(), cell_values.finish()

    cdef tuple read(self, BinaryColumn keys, BinaryColumn values):
        cdef BinaryColumnBuilder row_keys = BinaryColumnBuilder()
        cdef list sinks = [ColumnBuilder(data_type) for data_type in self.types]
        cdef PyObject** borrowed = <PyObject**>malloc((self.count + 1) * sizeof(PyObject*))
        cdef JsonText json = JsonText()
        cdef ColumnBuilder sink
        cdef int i
        try:
            if borrowed == NULL:
                raise MemoryError("no memory to decode rows")
            for i, sink in enumerate(sinks):
                borrowed[i] = <PyObject*>sink
            with nogil:
                read_entries(self, keys, values, row_keys, borrowed, json)
        finally:
            free(borrowed)
        return row_keys.finish(), [sink.finish() for sink in sinks]

    def encode(self, keys, columns):
        """(keys, values) of the entries of rows: a row's key (none begins another) and its columns. EncodingError for a
        value without a form.
        """
        cdef BinaryColumn row_keys = BinaryColumn.from_arrow(keys)
        if len(columns) != self.count:
            raise ValueError(f"{len(columns)} columns for a row of {self.count}")
        return self.write(row_keys, tuple([as_column(source) for source in columns]))

    def decode(self, keys, values):
        """(keys of the rows, one pa.Array per type) from all entries of each row, in the order of their keys.

        Entries of other columns are passed over. EncodingError naming the entry for what no encoder wrote.
        """
        cdef BinaryColumn cell_keys = BinaryColumn.from_arrow(keys), cell_values = BinaryColumn.from_arrow(values)
        if cell_keys.rows != cell_values.rows:
            raise ValueError(f"{cell_values.rows} values under {cell_keys.rows} keys")
        return self.read(cell_keys, cell_values)

    def __reduce__(self):
        return CellEncoder, (self.types, self.column_ids)


cdef int put_key(BinaryColumnBuilder out, Slice key, uint32_t cell) except -1 nogil:
    cdef uint8_t* at
    out.reserve(1, key.size + 4)
    at = out.data + out.data_bytes
    memcpy(at, key.data, <size_t>key.size)
    store32(at + key.size, __builtin_bswap32(cell))
    out.data_bytes += key.size + 4
    out.rows += 1
    out.offsets[out.rows] = <int32_t>out.data_bytes
    return 0


cdef int write_entries(
    CellEncoder format, const ColumnView** views, BinaryColumn keys, BinaryColumnBuilder cell_keys,
    BinaryColumnBuilder cell_values
) except -1 nogil:
    cdef Py_ssize_t row, size
    cdef int place, i
    for row in range(keys.rows):
        put_key(cell_keys, keys.at(row), 0)
        put_value(cell_values, 0)
        for place in range(format.count):
            i = format.order[place]
            if is_null(views[i], row):
                continue
            put_key(cell_keys, keys.at(row), <uint32_t>format.ids[i] + 1)
            size = payload_size(&format.fields[i], views[i], row)
            put_value(cell_values, size)
            if write_payload(
                &format.fields[i], views[i], row, cell_values.data + cell_values.data_bytes - size
            ) == NULL:
                raise_encoding(OUT_OF_RANGE, row, i, -1)
    return 0


cdef int put_value(BinaryColumnBuilder out, Py_ssize_t size) except -1 nogil:
    out.reserve(1, size)
    out.data_bytes += size
    out.rows += 1
    out.offsets[out.rows] = <int32_t>out.data_bytes
    return 0


cdef int read_entries(
    CellEncoder format, BinaryColumn keys, BinaryColumn values, BinaryColumnBuilder row_keys, PyObject** sinks,
    JsonText json
) except -1 nogil:
    cdef Py_ssize_t row
    cdef Slice key, row_key, value
    cdef const uint8_t* stop
    cdef Py_ssize_t failed = 0
    cdef int64_t cell, last = -1
    cdef int next = format.count, reason
    row_key.data, row_key.size = NULL, 0
    for row in range(keys.rows):
        key = keys.at(row)
        value = values.at(row)
        if key.size < 4:
            raise_encoding(TRUNCATED, row, -1, key.size)
        key.size -= 4
        cell = __builtin_bswap32(load32(key.data + key.size))
        if cell == 0:
            fill_up(format, sinks, &next, <int64_t>1 << 32)
            next, row_key = 0, key
            row_keys.append(key)
        elif row_key.data == NULL or key.size != row_key.size or cell <= last or (
            memcmp(key.data, row_key.data, <size_t>key.size) != 0
        ):
            raise_encoding(BAD_FORM, row, -1, key.size)
        else:
            fill_up(format, sinks, &next, cell - 1)
            if next < format.count and format.ids[format.order[next]] == cell - 1:
                stop = value.data + value.size
                reason = read_cells(
                    &format.fields[format.order[next]], <ColumnBuilder>sinks[format.order[next]], 1, &value.data, &stop,
                    json, &failed)
                if reason != FINE:
                    raise_encoding(<Reason>reason, row, format.order[next], -1)
                next += 1
        last = cell
    fill_up(format, sinks, &next, <int64_t>1 << 32)
    return 0


cdef int fill_up(CellEncoder format, PyObject** sinks, int* next, int64_t id) except -1 nogil:
    """NULL for the columns of the row in hand below `id` that had no entry."""
    while next[0] < format.count and format.ids[format.order[next[0]]] < id:
        (<ColumnBuilder>sinks[format.order[next[0]]]).append_null()
        next[0] += 1
    return 0
