"""Rows appended one by one or in blocks, and finished as a KvBatch."""

from hummock.base.key cimport Slice
from hummock.columnar.binary_column cimport BinaryColumnBuilder
from hummock.columnar.write_batch cimport KvBatch


cdef class BatchWriter:
    """Rows of a future KvBatch."""
    cdef BinaryColumnBuilder keys
    cdef BinaryColumnBuilder values

    cdef int put(self, Slice key, Slice value) except -1 nogil
    cdef int put_block(self, const Slice* keys, const Slice* values, Py_ssize_t rows) except -1 nogil
    # like `put` for many rows, NULL values as null; faster for keys and values scattered over memory
    cdef int copy_row(self, KvBatch source, Py_ssize_t row) except -1 nogil     # a null value stays null
    cdef int cut(self, Py_ssize_t rows) noexcept nogil      # keeps the first `rows`; REQUIRES none null so far
    cdef KvBatch finish(self)
