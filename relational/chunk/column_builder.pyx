"""ColumnBuilder: grows one column in pooled memory and hands it to Arrow without a copy.

NULLs and booleans are bytes while the column grows, because a decoder then stores without a read, and are
packed into bitmaps at the end.
"""

import pyarrow as pa

from libc.stdint cimport INT32_MAX, int32_t, uint8_t, uint64_t
from libc.string cimport memcpy

from hummock.byte_buffer cimport ByteBuffer
from relational.chunk.column cimport BOOLEAN, Column, VARCHAR, as_column, width_of


cdef void pack_bits(const uint8_t* flags, Py_ssize_t rows, uint8_t* bitmap) noexcept nogil:
    """bitmap bit i = flags[i], which is 0 or 1; `bitmap` has (rows + 7) / 8 bytes."""
    cdef Py_ssize_t group, whole = rows >> 3, row
    cdef uint64_t eight
    for group in range(whole):
        memcpy(&eight, flags + 8 * group, 8)
        bitmap[group] = <uint8_t>((eight * <uint64_t>0x0102040810204080) >> 56)
    if rows & 7:
        bitmap[whole] = 0
        for row in range(8 * whole, rows):
            bitmap[whole] |= <uint8_t>(flags[row] << (row & 7))


cdef ByteBuffer packed(const uint8_t* flags, Py_ssize_t rows):
    cdef ByteBuffer bitmap = ByteBuffer()
    bitmap.reserve((rows + 7) >> 3)
    pack_bits(flags, rows, bitmap.data)
    bitmap.size = (rows + 7) >> 3
    return bitmap


cdef class ColumnBuilder:
    """One column being written. `finish()` gives the array and leaves the builder empty."""

    def __cinit__(self, data_type):
        self.data_type = data_type
        self.kind = data_type.kind
        self.width = 1 if self.kind == BOOLEAN else 4 if self.kind == VARCHAR else width_of(self.kind)
        self.start()

    cdef int start(self) except -1:
        self.present_buffer, self.value_buffer, self.data_buffer = ByteBuffer(), ByteBuffer(), ByteBuffer()
        self.rows = self.nulls = self.data_size = 0
        self.present = self.values = self.data = NULL
        return 0

    cdef int reserve(self, Py_ssize_t rows, Py_ssize_t data_bytes) except -1 nogil:
        cdef Py_ssize_t first = 1 if self.kind == VARCHAR else 0    # a column of n strings has n + 1 positions
        if self.kind == VARCHAR and self.data_size + data_bytes > INT32_MAX:
            with gil:
                raise OverflowError(f"a column of strings ends at 2 GiB - 1, not {self.data_size + data_bytes}")
        self.present_buffer.size = self.rows
        self.present_buffer.reserve(rows)
        self.present = self.present_buffer.data
        self.value_buffer.size = (self.rows + first) * self.width if self.values != NULL else 0
        self.value_buffer.reserve((rows + first) * self.width)
        if self.values == NULL and first:
            (<int32_t*>self.value_buffer.data)[0] = 0
        self.values = self.value_buffer.data
        if self.kind == VARCHAR:
            self.data_buffer.size = self.data_size
            self.data_buffer.reserve(data_bytes)
            self.data = self.data_buffer.data
        return 0

    cdef int append_null(self) except -1 nogil:
        cdef int i
        self.reserve(1, 0)
        self.present[self.rows] = 0
        if self.kind == VARCHAR:
            (<int32_t*>self.values)[self.rows + 1] = <int32_t>self.data_size
        else:
            for i in range(self.width):
                self.values[self.rows * self.width + i] = 0
        self.rows += 1
        self.nulls += 1
        return 0

    cdef object finish(self):
        cdef list buffers
        self.reserve(0, 0)
        buffers = [None]
        if self.nulls > 0:
            buffers[0] = pa.py_buffer(packed(self.present, self.rows))
        if self.kind == BOOLEAN:
            buffers.append(pa.py_buffer(packed(self.values, self.rows)))
        else:
            self.value_buffer.size = (self.rows + (1 if self.kind == VARCHAR else 0)) * self.width
            buffers.append(pa.py_buffer(self.value_buffer))
        if self.kind == VARCHAR:
            self.data_buffer.size = self.data_size
            buffers.append(pa.py_buffer(self.data_buffer))
        array = pa.Array.from_buffers(self.data_type.arrow, self.rows, buffers, self.nulls)
        self.start()
        return array

    cdef Column finish_column(self):
        return as_column(self.finish())
