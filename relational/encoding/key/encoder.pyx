"""KeyEncoder: rows as bytes that compare as the rows do.

For any two rows, comparing the keys as byte strings gives the order of the rows under the encoder's orders, and equal
keys mean rows equal in SQL's sense: -0.0 = 0.0, NaN = NaN and above all, 1 month = 30 days. A key decodes to an
SQL-equal row, not always to the same one: it may differ in floating-point numbers and intervals. No key is a prefix of
another of the same encoder, so a key of the leading columns is a prefix of exactly their rows.
"""

import numpy as np

from cpython.object cimport PyObject
from libc.stdint cimport uint16_t
from libc.stdlib cimport free, malloc

from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from hummock.columnar.write_batch cimport MAX_KEY_BYTES
from relational.chunk.column cimport Column, ColumnView, KINDS, as_column
from relational.chunk.column_builder cimport ColumnBuilder
from relational.encoding.field cimport Field, RowFormat
from relational.encoding.key.batch cimport read_key_rows, write_key_rows
from relational.encoding.key.nested cimport pass_flip_on

from relational.types import ASCENDING

MOST_KEY_BYTES = MAX_KEY_BYTES          # of a user key accepted by the store
cdef int KEY_BYTES[KINDS]               # tag and payload; 0: depends on the value
KEY_BYTES[:] = [2, 3, 5, 9, 0, 5, 9, 0, 5, 9, 13, 9, 17, 0, 0, 0, 0]


cdef const ColumnView* view_of(Column column, object data_type, Py_ssize_t rows, int column_index) except NULL:
    if column.data_type != data_type or column.view.rows != rows:
        raise ValueError(f"column {column_index} is {column!r}, not {rows} rows of {data_type}")
    return &column.view


cdef class KeyEncoder(RowFormat):
    """Keys of `types` in `orders` (default: ascending, NULLs last)."""

    def __init__(self, types, orders=None):
        cdef int i
        cdef Field* field
        self.plant(KEY_BYTES)
        self.orders = tuple(orders) if orders is not None else (ASCENDING,) * self.count
        if len(self.orders) != self.count:
            raise ValueError(f"{len(self.orders)} orders for {self.count} types")
        self.fixed_bytes = 0
        for i in range(self.count):
            field = &self.fields[i]
            field.flip = 0xFF if self.orders[i].descending else 0
            field.value_tag = (0 if self.orders[i].nulls_are_largest else 1) ^ field.flip
            field.null_tag = field.value_tag ^ 1
            pass_flip_on(field)
            if self.fixed_bytes >= 0:
                self.fixed_bytes = self.fixed_bytes + field.fixed_bytes if field.fixed_bytes > 0 else -1

    cdef list read(self, BinaryColumn keys, Py_ssize_t skip):
        cdef list sinks = [ColumnBuilder(data_type) for data_type in self.types]
        cdef PyObject** borrowed = <PyObject**>malloc((self.count + 1) * sizeof(PyObject*))
        cdef ColumnBuilder sink
        cdef int i
        if borrowed == NULL:
            raise MemoryError("no memory to decode a block of rows")
        try:
            for i, sink in enumerate(sinks):
                borrowed[i] = <PyObject*>sink
            read_key_rows(self.fields, self.count, borrowed, keys, skip)
        finally:
            free(borrowed)
        return [sink.finish() for sink in sinks]

    def encode(self, columns, *, table_id=None, vnodes=None, rows=None) -> BinaryColumn:
        """The key of each row of `columns` (of all types, or of the leading ones: prefixes of keys).

        With `table_id` each is a user key, `table_id u32 BE | vnode u16 BE | key`, with vnode 0 or those of `vnodes`
        (uint16[rows]). `rows` is needed only if there is neither a column nor vnodes. EncodingError for a value without
        a key (a date beyond int32 days, a time of day outside 24 hours).
        """
        cdef BinaryColumnBuilder out = BinaryColumnBuilder()
        cdef tuple taken = tuple([as_column(source) for source in columns])
        cdef const ColumnView** views
        cdef const uint16_t[::1] view
        cdef const uint16_t* numbers = NULL
        cdef int i, count = len(taken)
        if rows is None:
            rows = len(taken[0]) if taken else len(vnodes) if vnodes is not None else 0
        if table_id is not None and not 0 <= table_id <= 0xFFFFFFFF:
            raise ValueError(f"a table id is uint32, not {table_id}")
        if vnodes is not None:
            view = np.ascontiguousarray(vnodes, dtype=np.uint16)
            if view.shape[0] != rows:
                raise ValueError(f"{view.shape[0]} vnodes for {rows} rows")
            numbers = &view[0] if rows > 0 else NULL
        if count > self.count:
            raise ValueError(f"{count} columns for a row of {self.count}")
        views = <const ColumnView**>malloc((count + 1) * sizeof(ColumnView*))
        if views == NULL:
            raise MemoryError("no memory to encode a block of rows")
        try:
            for i in range(count):
                views[i] = view_of(taken[i], self.types[i], rows, i)
            write_key_rows(self.fields, views, count, rows, -1 if table_id is None else table_id, numbers, out)
        finally:
            free(views)
        return out.finish()

    def encode_row(self, row, *, table_id=None, vnode=0) -> bytes:
        """The key of one row of Python values, or of its leading ones."""
        columns = [Column.from_pylist([value], data_type) for value, data_type in zip(row, self.types)]
        if len(columns) != len(row):
            raise ValueError(f"{len(row)} values for a key of {self.count}")
        vnodes = None if table_id is None else np.array([vnode], dtype=np.uint16)
        return self.encode(columns, table_id=table_id, vnodes=vnodes, rows=1)[0]

    def decode(self, keys, Py_ssize_t skip=0) -> list:
        """One pa.Array per type from the keys (a BinaryColumn or Arrow binary), each after its first `skip` bytes.

        EncodingError naming row, column and byte for anything that `encode` did not write.
        """
        cdef BinaryColumn column = BinaryColumn.from_arrow(keys)
        return self.read(column, skip)

    def decode_row(self, bytes key, Py_ssize_t skip=0) -> tuple:
        """The Python values of one key."""
        arrays = self.decode(BinaryColumn.from_pylist([key]), skip)
        return tuple([Column(array, data_type)[0] for array, data_type in zip(arrays, self.types)])

    def __reduce__(self):
        return KeyEncoder, (self.types, self.orders)
