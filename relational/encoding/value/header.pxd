"""The shape of a stored row: which columns it holds and where."""

from libc.stdint cimport int32_t, uint8_t

from relational.encoding.field cimport Field, Reason

cdef struct ColumnLocation:                      # of a requested column in rows of one shape
    int column                          # its index among the row's columns, and its null bit; -1: missing
    int at                              # fixed width: offset in the row; else the index of its end


cdef struct Shape:
    const uint8_t* start                # the shape in some row; borrowed
    Py_ssize_t bytes                    # of the shape itself; 0: a row without columns
    int columns
    int section                         # bytes of all fixed-width columns
    int variable                        # number of variable-width columns
    Py_ssize_t ends                     # offset of the ends in the row
    Py_ssize_t head                     # offset of the data in the row


cdef bytes shape_of(ids, widths)        # the shape of columns of ascending ids; width 0: variable

cdef Reason read_shape(
    const uint8_t* row, const uint8_t* stop, const Field* fields, const int32_t* ids, const int32_t* order, int count,
    Shape* shape, ColumnLocation* locations
) noexcept nogil
# fills `shape` from the start of a row, and the location of each field; `order`: the fields by ascending id
