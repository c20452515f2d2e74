"""A column of byte strings in Arrow's binary layout: the type of keys and values in all APIs of the store.

`BinaryColumn` is immutable and either borrows its memory from an Arrow producer or owns it; `BinaryColumnBuilder`
builds one. Columns are exported through the Arrow C Data Interface without a copy.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t

from hummock.base.key cimport Slice
from hummock.columnar.arrow_c cimport ArrowArray


cdef struct Memory:                     # shared by columns and exported arrays; freed with the last of them
    int64_t references                  # atomic; changed from any thread, with or without the GIL
    Py_ssize_t bytes                    # kept alive by this, as far as known
    ArrowArray imported                 # a producer's array; its `release` is NULL if the buffers are ours
    uint8_t* offsets                    # pooled
    Py_ssize_t offsets_bytes
    uint8_t* data                       # pooled
    Py_ssize_t data_bytes
    uint8_t* validity                   # pooled, or NULL
    Py_ssize_t validity_bytes


cdef class ColumnMemory:
    """One Python-side reference to a Memory."""
    cdef Memory* memory


cdef class BinaryColumn:
    cdef readonly Py_ssize_t rows
    cdef const int32_t* offsets         # rows + 1 positions in `data`; the first need not be 0
    cdef const uint8_t* data            # never NULL, even if every row is empty
    cdef const uint8_t* validity        # Arrow bitmap, bit set = present; NULL: no row is null
    cdef Py_ssize_t validity_offset     # bit of row 0 in `validity`, and number of offsets before `offsets[0]`
    cdef ColumnMemory owner             # keeps the memory above alive

    cdef inline Slice at(self, Py_ssize_t row) noexcept nogil:
        cdef Slice out
        out.data = self.data + self.offsets[row]
        out.size = self.offsets[row + 1] - self.offsets[row]
        return out

    cdef inline bint is_null(self, Py_ssize_t row) noexcept nogil:
        cdef Py_ssize_t bit
        if self.validity == NULL:
            return False
        bit = self.validity_offset + row
        return not (self.validity[bit >> 3] >> (bit & 7)) & 1

    cdef inline object bytes_at(self, Py_ssize_t row):      # None for a null
        cdef Slice found
        if self.is_null(row):
            return None
        found = self.at(row)
        return PyBytes_FromStringAndSize(<const char*>found.data, found.size)

    cpdef BinaryColumn slice(self, Py_ssize_t start, Py_ssize_t rows)   # shares the memory
    cdef BinaryColumn copy(self)                                        # the same rows in separate memory


cdef class BinaryColumnBuilder:
    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t data_bytes
    cdef int32_t* offsets               # pooled; capacity_rows + 1; NULL before the first `reserve`
    cdef uint8_t* data                  # pooled; capacity_bytes
    cdef uint8_t* validity              # NULL until the first null; (capacity_rows + 7) / 8 bytes
    cdef Py_ssize_t capacity_rows
    cdef Py_ssize_t capacity_bytes

    cdef int reserve(self, Py_ssize_t rows, Py_ssize_t data_bytes) except -1 nogil  # capacity for that many MORE
    cdef int append(self, Slice value) except -1 nogil      # OverflowError past 2 GiB - 1 of data
    cdef int append_null(self) except -1 nogil
    cdef int append_rows(self, const int32_t* offsets, const uint8_t* data, Py_ssize_t rows) except -1 nogil
    # values that follow one another in a column without nulls, copied at once. REQUIRES that none so far is null
    cdef int grow_rows(self, Py_ssize_t wanted) except -1 nogil
    cdef int grow_data(self, Py_ssize_t wanted) except -1 nogil
    cdef void release_buffers(self) noexcept nogil
    cdef BinaryColumn finish(self)                          # transfers the memory and resets the builder
