"""Kernels that write and read one column of a block of rows in value form, and single values for those around them."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from relational.chunk.column cimport ColumnView
from relational.chunk.column_builder cimport ColumnBuilder
from relational.encoding.field cimport Field, Reason

cdef bint write_fixed(
    const Field* field, const ColumnView* view, Py_ssize_t start, Py_ssize_t count, uint8_t** rows, Py_ssize_t at,
    Py_ssize_t null_byte, uint8_t null_bit, Py_ssize_t* failed
) noexcept nogil
# the payload of each row at byte `at` of it, or zeros and the null bit; False, and `failed`: a value without a form

cdef void write_texts(
    const ColumnView* view, Py_ssize_t start, Py_ssize_t count, uint8_t** rows, Py_ssize_t end_at, Py_ssize_t head,
    uint8_t** tails, Py_ssize_t null_byte, uint8_t null_bit
) noexcept nogil
# bytes at the tail of each row, which moves behind them, and their end, counted from byte `head`

cdef Reason read_fixed(
    const Field* field, ColumnBuilder sink, Py_ssize_t count, const uint8_t** rows, Py_ssize_t at,
    Py_ssize_t null_byte, uint8_t null_bit, Py_ssize_t* failed
) noexcept nogil
# appends the value at byte `at` of each row, none truncated, to a builder with capacity

cdef void read_bytes(ColumnBuilder sink, Py_ssize_t count, const uint8_t** starts, const uint8_t** stops) noexcept nogil
# appends the bytes between each start (NULL: a NULL) and its stop; REQUIRES room for all and SLACK behind

cdef bint put_one(const Field* field, const ColumnView* view, Py_ssize_t row, uint8_t* out) noexcept nogil
# the payload of a value that is not NULL of a kind of fixed width; False for a value that has no form

cdef Reason take_one(const Field* field, const uint8_t* at, uint8_t* value) noexcept nogil
# a payload of fixed width, all of which is there, into Arrow's form (a byte for BOOLEAN)

cdef bint is_plain(int kind) noexcept nogil     # the payload is the value as in memory
