"""ValueEncoder: rows as compact bytes, without loss and without order.

A row is its columns one after the other, each a tag (00 NULL, 01 value) and a little-endian payload, so a
reader that wants only some columns stops after the last of them. The first byte of a row is 0 or 1; 80 and
above is left to a form that names its columns by id.
"""

import numpy as np

from libc.stdint cimport uint8_t

from hummock.binary_column cimport BinaryColumn
from hummock.key cimport Slice
from relational.chunk.column cimport Column, KINDS, as_column
from relational.encoding.row_blocks cimport RowFormat
from relational.encoding.value_kernels cimport add_value_sizes, read_values, write_values

cdef int VALUE_BYTES[KINDS]             # tag and payload; 0: depends on the value
VALUE_BYTES[:] = [2, 3, 5, 9, 17, 5, 9, 0, 5, 9, 13, 9, 17]


cdef class ValueEncoder(RowFormat):
    """Rows of `types`."""

    def __init__(self, types):
        cdef int i
        self.add_sizes, self.write, self.read = add_value_sizes, write_values, read_values
        for i in range(self.count):
            self.fields[i].fixed_bytes = VALUE_BYTES[self.fields[i].kind]
            self.fields[i].value_tag = 1

    cdef BinaryColumn encode_columns(self, tuple columns, Py_ssize_t rows):
        return self.write_rows(columns, rows, -1, NULL)

    cdef list decode_slices(self, const Slice* values, Py_ssize_t rows, bint absent_is_null):
        return self.read_rows(None, values, rows, 0, absent_is_null, NULL)

    def encode(self, columns, *, rows=None) -> BinaryColumn:
        """The bytes of each row of `columns`. `rows` is needed only where there is no column.

        EncodingError for a value that has no form (a date beyond int32 days, a time of day outside 24 hours).
        """
        cdef tuple taken = tuple([as_column(source) for source in columns])
        if len(taken) != self.count:
            raise ValueError(f"{len(taken)} columns for a row of {self.count}")
        return self.encode_columns(taken, (len(taken[0]) if taken else 0) if rows is None else rows)

    def encode_row(self, row) -> bytes:
        """The bytes of one row of Python values."""
        columns = [Column.from_pylist([value], data_type) for value, data_type in zip(row, self.types, strict=True)]
        return self.encode(columns, rows=1)[0]

    def decode(self, values, indices=None, *, absent="error") -> list:
        """One pa.Array per type, or per index of `indices`, from the bytes of rows (BinaryColumn, Arrow binary).

        With absent="null" a null entry (nothing found under a key) gives a row of NULLs. EncodingError naming
        row, column and byte for anything that `encode` did not write, as far as the wanted columns reach.
        """
        cdef BinaryColumn column = BinaryColumn.from_arrow(values)
        cdef const uint8_t[::1] wanted
        if absent not in ("error", "null"):
            raise ValueError(f"absent is 'error' or 'null', not {absent!r}")
        if indices is None:
            return self.read_rows(column, NULL, column.rows, 0, absent == "null", NULL)
        mask = np.zeros(self.count + 1, dtype=np.uint8)
        mask[list(indices)] = 1
        wanted = mask
        arrays = self.read_rows(column, NULL, column.rows, 0, absent == "null", &wanted[0])
        return [arrays[index] for index in indices]

    def decode_row(self, bytes value) -> tuple:
        """The Python values of one row."""
        arrays = self.decode(BinaryColumn.from_pylist([value]))
        return tuple([Column(array, data_type)[0] for array, data_type in zip(arrays, self.types)])

    def __reduce__(self):
        return ValueEncoder, (self.types,)
