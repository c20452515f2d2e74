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


cdef struct Part:
    const ColumnView** views            # of its columns
    const int32_t* indices
    Py_ssize_t rows


cdef list gather(list sources):
    cdef Py_ssize_t count = len(<tuple>sources[0][0]), parts = len(sources), rows = 0, i, part
    cdef list builders = [ColumnBuilder((<Column>column).data_type) for column in sources[0][0]]
    cdef PyObject** targets = <PyObject**>malloc((count + 1) * sizeof(PyObject*))       # borrowed
    cdef const ColumnView** views = <const ColumnView**>malloc((count * parts + 1) * sizeof(ColumnView*))
    cdef Part* taken = <Part*>malloc(parts * sizeof(Part))
    cdef const int32_t[::1] indices
    try:
        if targets == NULL or views == NULL or taken == NULL:
            raise MemoryError(f"no memory to gather {count} columns of {parts} chunks")
        for i in range(count):
            targets[i] = <PyObject*>builders[i]
        for part in range(parts):
            indices = sources[part][1]
            taken[part].views, taken[part].rows = views + part * count, indices.shape[0]
            taken[part].indices = &indices[0] if indices.shape[0] > 0 else NULL
            rows += indices.shape[0]
            for i in range(count):
                taken[part].views[i] = &(<Column>(<tuple>sources[part][0])[i]).view
        if rows * count < LONG_WORK // 2:
            gather_each(targets, count, taken, parts, rows)
        else:
            with nogil:
                gather_each(targets, count, taken, parts, rows)
    finally:
        free(targets)
        free(views)
        free(taken)
    return [(<ColumnBuilder>builder).finish_column() for builder in builders]


cdef int gather_each(
    PyObject** builders, Py_ssize_t count, const Part* parts, Py_ssize_t part_count, Py_ssize_t rows
) except -1 nogil:
    cdef Py_ssize_t i, part, total
    for i in range(count):
        total = 0
        if has_bytes((<ColumnBuilder>builders[i]).kind):
            for part in range(part_count):
                total += spanned(parts[part].views[i], parts[part].indices, parts[part].rows) + SHORT
        (<ColumnBuilder>builders[i]).reserve(rows, total)
        for part in range(part_count):
            append_rows(<ColumnBuilder>builders[i], parts[part].views[i], parts[part].indices, parts[part].rows)
    return 0


cdef int append_rows(
    ColumnBuilder builder, const ColumnView* view, const int32_t* indices, Py_ssize_t rows
) except -1 nogil:
    cdef Py_ssize_t first = builder.rows
    cdef int i
    builder.reserve(rows, spanned(view, indices, rows) + SHORT if has_bytes(view.kind) else 0)
    builder.nulls += gather_present(view, indices, rows, builder.present + first)
    if has_bytes(view.kind):
        builder.data_size = gather_strings(
            view, indices, rows, <int32_t*>builder.values + first, builder.data, builder.data_size
        )
    elif view.kind == LIST:
        gather_lists(builder, view, indices, rows)
    elif view.kind == STRUCT:
        for i in range(view.child_count):
            append_rows(<ColumnBuilder>builder.children[i], view.children[i], indices, rows)
    else:
        gather_fixed(view, indices, rows, builder.values + first * builder.width)
    builder.rows += rows
    return 0


cdef int gather_lists(
    ColumnBuilder builder, const ColumnView* view, const int32_t* indices, Py_ssize_t rows
) except -1 nogil:
    """Appends the ends of the lists, and to the child the elements of the non-NULL ones."""
    cdef Py_ssize_t total = spanned(view, indices, rows), row, at = 0
    cdef Py_ssize_t before = (<ColumnBuilder>builder.children[0]).rows
    cdef int32_t* ends = <int32_t*>builder.values + builder.rows
    cdef int32_t* elements
    cdef int32_t element
    if before + total > INT32_MAX:
        with gil:
            raise OverflowError(f"a column of lists ends at {INT32_MAX} elements, not {before + total}")
    elements = <int32_t*>malloc(<size_t>(total + 1) * sizeof(int32_t))
    if elements == NULL:
        with gil:
            raise MemoryError(f"no memory to gather {total} elements of lists")
    for row in range(rows):
        if builder.present[builder.rows + row]:
            for element in range(view.offsets[indices[row]], view.offsets[indices[row] + 1]):
                elements[at] = element
                at += 1
        ends[row + 1] = <int32_t>(before + at)
    try:
        append_rows(<ColumnBuilder>builder.children[0], view.children[0], elements, at)
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
    const ColumnView* view, const int32_t* indices, Py_ssize_t rows, int32_t* ends, uint8_t* out, Py_ssize_t written
) noexcept nogil:
    """Appends to the `written` bytes of `out`; ends[i + 1] = end of string i there. Returns the bytes written. REQUIRES
    capacity for all of them, and SHORT more: short strings are copied by a constant size.
    """
    cdef Py_ssize_t row, start, size
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
