"""ValueEncoder: rows as compact bytes, without loss and without order."""

from libc.stdint cimport uint8_t

from hummock.binary_column cimport BinaryColumn
from hummock.key cimport Slice
from relational.encoding.row_blocks cimport RowFormat


cdef class ValueEncoder(RowFormat):
    # No Python per row in either; see RowFormat for the arguments
    cdef BinaryColumn encode_columns(self, tuple columns, Py_ssize_t rows)
    cdef list decode_slices(self, const Slice* values, Py_ssize_t rows, bint absent_is_null)    # [pa.Array]
