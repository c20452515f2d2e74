"""CellEncoder and CellJoin: value rows as one entry per value, the older row format of a table, and back."""

from libc.stdint cimport int32_t, int64_t

from hummock.base.key cimport Slice
from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.encoding.value.encoder cimport ValueEncoder


cdef class CellEncoder:
    cdef readonly ValueEncoder rows     # what a row is before and after
    cdef readonly int count             # columns
    cdef int32_t* ids                   # owned; ascending
    cdef int32_t* widths                # owned; of each payload, 0: it has an end
    cdef int32_t* at                    # owned; where the payload lies in a row, or its number among those with ends
    cdef Py_ssize_t nulls               # byte of a row where its bitmap begins
    cdef Py_ssize_t ends                # where the ends begin
    cdef Py_ssize_t head                # where the payloads with ends begin

    cdef int cut(self, Slice row, Py_ssize_t number, Slice* parts) except -1 nogil  # parts[count]: payloads, NULL: NULL
    cdef int put_row(self, const Slice* parts, BinaryColumnBuilder out) except -1 nogil


cdef class CellJoin:
    cdef CellEncoder format
    cdef bint is_reverse
    cdef Slice* parts                   # owned; payloads of the row in hand, by ascending id
    cdef ByteBuffer key                 # of the row in hand
    cdef ByteBuffer held                # its payloads, once the batch that they came in is left
    cdef bint is_open                   # there is a row in hand
    cdef bint exists                    # its entry that says so was there
    cdef int32_t owner
    cdef int64_t last                   # the number of its entry before
    cdef BinaryColumnBuilder keys       # the rows that are whole
    cdef BinaryColumnBuilder values
    cdef ByteBuffer owners              # int32 of each

    cdef int add(self, BinaryColumn keys, BinaryColumn values, const int32_t* owners) except -1 nogil
    cdef int close_row(self) except -1 nogil
    cdef int hold(self) except -1
