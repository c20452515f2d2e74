"""KeyEncoder: rows as bytes that compare as the rows do."""

from libc.stdint cimport int64_t, uint16_t

from hummock.binary_column cimport BinaryColumn
from hummock.key cimport Slice
from relational.encoding.row_blocks cimport RowFormat


cdef class KeyEncoder(RowFormat):
    cdef readonly tuple orders          # OrderType of each field
    cdef readonly Py_ssize_t fixed_bytes    # of a key without NULLs; -1: it depends on the values

    # No Python per row in either; see RowFormat.write_rows for the arguments
    cdef BinaryColumn encode_columns(self, tuple columns, Py_ssize_t rows, int64_t table_id, const uint16_t* vnodes)
    cdef list decode_slices(self, const Slice* keys, Py_ssize_t rows, Py_ssize_t skip)     # [pa.Array]
