"""Rows to bytes and back, a block of rows and one column at a time. What the two encoders have in common."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t

from hummock.binary_column cimport BinaryColumn, BinaryColumnBuilder
from hummock.key cimport Slice
from relational.encoding.field cimport Field, ReadKernel, SizeKernel, WriteKernel


cdef class RowFormat:
    """The fields of a row and the kernels that write and read them."""
    cdef readonly tuple types           # DataType of each field
    cdef Field* fields                  # owned; len(types) of them
    cdef int count
    cdef SizeKernel add_sizes
    cdef WriteKernel write
    cdef ReadKernel read

    # The rows of the leading `columns`, each after the 6 bytes `table_id | vnode` unless table_id < 0. vnodes NULL:
    # vnode 0. EncodingError for a value without a form.
    cdef BinaryColumn write_rows(self, tuple columns, Py_ssize_t rows, int64_t table_id, const uint16_t* vnodes)

    # One pa.Array per field from the bytes of each row behind its first `skip`; where `slices` is NULL the rows are
    # those of `column`. `wanted[field]` 0: the field is passed over and its place in the list is None. NULL data (or
    # a null row of `column`): a row of NULLs if `absent_is_null`, else an EncodingError.
    cdef list read_rows(
        self, BinaryColumn column, const Slice* slices, Py_ssize_t rows, Py_ssize_t skip, bint absent_is_null,
        const uint8_t* wanted)
