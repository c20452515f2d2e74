"""Rows of a column by their positions: what take, compact and joins are made of.

Ours rather than pyarrow's because a call of its compute registry costs more than gathering a small chunk.
"""

from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcpy, memset

from relational.chunk.column cimport Column, ColumnView, LONG_WORK, VARCHAR, bit_at, is_null, width_of
from relational.chunk.column_builder cimport ColumnBuilder


cdef Column gather(Column column, const int32_t* indices, Py_ssize_t rows):
    cdef ColumnBuilder builder = ColumnBuilder(column.data_type)
    if rows < LONG_WORK:
        gather_into(builder, &column.view, indices, rows)
    else:
        with nogil:
            gather_into(builder, &column.view, indices, rows)
    return builder.finish_column()


cdef int gather_into(
    ColumnBuilder builder, const ColumnView* view, const int32_t* indices, Py_ssize_t rows
) except -1 nogil:
    builder.reserve(rows, gathered_bytes(view, indices, rows) if view.kind == VARCHAR else 0)
    builder.nulls = gather_present(view, indices, rows, builder.present)
    if view.kind == VARCHAR:
        builder.data_size = gather_strings(view, indices, rows, <int32_t*>builder.values, builder.data)
    else:
        gather_fixed(view, indices, rows, builder.values)
    builder.rows = rows
    return 0


cdef Py_ssize_t gathered_bytes(const ColumnView* view, const int32_t* indices, Py_ssize_t rows) noexcept nogil:
    cdef Py_ssize_t row, total = 0
    for row in range(rows):
        if indices[row] >= 0:
            total += view.offsets[indices[row] + 1] - view.offsets[indices[row]]
    return total


cdef Py_ssize_t gather_present(
    const ColumnView* view, const int32_t* indices, Py_ssize_t rows, uint8_t* present
) noexcept nogil:
    """present[i] = row indices[i] exists and is not NULL; returns how many are not."""
    cdef Py_ssize_t row, nulls = 0
    for row in range(rows):
        present[row] = indices[row] >= 0 and not is_null(view, indices[row])
        nulls += not present[row]
    return nulls


cdef void gather_fixed(
    const ColumnView* view, const int32_t* indices, Py_ssize_t rows, uint8_t* out
) noexcept nogil:
    cdef Py_ssize_t row, at
    cdef int width = width_of(view.kind)
    for row in range(rows):
        at = indices[row] if indices[row] >= 0 else 0
        if view.rows == 0:
            memset(out + row * (width if width else 1), 0, width if width else 1)
        elif width == 8:
            memcpy(out + row * 8, view.values + at * 8, 8)
        elif width == 4:
            memcpy(out + row * 4, view.values + at * 4, 4)
        elif width == 16:
            memcpy(out + row * 16, view.values + at * 16, 16)
        elif width == 2:
            memcpy(out + row * 2, view.values + at * 2, 2)
        else:
            out[row] = bit_at(view.values, view.offset + at)


cdef Py_ssize_t gather_strings(
    const ColumnView* view, const int32_t* indices, Py_ssize_t rows, int32_t* ends, uint8_t* out
) noexcept nogil:
    """ends[i + 1] = end of string i in `out`; returns the bytes written. REQUIRES room for all of them."""
    cdef Py_ssize_t row, start, size, written = 0
    for row in range(rows):
        if indices[row] >= 0:
            start = view.offsets[indices[row]]
            size = view.offsets[indices[row] + 1] - start
            memcpy(out + written, view.data + start, <size_t>size)
            written += size
        ends[row + 1] = <int32_t>written
    return written
