"""Column: an Arrow array as pointers, so that compiled modules read it without Python calls.

A column is immutable. It has exactly the Arrow layout of its type, and so have its children: large strings,
dictionaries, list views, other time units and chunked arrays are converted when the column is constructed.
"""

import numpy as np
import pyarrow as pa

from libc.stdint cimport int32_t, uint8_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from relational.chunk.arrow_export import array_from
from relational.chunk.arrow_import import in_layout
from relational.chunk.python_values import array_of_values, python_values
from relational.types import DataType

cdef uint64_t EACH = 0x0101010101010101
cdef uint64_t OWN_BIT = 0x8040201008040201
cdef uint64_t UP_TO_TOP = 0x7F7F7F7F7F7F7F7F
cdef uint8_t NOTHING = 0                # target of the pointers of columns without bytes
cdef int32_t NO_OFFSETS[1]
NO_OFFSETS[0] = 0
cdef dict PLAIN_TYPES = {               # id of an Arrow type without parameters -> DataType in whose layout it is
    data_type.arrow.id: data_type
    for data_type in (
        DataType.BOOLEAN, DataType.SMALLINT, DataType.INT, DataType.BIGINT, DataType.REAL, DataType.DOUBLE,
        DataType.VARCHAR, DataType.BYTEA, DataType.DATE,
    )
}
cdef dict TYPE_OF_ARROW = {}            # other Arrow type -> DataType of columns that are already in our layout


cdef object type_of(object arrow):
    """The DataType of an Arrow type that needs no conversion, else None."""
    data_type = PLAIN_TYPES.get(arrow.id)
    if data_type is not None:
        return data_type
    data_type = TYPE_OF_ARROW.get(arrow)
    if data_type is None:
        data_type = DataType.from_arrow(arrow)
        if data_type.arrow != arrow:
            return None
        if len(TYPE_OF_ARROW) < 1024:
            TYPE_OF_ARROW[arrow] = data_type
    return data_type


cdef Column as_column(object source):
    if isinstance(source, Column):
        return source
    return Column(source)


cdef Column column_of(object array, object data_type):
    cdef Column out = Column.__new__(Column)
    out.array, out.data_type = array, data_type
    out.point()
    return out


cdef int check_mask(object mask, Py_ssize_t rows) except -1:
    if not isinstance(mask, np.ndarray) or mask.dtype != np.uint8 or not mask.flags.c_contiguous:
        raise ValueError(f"a mask is a contiguous array of uint8, not {type(mask).__name__}")
    if mask.ndim != 1 or mask.shape[0] != rows:
        raise ValueError(f"a mask of {mask.shape} entries for {rows} rows")
    return 0


cdef const uint8_t* address_of(object buffer):
    return <const uint8_t*><uintptr_t>buffer.address if buffer is not None else &NOTHING


cdef Py_ssize_t bytes_of(const ColumnView* view, Py_ssize_t first, Py_ssize_t rows) noexcept nogil:
    """Bytes of `rows` rows from `first` on, bitmaps rounded up, as Arrow counts them; pyarrow gives up the GIL for it.
    """
    cdef Py_ssize_t out = 0
    cdef int child
    if view.validity != NULL:
        out = (rows + 7) >> 3
    if view.kind == STRUCT:
        for child in range(view.child_count):
            out += bytes_of(view.children[child], first, rows)
    elif view.kind == LIST:
        out += 4 * (rows + 1) + bytes_of(view.children[0], view.offsets[first],
                                         view.offsets[first + rows] - view.offsets[first])
    elif has_bytes(view.kind):
        out += 4 * (rows + 1) + view.offsets[first + rows] - view.offsets[first]
    elif view.kind == BOOLEAN:
        out += (rows + 7) >> 3
    else:
        out += rows * width_of(view.kind)
    return out


