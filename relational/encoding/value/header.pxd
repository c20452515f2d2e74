"""The shape of a stored row: which columns it holds and where."""

from libc.stdint cimport int32_t, uint8_t

from relational.encoding.field cimport Field, Reason

cdef struct ColumnLocation:                      # of a wanted column in rows of one shape
    int column                          # its position among the row's columns, and its null bit; -1: not there
    int at                              # fixed width: byte of the row; else which of the ends is its own


cdef struct Shape:
    const uint8_t* start                # of a row that has it; borrowed
    Py_ssize_t bytes                    # of the shape itself; 0: a row without columns
    int columns
    int section                         # bytes of all columns of fixed width
    int variable                        # columns that have an end
    Py_ssize_t ends                     # byte of the row where the ends begin
    Py_ssize_t head                     # byte of the row where the data begins


cdef bytes shape_of(ids, widths)        # the shape of columns of ascending ids; width 0: it has an end

cdef Reason read_shape(
    const uint8_t* row, const uint8_t* stop, const Field* fields, const int32_t* ids, const int32_t* order, int count,
    Shape* shape, ColumnLocation* locations
) noexcept nogil
# fills `shape` from the beginning of a row, and the location of each field; `order`: the fields by ascending id
