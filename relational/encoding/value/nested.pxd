"""Single values of any kind in value form, and so all of STRUCT and LIST."""

from libc.stdint cimport uint8_t

from relational.chunk.column cimport ColumnView
from relational.chunk.column_builder cimport ColumnBuilder
from relational.chunk.json cimport JsonText
from relational.encoding.field cimport Field

cdef Py_ssize_t payload_size(const Field* field, const ColumnView* view, Py_ssize_t row) noexcept nogil
# bytes of a value that is not NULL

cdef uint8_t* write_payload(const Field* field, const ColumnView* view, Py_ssize_t row, uint8_t* out) noexcept nogil
# writes a value that is not NULL; returns what follows it, NULL for a value without a form

cdef int read_cells(
    const Field* field, ColumnBuilder sink, Py_ssize_t count, const uint8_t** starts, const uint8_t** stops,
    JsonText json, Py_ssize_t* failed
) except -1 nogil
# a Reason, and which of the values it is about; appends the values that are exactly [start, stop), NULL where both are
