"""Kernels that write and read one column of a block of rows in value form, and single values for their callers."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from relational.chunk.column cimport ColumnView
from relational.chunk.column_builder cimport ColumnBuilder
from relational.encoding.field cimport Field, Reason

cdef bint write_fixed(
    const Field* field, const ColumnView* view, Py_ssize_t start, Py_ssize_t count, uint8_t** rows, Py_ssize_t at,
    Py_ssize_t null_byte, uint8_t null_bit, Py_ssize_t* failed
) noexcept nogil
# the payload of each row at its offset `at`, or zeros and the null bit; False, and `failed`: a value without an
# encoding

cdef void write_texts(
    const ColumnView* view, Py_ssize_t start, Py_ssize_t count, uint8_t** rows, Py_ssize_t end_at, Py_ssize_t head,
    uint8_t** tails, Py_ssize_t null_byte, uint8_t null_bit
) noexcept nogil
# writes bytes at the tail of each row, which advances, and their end, relative to offset `head`

cdef Reason read_fixed(
    const Field* field, ColumnBuilder sink, Py_ssize_t count, const uint8_t** rows, Py_ssize_t at,
    Py_ssize_t null_byte, uint8_t null_bit, Py_ssize_t* failed
) noexcept nogil
# appends the value at offset `at` of each row, none truncated, to a builder with capacity

cdef void read_bytes(ColumnBuilder sink, Py_ssize_t count, const uint8_t** starts, const uint8_t** stops) noexcept nogil
# appends the bytes between each start (NULL: a NULL) and its stop; REQUIRES capacity for all, and SLACK after them

cdef bint put_one(const Field* field, const ColumnView* view, Py_ssize_t row, uint8_t* out) noexcept nogil
# the payload of a non-NULL value of a fixed-width kind; False for a value without an encoding

cdef Reason copy_one(const Field* field, const uint8_t* at, uint8_t* value) noexcept nogil
# converts a complete fixed-width payload to Arrow's form (a byte for BOOLEAN)

cdef bint is_plain(int kind) noexcept nogil     # whether the payload equals the value in memory