cdef class Column:
    """An immutable column of one type. `column.array` is the Arrow array, `len(column)` its rows."""

    def __init__(self, array, data_type=None):
        """A column over any object that implements Arrow's PyCapsule protocol; without `data_type` its type is that of
        the Arrow type.

        An array already in the layout is trusted: foreign arrays are converted by `arrow_import.imported`, as
        `DataChunk.from_arrow` does. InvalidValue if a value does not fit, BindError if there is no SQL type for the
        array's; TypeError for other objects.
        """
        array = array_from(array)
        arrow = array.type
        known = type_of(arrow) if not isinstance(array, pa.ChunkedArray) else None
        if known is None or (data_type is not None and known != data_type):
            data_type = data_type or DataType.from_arrow(arrow)
            array = in_layout(array, data_type)
        else:
            data_type = known
        self.array, self.data_type = array, data_type
        self.point()

    @staticmethod
    def from_pylist(values, data_type) -> Column:
        """One row per Python value, None for NULL. InvalidValue names the first row whose value is not of the type."""
        return Column(array_of_values(values, data_type), data_type)

    @staticmethod
    def nulls(data_type, rows) -> Column:
        """`rows` NULLs."""
        return Column(pa.nulls(rows, data_type.arrow))

    def __dealloc__(self):
        free(self.child_views)

    cdef int point(self) except -1:
        cdef ColumnView* view = &self.view
        cdef list buffers = self.array.buffers()
        memset(view, 0, sizeof(ColumnView))
        view.kind = self.data_type.kind
        view.scale = self.data_type.scale or 0
        view.rows = len(self.array)
        view.offset = self.array.offset
        if buffers[0] is not None and self.array.null_count > 0:
            view.validity = address_of(buffers[0])
        self.children = ()
        if is_nested(view.kind):
            self.point_at_children()
        if view.kind == STRUCT:
            return 0
        view.values = address_of(buffers[1])
        if has_bytes(view.kind) or view.kind == LIST:
            view.offsets = <const int32_t*>view.values + view.offset
            if view.rows == 0:
                view.offsets = NO_OFFSETS
            if view.kind != LIST:
                view.data = address_of(buffers[2])
                view.data_bytes = buffers[2].size if buffers[2] is not None else 0
        elif view.kind != BOOLEAN and buffers[1] is not None:
            view.values += view.offset * width_of(view.kind)
        return 0

    cdef int point_at_children(self) except -1:
        cdef Py_ssize_t i
        cdef int count
        if self.view.kind == LIST:
            self.children = (Column(self.array.values, self.data_type.element),)
        else:
            self.children = tuple([Column(self.array.field(i)) for i in range(len(self.data_type.fields))])
        count = len(self.children)
        self.child_views = <const ColumnView**>malloc(count * sizeof(ColumnView*))
        if self.child_views == NULL:
            raise MemoryError("no memory for the children of a column")
        for i in range(count):
            self.child_views[i] = &(<Column>self.children[i]).view
        self.view.children, self.view.child_count = self.child_views, count
        return 0

    @property
    def null_count(self) -> int:
        return self.array.null_count

    @property
    def nbytes(self) -> int:
        """Bytes of these rows in memory."""
        return bytes_of(&self.view, 0, self.view.rows)

    def slice(self, Py_ssize_t start, Py_ssize_t rows) -> Column:
        """Rows [start, start + rows), sharing the memory."""
        return column_of(self.array.slice(start, rows), self.data_type)

    def to_pylist(self) -> list:
        """The Python values: None for NULL, an Interval, canonical text for JSONB, a dict for a STRUCT."""
        return python_values(self.array.to_pylist(), self.data_type)

    def __arrow_c_schema__(self):
        """The Arrow PyCapsule protocol: the type of `array`."""
        return self.array.type.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema=None):
        """(schema, array) capsules that share this column's memory."""
        return self.array.__arrow_c_array__(requested_schema)

    def __len__(self) -> int:
        return self.view.rows

    def __getitem__(self, Py_ssize_t row):
        return python_values([self.array[row].as_py()], self.data_type)[0]

    def __repr__(self) -> str:
        return f"Column({self.data_type}, {self.view.rows} rows)"

    def __reduce__(self):
        return Column, (self.array, self.data_type)


def mask_of(Column column):
    """uint8[rows]: 1 where a BOOLEAN column is true. NULL counts as false."""
    if column.view.kind != BOOLEAN:
        raise ValueError(f"a condition is BOOLEAN, not {column.data_type}")
    mask = np.empty(column.view.rows, dtype=np.uint8)
    cdef uint8_t[::1] out = mask
    if column.view.rows == 0:
        return mask
    if column.view.rows < LONG_WORK:
        spread_true(&column.view, &out[0])
    else:
        with nogil:
            spread_true(&column.view, &out[0])
    return mask


cdef void spread_true(const ColumnView* view, uint8_t* out) noexcept nogil:
    """A byte for each bit: eight at a time from where a byte of the bitmap begins. That byte times EACH is in all bytes
    of a word, of which byte i keeps bit i; an addition carries it to the top of its byte, a shift makes it a 1.
    """
    cdef Py_ssize_t row = 0, at
    cdef uint64_t word
    cdef uint8_t bits
    while row < view.rows and (view.offset + row) & 7:
        out[row] = bit_at(view.values, view.offset + row) and not is_null(view, row)
        row += 1
    while row + 8 <= view.rows:
        at = (view.offset + row) >> 3
        bits = view.values[at] if view.validity == NULL else view.values[at] & view.validity[at]
        word = (bits * EACH) & OWN_BIT
        word = ((word + UP_TO_TOP) >> 7) & EACH
        memcpy(out + row, &word, 8)
        row += 8
    while row < view.rows:
        out[row] = bit_at(view.values, view.offset + row) and not is_null(view, row)
        row += 1
