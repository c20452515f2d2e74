"""ColumnBuilder: the buffers that a decoder or an aggregate fills, row by row and without the GIL, to build a Column.

The writer reserves, then stores directly through the pointers and finally sets `rows`: `present[row]` is 1 or 0, the
value is written to `values` (one byte 0 or 1 for BOOLEAN; an int32 end position in `data` for kinds with bytes, or in
the child for LIST, at row + 1; nothing for STRUCT). NULL rows need a value too, any value; in each child of a STRUCT
every row does.
"""

from cpython.object cimport PyObject
from libc.stdint cimport uint8_t

from relational.chunk.column cimport Column


cdef class ColumnBuilder:
    cdef readonly object data_type      # DataType
    cdef int kind
    cdef int width                      # bytes of a value in `values`: 1 for BOOLEAN, 4 for ends, 0 for STRUCT
    cdef readonly Py_ssize_t rows       # written
    cdef Py_ssize_t nulls               # NULL rows among them; counted by the writer
    cdef Py_ssize_t data_size           # bytes written to `data`
    cdef uint8_t* present               # these three are pooled, owned, and moved by `reserve`
    cdef uint8_t* values
    cdef uint8_t* data                  # NULL unless the kind has bytes
    cdef Py_ssize_t capacity_rows
    cdef Py_ssize_t capacity_bytes      # of `data`
    cdef list parts                     # ColumnBuilders of the children of STRUCT and LIST
    cdef PyObject** children            # owned array of borrowed references to `parts`
    cdef int child_count

    cdef int reserve(self, Py_ssize_t rows, Py_ssize_t data_bytes) except -1 nogil  # capacity for that many MORE
    cdef int grow_rows(self, Py_ssize_t wanted) except -1 nogil
    cdef int grow_data(self, Py_ssize_t wanted) except -1 nogil
    cdef int append_null(self) except -1 nogil
    cdef int clear(self) noexcept nogil # discards the rows, keeps the memory
    cdef object finish(self)            # pa.Array; the builder is empty again
    cdef Column finish_column(self)


cdef object finish_rows(tuple builders, object schema)  # pa.RecordBatch of all of them, which are empty again
