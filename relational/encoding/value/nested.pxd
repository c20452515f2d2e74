"""Single values of any kind in value form, hence all of STRUCT and LIST."""

from libc.stdint cimport uint8_t

from relational.chunk.column cimport ColumnView
from relational.chunk.column_builder cimport ColumnBuilder
from relational.chunk.json cimport JsonText
from relational.encoding.field cimport Field

cdef Py_ssize_t payload_size(const Field* field, const ColumnView* view, Py_ssize_t row) noexcept nogil
# bytes of a non-NULL value

cdef uint8_t* write_payload(const Field* field, const ColumnView* view, Py_ssize_t row, uint8_t* out) noexcept nogil
# writes a non-NULL value; returns its end, NULL for a value without an encoding

cdef int read_cells(
    const Field* field, ColumnBuilder sink, Py_ssize_t count, const uint8_t** starts, const uint8_t** stops,
    JsonText json, Py_ssize_t* failed
) except -1 nogil
# a Reason, and the index of its value; appends the values that span exactly [start, stop), NULL where both are NULL
