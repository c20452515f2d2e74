"""Rows appended one by one or in blocks, and finished as a KvBatch."""

from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcpy

from hummock.columnar.binary_column cimport BinaryColumnBuilder


cdef class BatchWriter:
    """Collects rows; `finish` returns them as a KvBatch and starts a new one."""

    def __cinit__(self):
        self.keys, self.values = BinaryColumnBuilder(), BinaryColumnBuilder()

    cdef int put(self, Slice key, Slice value) except -1 nogil:
        self.keys.append(key)
        return self.values.append(value)

    cdef int put_block(self, const Slice* keys, const Slice* values, Py_ssize_t rows) except -1 nogil:
        append_block(self.keys, keys, rows)
        return append_block(self.values, values, rows)

    cdef int copy_row(self, KvBatch source, Py_ssize_t row) except -1 nogil:
        self.keys.append(source.keys.at(row))
        if source.values.is_null(row):
            return self.values.append_null()
        return self.values.append(source.values.at(row))

    cdef int cut(self, Py_ssize_t rows) noexcept nogil:
        if rows < self.keys.rows:
            self.keys.rows = self.values.rows = rows
            self.keys.data_bytes = self.keys.offsets[rows]
            self.values.data_bytes = self.values.offsets[rows]
        return 0

    cdef KvBatch finish(self):
        return KvBatch(self.keys.finish(), self.values.finish())


cdef int append_block(BinaryColumnBuilder out, const Slice* values, Py_ssize_t rows) except -1 nogil:
    """Appends `rows` values, NULL ones as null. The copies are in a separate loop, short enough for the processor to
    overlap many cache misses.
    """
    cdef Py_ssize_t row, size = 0, nulls = 0
    cdef uint8_t* target
    for row in range(rows):
        size += values[row].size
        nulls += values[row].data == NULL
    out.reserve(rows, size)
    if nulls or out.validity != NULL:
        for row in range(rows):
            if values[row].data == NULL:
                out.append_null()
            else:
                out.append(values[row])
        return 0
    target = out.data + out.data_bytes
    for row in range(rows):
        memcpy(target, values[row].data, <size_t>values[row].size)
        target += values[row].size
        out.offsets[out.rows + row + 1] = <int32_t>(target - out.data)
    out.rows += rows
    out.data_bytes += size
    return 0
