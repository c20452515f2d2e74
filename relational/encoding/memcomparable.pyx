"""KeyEncoder: rows as bytes that compare as the rows do.

For any two rows, comparing the keys as byte strings gives the order of the rows under the encoder's orders,
and equal keys mean rows equal in SQL's sense: -0.0 = 0.0, NaN = NaN and above all, 1 month = 30 days. A key
decodes to an SQL-equal row, not always to the same one; `is_lossy` names the types where it may differ. No key
begins another of the same encoder, so a key of the leading columns is a prefix of exactly their rows.
"""

import numpy as np

from libc.stdint cimport int64_t, uint16_t

from hummock.binary_column cimport BinaryColumn
from hummock.key cimport Slice
from relational.chunk.column cimport Column, KINDS, as_column
from relational.encoding.field cimport Field
from relational.encoding.key_reader cimport read_keys
from relational.encoding.key_writer cimport add_key_sizes, write_keys
from relational.encoding.row_blocks cimport RowFormat

from relational.types import ASCENDING, TypeKind

cdef int KEY_BYTES[KINDS]               # tag and payload; 0: depends on the value
KEY_BYTES[:] = [2, 3, 5, 9, 0, 5, 9, 0, 5, 9, 13, 9, 17]

cdef object LOSSY = frozenset((TypeKind.REAL, TypeKind.DOUBLE, TypeKind.INTERVAL))


def is_lossy(data_type) -> bool:
    """A key of this type may decode to another, SQL-equal value, so a table keeps the column in its value too.

    -0.0 and the NaNs, and intervals. NUMERIC is not: the scale is the type's, not the value's.
    """
    return data_type.kind in LOSSY


cdef class KeyEncoder(RowFormat):
    """Keys of `types` in `orders` (ascending, NULLs last, where left out)."""

    def __init__(self, types, orders=None):
        cdef int i
        cdef Field* field
        self.orders = tuple(orders) if orders is not None else (ASCENDING,) * self.count
        if len(self.orders) != self.count:
            raise ValueError(f"{len(self.orders)} orders for {self.count} types")
        self.add_sizes, self.write, self.read = add_key_sizes, write_keys, read_keys
        self.fixed_bytes = 0
        for i in range(self.count):
            field = &self.fields[i]
            field.fixed_bytes = KEY_BYTES[field.kind]
            field.flip = 0xFF if self.orders[i].descending else 0
            field.value_tag = (0 if self.orders[i].nulls_are_largest else 1) ^ field.flip
            field.null_tag = field.value_tag ^ 1
            if self.fixed_bytes >= 0:
                self.fixed_bytes = self.fixed_bytes + field.fixed_bytes if field.fixed_bytes > 0 else -1

    cdef BinaryColumn encode_columns(self, tuple columns, Py_ssize_t rows, int64_t table_id, const uint16_t* vnodes):
        return self.write_rows(columns, rows, table_id, vnodes)

    cdef list decode_slices(self, const Slice* keys, Py_ssize_t rows, Py_ssize_t skip):
        return self.read_rows(None, keys, rows, skip, False, NULL)

    def encode(self, columns, *, table_id=None, vnodes=None, rows=None) -> BinaryColumn:
        """The key of each row of `columns` (of all types, or of the leading ones: prefixes of keys).

        With `table_id` each is a user key, `table_id u32 BE | vnode u16 BE | key`, with vnode 0 or those of
        `vnodes` (uint16[rows]). `rows` is needed only where there is neither a column nor vnodes. EncodingError
        for a value without a key (a date beyond int32 days, a time of day outside 24 hours).
        """
        cdef tuple taken = tuple([as_column(source) for source in columns])
        cdef const uint16_t[::1] view
        cdef const uint16_t* numbers = NULL
        if rows is None:
            rows = len(taken[0]) if taken else len(vnodes) if vnodes is not None else 0
        if table_id is not None and not 0 <= table_id <= 0xFFFFFFFF:
            raise ValueError(f"a table id is uint32, not {table_id}")
        if vnodes is not None:
            view = np.ascontiguousarray(vnodes, dtype=np.uint16)
            if view.shape[0] != rows:
                raise ValueError(f"{view.shape[0]} vnodes for {rows} rows")
            numbers = &view[0] if rows > 0 else NULL
        return self.encode_columns(taken, rows, -1 if table_id is None else table_id, numbers)

    def encode_row(self, row, *, table_id=None, vnode=0) -> bytes:
        """The key of one row of Python values, or of its leading ones."""
        columns = [Column.from_pylist([value], data_type) for value, data_type in zip(row, self.types)]
        if len(columns) != len(row):
            raise ValueError(f"{len(row)} values for a key of {self.count}")
        vnodes = None if table_id is None else np.array([vnode], dtype=np.uint16)
        return self.encode(columns, table_id=table_id, vnodes=vnodes, rows=1)[0]

    def decode(self, keys, Py_ssize_t skip=0) -> list:
        """One pa.Array per type from the keys (a BinaryColumn or Arrow binary), each behind its first `skip` bytes.

        EncodingError naming row, column and byte for anything that `encode` did not write.
        """
        cdef BinaryColumn column = BinaryColumn.from_arrow(keys)
        return self.read_rows(column, NULL, column.rows, skip, False, NULL)

    def decode_row(self, bytes key, Py_ssize_t skip=0) -> tuple:
        """The Python values of one key."""
        arrays = self.decode(BinaryColumn.from_pylist([key]), skip)
        return tuple([Column(array, data_type)[0] for array, data_type in zip(arrays, self.types)])

    def __reduce__(self):
        return KeyEncoder, (self.types, self.orders)
