"""ValueEncoder: rows as compact bytes, lossless and unordered."""

from libc.stdint cimport int32_t, uint8_t

from hummock.columnar.binary_column cimport BinaryColumn
from relational.encoding.field cimport RowFormat
from relational.encoding.value.batch cimport ValueLayout

cdef int[17] VALUE_BYTES               # of the payload of each kind; 0: depends on the value


cdef class ValueEncoder(RowFormat):
    cdef readonly tuple column_ids      # of each field
    cdef readonly tuple defaults        # the value of each field in rows that were written without it
    cdef readonly bytes shape           # the common prefix of all written rows
    cdef list default_bytes             # their payloads, owners of `default_at`; None: NULL
    cdef const uint8_t** default_at     # owned
    cdef Py_ssize_t* default_sizes      # owned
    cdef int32_t* ids                   # owned
    cdef int32_t* order                 # owned; the fields by ascending id
    cdef ValueLayout layout             # all of these, for the kernels

    cdef BinaryColumn write(self, tuple columns, Py_ssize_t rows)
    cdef list read(self, BinaryColumn values, const uint8_t* wanted, bint absent_is_null)
