"""CellEncoder: rows as one entry per value, the older row format of a table."""

from libc.stdint cimport int32_t

from hummock.binary_column cimport BinaryColumn
from relational.encoding.field cimport RowFormat


cdef class CellEncoder(RowFormat):
    cdef readonly tuple column_ids      # of each field
    cdef int32_t* ids                   # owned
    cdef int32_t* order                 # owned; the fields by ascending id

    cdef tuple write(self, BinaryColumn keys, tuple columns)
    cdef tuple read(self, BinaryColumn keys, BinaryColumn values)
