"""Column: an Arrow array as pointers.

A kernel works on a `ColumnView` and never touches Python; the owner of a view keeps a reference to its Column. Row i of
a view is bit `offset + i` of the bitmaps and element i of the other pointers, so slices of larger arrays need no
further handling. The children of a STRUCT have its rows; the one child of a LIST has its elements, those of row i at
positions offsets[i] to offsets[i + 1]. The child values of a NULL row are undefined.
"""

from libc.stdint cimport int32_t, uint8_t

cdef enum Kind:                         # the values of relational.types.TypeKind
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
    BYTEA = 13
    JSONB = 14                          # canonical text
    STRUCT = 15
    LIST = 16

cdef enum:
    KINDS = 17
    LONG_WORK = 16_384                  # cells from which on releasing the GIL pays off (about 50 us)

cdef struct ColumnView:                 # borrowed from a Column
    int kind
    int scale                           # of NUMERIC, else 0
    Py_ssize_t rows
    Py_ssize_t offset                   # of row 0 in the bitmaps, in bits
    const uint8_t* validity             # bitmap, set = not NULL; NULL pointer: no row is NULL
    const uint8_t* values               # fixed width: the value of row 0; BOOLEAN: the bitmap; else unused
    const int32_t* offsets              # kinds with bytes, LIST: rows + 1 positions, the first need not be 0
    const uint8_t* data                 # kinds with bytes
    Py_ssize_t data_bytes               # kinds with bytes: readable ones from `data` on
    const ColumnView* const* children   # STRUCT, LIST
    int child_count


cdef inline bint bit_at(const uint8_t* bitmap, Py_ssize_t bit) noexcept nogil:
    return (bitmap[bit >> 3] >> (bit & 7)) & 1


cdef inline bint is_null(const ColumnView* view, Py_ssize_t row) noexcept nogil:
    return view.validity != NULL and not bit_at(view.validity, view.offset + row)


cdef inline bint has_bytes(int kind) noexcept nogil:
    """Whether values are byte strings of any length."""
    return kind == VARCHAR or kind == BYTEA or kind == JSONB


cdef inline bint is_nested(int kind) noexcept nogil:
    return kind >= STRUCT


cdef inline int width_of(int kind) noexcept nogil:
    """Bytes of a value of a fixed-width kind; 0 for BOOLEAN (bits), kinds with bytes, STRUCT and LIST."""
    if kind == SMALLINT:
        return 2
    if kind == INT or kind == REAL or kind == DATE:
        return 4
    if kind == NUMERIC or kind == INTERVAL:
        return 16
    return 0 if kind == BOOLEAN or has_bytes(kind) or is_nested(kind) else 8


cdef class Column:
    cdef readonly object array          # pa.Array of exactly `data_type.arrow`; owns every pointer of `view`
    cdef readonly object data_type      # DataType
    cdef readonly tuple children        # Columns of a STRUCT's fields or a LIST's elements; empty elsewhere
    cdef ColumnView view
    cdef const ColumnView** child_views # owned; of `children`

    cdef int point(self) except -1      # sets `view` from `array`
    cdef int point_at_children(self) except -1


cdef Column as_column(object source)    # a Column as it is, any Arrow array as a new one
cdef Column column_of(object array, object data_type)           # REQUIRES a pa.Array of exactly `data_type.arrow`
cdef Py_ssize_t bytes_of(const ColumnView* view, Py_ssize_t first, Py_ssize_t rows) noexcept nogil  # of those rows
cdef int check_mask(object mask, Py_ssize_t rows) except -1     # ValueError unless it is uint8[rows], contiguous
