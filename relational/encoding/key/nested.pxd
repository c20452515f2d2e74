"""Composed values in key form: STRUCT, LIST and JSONB."""

from libc.stdint cimport uint8_t

from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.chunk.column cimport ColumnView, JSONB
from relational.chunk.column_builder cimport ColumnBuilder
from relational.chunk.json cimport JsonText
from relational.encoding.field cimport Field


cdef inline bint is_composed(int kind) noexcept nogil:
    """Whether the kind is encoded value by value."""
    return kind >= JSONB


cdef int append_cell(const Field* field, const ColumnView* view, Py_ssize_t row, ByteBuffer out) except -1 nogil
# a Reason; appends the tag and the payload of a row of any kind

cdef int read_cell(
    const Field* field, ColumnBuilder sink, const uint8_t** cursor, const uint8_t* limit, JsonText json
) except -1 nogil
# a Reason; appends the value at the cursor to the builder and advances the cursor

cdef int close_groups(ByteBuffer out, Py_ssize_t start, uint8_t flip) except -1 nogil
# turns the bytes of `out` from `start` on into the payload of a string with these bytes
cdef void pass_flip_on(Field* field) noexcept nogil
# sets the tags of the fields inside a STRUCT or a LIST, and their inversion, which is that of the parent
