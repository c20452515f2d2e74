"""ValueEncoder: rows as compact bytes, lossless and unordered, that stay readable when their table changes.

    row = shape | null bitmap | payloads of the columns of fixed width | u32 end of each other column | their payloads

The columns are in the order of their ids, which the shape lists (see `value/header`). A NULL has its bit set (bit i,
lowest first, is the i-th column's) and zeros or nothing as payload; ends count from the first byte after them. So a
column is found without reading the others, a dropped one is skipped, and one that was added later has its default. A
row without columns has no bytes.
"""

import numpy as np

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport calloc, free, malloc

from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from hummock.columnar.write_batch cimport MAX_VALUE_BYTES
from relational.chunk.column cimport Column, ColumnView, LONG_WORK, as_column
from relational.chunk.column_builder cimport ColumnBuilder
from relational.encoding.field cimport RowFormat
from relational.encoding.value.batch cimport read_value_rows, write_value_rows
from relational.encoding.value.header cimport shape_of
from relational.encoding.value.nested cimport payload_size, write_payload

from relational.errors import EncodingError

MOST_VALUE_BYTES = MAX_VALUE_BYTES      # of a row's value accepted by the store
VALUE_BYTES[:] = [1, 2, 4, 8, 16, 4, 8, 0, 4, 8, 12, 8, 16, 0, 0, 0, 0]


