"""Column: an Arrow array seen as pointers.

A kernel takes a `ColumnView` and never touches Python; whoever holds a view holds the Column it came from.
Row i of a view stands at bit `offset + i` of the bitmaps and at element i of the other pointers, so slices
of larger arrays need no further care.
"""

from libc.stdint cimport int32_t, uint8_t

cdef enum Kind:                         # the numbers of relational.types.TypeKind
    BOOLEAN = 0
    SMALLINT = 1
    INT = 2
    BIGINT = 3
    NUMERIC = 4
    REAL = 5
    DOUBLE = 6
    VARCHAR = 7
    DATE = 8
    TIME = 9
    TIMESTAMP = 10
    TIMESTAMPTZ = 11
    INTERVAL = 12

cdef enum:
    KINDS = 13
    LONG_WORK = 65_536                  # cells from which on a kernel is worth giving up the GIL (about 200 us)

cdef struct ColumnView:                 # borrowed from a Column
    int kind
    int scale                           # of NUMERIC, else 0
    Py_ssize_t rows
    Py_ssize_t offset                   # of row 0 in the bitmaps, in bits
    const uint8_t* validity             # bitmap, set = not NULL; NULL pointer: no row is NULL
    const uint8_t* values               # fixed width: the value of row 0; BOOLEAN: the bitmap; VARCHAR: unused
    const int32_t* offsets              # VARCHAR: rows + 1 positions in `data`, the first need not be 0
    const uint8_t* data                 # VARCHAR
    Py_ssize_t data_bytes               # VARCHAR: readable bytes from `data` on


cdef inline bint bit_at(const uint8_t* bitmap, Py_ssize_t bit) noexcept nogil:
    return (bitmap[bit >> 3] >> (bit & 7)) & 1


cdef inline bint is_null(const ColumnView* view, Py_ssize_t row) noexcept nogil:
    return view.validity != NULL and not bit_at(view.validity, view.offset + row)


cdef inline int width_of(int kind) noexcept nogil:
    """Bytes of a value of a fixed-width kind; 0 for BOOLEAN (bits) and VARCHAR."""
    if kind == SMALLINT:
        return 2
    if kind == INT or kind == REAL or kind == DATE:
        return 4
    if kind == NUMERIC or kind == INTERVAL:
        return 16
    return 0 if kind == BOOLEAN or kind == VARCHAR else 8


cdef class Column:
    cdef readonly object array          # pa.Array of exactly `data_type.arrow`; owns every pointer of `view`
    cdef readonly object data_type      # DataType
    cdef ColumnView view

    cdef int point(self) except -1      # fills `view` from `array`


cdef Column as_column(object source)    # a Column as it is, any Arrow array as a new one
cdef int check_mask(object mask, Py_ssize_t rows) except -1     # ValueError unless it is uint8[rows], contiguous
