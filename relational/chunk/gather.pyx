"""Rows of columns by their positions: the primitive of take, compact and joins.

Our own rather than pyarrow's, because a call through its compute registry costs more than gathering a small chunk.
"""

from cpython.object cimport PyObject
from libc.stdint cimport INT32_MAX, int32_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from relational.chunk.column cimport (
    Column, ColumnView, LIST, LONG_WORK, STRUCT, bit_at, has_bytes, is_null, width_of,
)
from relational.chunk.column_builder cimport ColumnBuilder
from relational.chunk.scalar cimport load32, load64, store32, store64

cdef enum:
    SHORT = 16              # bytes


cdef list gather(tuple columns, const int32_t* indices, Py_ssize_t rows):
    cdef list builders = [ColumnBuilder((<Column>column).data_type) for column in columns]
    cdef Py_ssize_t count = len(columns), i
    cdef PyObject** targets = <PyObject**>malloc((count + 1) * sizeof(PyObject*))       # borrowed
    cdef const ColumnView** views = <const ColumnView**>malloc((count + 1) * sizeof(ColumnView*))
    try:
        if targets == NULL or views == NULL:
            raise MemoryError(f"no memory to gather {count} columns")
        for i in range(count):
            targets[i], views[i] = <PyObject*>builders[i], &(<Column>columns[i]).view
        if rows * count < LONG_WORK // 2:
            gather_each(targets, views, count, indices, rows)
        else:
            with nogil:
                gather_each(targets, views, count, indices, rows)
    finally:
        free(targets)
        free(views)
    return [(<ColumnBuilder>builder).finish_column() for builder in builders]


cdef int gather_each(
    PyObject** builders, const ColumnView** views, Py_ssize_t count, const int32_t* indices, Py_ssize_t rows
) except -1 nogil:
    cdef Py_ssize_t i
    for i in range(count):
        gather_into(<ColumnBuilder>builders[i], views[i], indices, rows)
    return 0


cdef int gather_into(
    ColumnBuilder builder, const ColumnView* view, const int32_t* indices, Py_ssize_t rows
) except -1 nogil:
    """Fills an empty builder."""
    cdef int i
    builder.reserve(rows, spanned(view, indices, rows) + SHORT if has_bytes(view.kind) else 0)
    builder.nulls = gather_present(view, indices, rows, builder.present)
    if has_bytes(view.kind):
        builder.data_size = gather_strings(view, indices, rows, <int32_t*>builder.values, builder.data)
    elif view.kind == LIST:
        gather_lists(builder, view, indices, rows)
    elif view.kind == STRUCT:
        for i in range(view.child_count):
            gather_into(<ColumnBuilder>builder.children[i], view.children[i], indices, rows)
    else:
        gather_fixed(view, indices, rows, builder.values)
    builder.rows = rows
    return 0


cdef int gather_lists(
    ColumnBuilder builder, const ColumnView* view, const int32_t* indices, Py_ssize_t rows
) except -1 nogil:
    """Fills the ends of the lists, and the child with the elements of the non-NULL ones."""
    cdef Py_ssize_t total = spanned(view, indices, rows), row, at = 0
    cdef int32_t* ends = <int32_t*>builder.values
    cdef int32_t* elements = NULL
    cdef int32_t element
    if total <= INT32_MAX:
        elements = <int32_t*>malloc(<size_t>(total + 1) * sizeof(int32_t))
    if elements == NULL:
        with gil:
            raise MemoryError(f"no memory to gather {total} elements of lists")
    for row in range(rows):
        if builder.present[row]:
            for element in range(view.offsets[indices[row]], view.offsets[indices[row] + 1]):
                elements[at] = element
                at += 1
        ends[row + 1] = <int32_t>at
    try:
        gather_into(<ColumnBuilder>builder.children[0], view.children[0], elements, at)
    finally:
        free(elements)
    return 0


cdef Py_ssize_t spanned(const ColumnView* view, const int32_t* indices, Py_ssize_t rows) noexcept nogil:
    """The total bytes, or elements, between the offsets of the rows."""
    cdef Py_ssize_t row, total = 0
    for row in range(rows):
        if indices[row] >= 0:
            total += view.offsets[indices[row] + 1] - view.offsets[indices[row]]
    return total


cdef Py_ssize_t gather_present(
    const ColumnView* view, const int32_t* indices, Py_ssize_t rows, uint8_t* present
) noexcept nogil:
    """present[i] = row indices[i] exists and is not NULL; returns the number of those that are not."""
    cdef Py_ssize_t row, nulls = 0
    if view.validity == NULL:
        for row in range(rows):
            present[row] = indices[row] >= 0
            nulls += indices[row] < 0
        return nulls
    for row in range(rows):
        present[row] = indices[row] >= 0 and not is_null(view, indices[row])
        nulls += not present[row]
    return nulls


cdef void gather_fixed(
    const ColumnView* view, const int32_t* indices, Py_ssize_t rows, uint8_t* out
) noexcept nogil:
    cdef Py_ssize_t row
    cdef int width = width_of(view.kind)
    cdef const uint8_t* values = view.values
    if view.rows == 0:
        memset(out, 0, <size_t>(rows * (width if width else 1)))
    elif width == 8:
        for row in range(rows):
            store64(out + row * 8, load64(values + <Py_ssize_t>max(indices[row], 0) * 8))
    elif width == 4:
        for row in range(rows):
            store32(out + row * 4, load32(values + <Py_ssize_t>max(indices[row], 0) * 4))
    elif width:
        for row in range(rows):
            memcpy(out + row * width, values + <Py_ssize_t>max(indices[row], 0) * width, <size_t>width)
    else:
        for row in range(rows):
            out[row] = bit_at(values, view.offset + max(indices[row], 0))


cdef Py_ssize_t gather_strings(
    const ColumnView* view, const int32_t* indices, Py_ssize_t rows, int32_t* ends, uint8_t* out
) noexcept nogil:
    """ends[i + 1] = end of string i in `out`; returns the bytes written. REQUIRES capacity for all of them, and SHORT
    more: short strings are copied by a constant size.
    """
    cdef Py_ssize_t row, start, size, written = 0
    for row in range(rows):
        if indices[row] >= 0:
            start = view.offsets[indices[row]]
            size = view.offsets[indices[row] + 1] - start
            if size <= SHORT and start + SHORT <= view.data_bytes:
                memcpy(out + written, view.data + start, SHORT)
            else:
                memcpy(out + written, view.data + start, <size_t>size)
            written += size
        ends[row + 1] = <int32_t>written
    return written
