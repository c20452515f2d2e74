"""KeyEncoder: rows as bytes that compare as the rows do."""

from hummock.columnar.binary_column cimport BinaryColumn
from relational.encoding.field cimport RowFormat


cdef class KeyEncoder(RowFormat):
    cdef readonly tuple orders          # OrderType of each field
    cdef readonly Py_ssize_t fixed_bytes    # of a key without NULLs; -1: it depends on the values

    cdef list read(self, BinaryColumn keys, Py_ssize_t skip)