cdef class ValueEncoder(RowFormat):
    """Rows of `types`, whose columns have the ids `column_ids` (default: 0, 1, 2 …)."""

    def __init__(self, types, column_ids=None, defaults=None):
        """`defaults`: one Python value per type, for rows written before the column was added; None: NULL.

        ValueError for ids that are not distinct or not in 0 to 2**31 - 2, EncodingError for a default that does not
        fit.
        """
        cdef int i
        self.plant(VALUE_BYTES)
        self.column_ids = tuple(range(self.count)) if column_ids is None else tuple(column_ids)
        self.defaults = (None,) * self.count if defaults is None else tuple(defaults)
        if not len(self.column_ids) == len(self.defaults) == len(set(self.column_ids)) == self.count:
            raise ValueError(f"{self.count} types with the ids {self.column_ids} and the defaults {self.defaults}")
        if self.count and not 0 <= min(self.column_ids) <= max(self.column_ids) < 2**31 - 1:
            raise ValueError(f"a column id is 0 to 2**31 - 2, not {self.column_ids}")
        ascending = sorted(range(self.count), key=self.column_ids.__getitem__)
        self.default_at = <const uint8_t**>calloc(self.count + 1, sizeof(uint8_t*))
        self.default_sizes = <Py_ssize_t*>calloc(self.count + 1, sizeof(Py_ssize_t))
        self.ids = <int32_t*>malloc((self.count + 1) * sizeof(int32_t))
        self.order = <int32_t*>malloc((self.count + 1) * sizeof(int32_t))
        if self.default_at == NULL or self.default_sizes == NULL or self.ids == NULL or self.order == NULL:
            raise MemoryError("no memory for the fields of a row")
        self.default_bytes = [self.payload(i) for i in range(self.count)]
        for i in range(self.count):
            self.ids[i], self.order[i] = self.column_ids[i], ascending[i]
            if self.default_bytes[i] is not None:
                self.default_at[i] = <const uint8_t*>(<bytes>self.default_bytes[i])
                self.default_sizes[i] = len(self.default_bytes[i])
        widths = [self.fields[<int>i].fixed_bytes for i in ascending]
        self.shape = shape_of([self.column_ids[i] for i in ascending], widths)
        self.layout.fields, self.layout.count = self.fields, self.count
        self.layout.ids, self.layout.order = self.ids, self.order
        self.layout.default_at, self.layout.default_sizes = self.default_at, self.default_sizes
        self.layout.shape, self.layout.shape_bytes = <const uint8_t*>self.shape, len(self.shape)

    def __dealloc__(self):
        free(self.default_at)
        free(self.default_sizes)
        free(self.ids)
        free(self.order)

    def payload(self, int field):
        """The bytes of the default of a field, None for NULL."""
        cdef Column column
        cdef bytearray out
        cdef uint8_t* end
        if self.defaults[field] is None:
            return None
        column = Column.from_pylist([self.defaults[field]], self.types[field])
        out = bytearray(payload_size(&self.fields[field], &column.view, 0) + 1)
        end = write_payload(&self.fields[field], &column.view, 0, <uint8_t*>(<char*>out))
        if end == NULL:
            raise EncodingError(f"{self.defaults[field]!r} cannot be stored")
        return bytes(out)[:len(out) - 1]

    cdef BinaryColumn write(self, tuple columns, Py_ssize_t rows):
        cdef BinaryColumnBuilder out = BinaryColumnBuilder()
        cdef const ColumnView** views
        cdef int i
        if len(columns) != self.count:
            raise ValueError(f"{len(columns)} columns for a row of {self.count}")
        for i in range(self.count):
            if (<Column?>columns[i]).data_type != self.types[i] or (<Column>columns[i]).view.rows != rows:
                raise ValueError(f"column {i} is {columns[i]!r}, not {rows} rows of {self.types[i]}")
        views = <const ColumnView**>malloc((self.count + 1) * sizeof(ColumnView*))
        if views == NULL:
            raise MemoryError("no memory to encode a block of rows")
        try:
            for i in range(self.count):
                views[i] = &(<Column>columns[i]).view
            if rows * self.count < LONG_WORK:
                write_value_rows(&self.layout, views, rows, out)
            else:
                with nogil:
                    write_value_rows(&self.layout, views, rows, out)
        finally:
            free(views)
        return out.finish()

    cdef list read(self, BinaryColumn values, const uint8_t* wanted, bint absent_is_null):
        cdef list sinks = [ColumnBuilder(data_type) for data_type in self.types]
        cdef PyObject** borrowed = <PyObject**>malloc((self.count + 1) * sizeof(PyObject*))
        cdef ColumnBuilder sink
        cdef int i
        if borrowed == NULL:
            raise MemoryError("no memory to decode a block of rows")
        try:
            for i, sink in enumerate(sinks):
                borrowed[i] = <PyObject*>sink
            read_value_rows(&self.layout, borrowed, values, wanted, absent_is_null)
        finally:
            free(borrowed)
        return [sink.finish() if wanted == NULL or wanted[i] else None for i, sink in enumerate(sinks)]

    def encode(self, columns, *, rows=None) -> BinaryColumn:
        """The bytes of each row of `columns`. `rows` is needed only if there is no column.

        EncodingError for a value without an encoding (a date beyond int32 days, a time of day outside 24 hours).
        """
        cdef tuple taken = tuple([as_column(source) for source in columns])
        return self.write(taken, (len(taken[0]) if taken else 0) if rows is None else rows)

    def encode_row(self, row) -> bytes:
        """The bytes of one row of Python values."""
        columns = [Column.from_pylist([value], data_type) for value, data_type in zip(row, self.types, strict=True)]
        return self.encode(columns, rows=1)[0]

    def decode(self, values, indices=None, *, absent="error") -> list:
        """One pa.Array per type, or per index of `indices`, from the bytes of rows (BinaryColumn, Arrow binary).

        The rows may contain other columns: unrequested ones cost nothing, missing ones have their default. With
        absent="null" a null entry (no row under a key) decodes to a row of NULLs. EncodingError naming row, column and
        byte for anything that no encoder wrote, as far as the requested columns reach.
        """
        cdef BinaryColumn column = BinaryColumn.from_arrow(values)
        cdef const uint8_t[::1] wanted
        if absent not in ("error", "null"):
            raise ValueError(f"absent is 'error' or 'null', not {absent!r}")
        if indices is None:
            return self.read(column, NULL, absent == "null")
        mask = np.zeros(self.count + 1, dtype=np.uint8)
        mask[list(indices)] = 1
        wanted = mask
        arrays = self.read(column, &wanted[0], absent == "null")
        return [arrays[index] for index in indices]

    def decode_row(self, bytes value) -> tuple:
        """The Python values of one row."""
        arrays = self.decode(BinaryColumn.from_pylist([value]))
        return tuple([Column(array, data_type)[0] for array, data_type in zip(arrays, self.types)])

    def __reduce__(self):
        return ValueEncoder, (self.types, self.column_ids, self.defaults)
