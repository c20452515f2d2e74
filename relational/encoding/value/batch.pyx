"""Encodes rows to value bytes and decodes them, a block of rows and one column at a time.

A block is small enough that its cursors and its bytes stay in the L1 cache while the columns are processed one after
the other, so each inner loop handles one type and memory is still traversed once. Rows that were written under one
schema share their shape, so a reader parses the shape once per run of such rows.
"""

from cpython.object cimport PyObject
from libc.stdint cimport INT32_MAX, int32_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from hummock.base.key cimport Slice
from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from relational.chunk.column cimport ColumnView, LONG_WORK, has_bytes, is_null
from relational.chunk.column_builder cimport ColumnBuilder
from relational.chunk.json cimport JsonText
from relational.chunk.scalar cimport load32, store32, store64
from relational.encoding.field cimport (
    ABSENT, BLOCK_ROWS, FINE, Field, OUT_OF_RANGE, Reason, SLACK, TRAILING, TRUNCATED, bitmap_bytes,
    raise_encoding,
)
from relational.encoding.value.header cimport ColumnLocation, Shape, read_shape
from relational.encoding.value.kernels cimport read_fixed, write_fixed, write_texts
from relational.encoding.value.nested cimport payload_size, read_cells, write_payload


cdef struct Written:                    # the current block
    Py_ssize_t start
    Py_ssize_t count
    Py_ssize_t nulls                    # offset of a row's null bitmap
    Py_ssize_t fixed                    # offset of the fixed-width payloads
    Py_ssize_t head                     # offset of the other payloads
    Py_ssize_t sizes[BLOCK_ROWS]
    uint8_t* rows[BLOCK_ROWS]
    uint8_t* tails[BLOCK_ROWS]          # where the next payload is written


cdef int write_value_rows(
    const ValueLayout* format, const ColumnView** views, Py_ssize_t rows, BinaryColumnBuilder out
) except -1 nogil:
    cdef Written block
    cdef Py_ssize_t total
    cdef int i, section = 0, ends = 0
    for i in range(format.count):
        section += format.fields[i].fixed_bytes
        ends += format.fields[i].fixed_bytes == 0
    block.nulls = format.shape_bytes
    block.fixed = format.shape_bytes + bitmap_bytes(format.count)
    block.head = block.fixed + section + 4 * ends
    block.start = 0
    out.reserve(rows, min(estimate(format, views, rows, &block), <Py_ssize_t>INT32_MAX))
    while block.start < rows:
        block.count = min(<Py_ssize_t>BLOCK_ROWS, rows - block.start)
        total = size_rows(format, views, &block)
        if out.data_bytes + total > INT32_MAX:
            with gil:
                raise OverflowError(f"row {block.start}: a column of bytes ends at 2 GiB - 1")
        out.reserve(block.count, total + SLACK)
        locate_rows(&block, out)
        put_shapes(&block, format.shape, format.shape_bytes)
        write_columns(format, views, &block, section)
        block.start += block.count
    return 0


cdef Py_ssize_t estimate(
    const ValueLayout* format, const ColumnView** views, Py_ssize_t rows, const Written* block
) noexcept nogil:
    """An estimate of the bytes of the rows, as far as it is cheap."""
    cdef Py_ssize_t total = rows * block.head + SLACK
    cdef int i
    for i in range(format.count):
        if has_bytes(format.fields[i].kind):
            total += views[i].offsets[rows] - views[i].offsets[0]
    return total


cdef Py_ssize_t size_rows(const ValueLayout* format, const ColumnView** views, Written* block) noexcept nogil:
    """Fills `sizes`; returns their sum."""
    cdef Py_ssize_t row, total = 0
    cdef int i
    for row in range(block.count):
        block.sizes[row] = block.head
    for i in range(format.count):
        if has_bytes(format.fields[i].kind):
            add_text_sizes(views[i], block)
        elif not format.fields[i].fixed_bytes:
            for row in range(block.count):
                if not is_null(views[i], block.start + row):
                    block.sizes[row] += payload_size(&format.fields[i], views[i], block.start + row)
    for row in range(block.count):
        total += block.sizes[row]
    return total


cdef void add_text_sizes(const ColumnView* view, Written* block) noexcept nogil:
    cdef const int32_t* offsets = view.offsets + block.start
    cdef Py_ssize_t row
    for row in range(block.count):
        if not is_null(view, block.start + row):
            block.sizes[row] += offsets[row + 1] - offsets[row]


cdef void locate_rows(Written* block, BinaryColumnBuilder out) noexcept nogil:
    """Appends the ends of the rows to `out` and sets the cursors."""
    cdef int32_t* ends = out.offsets + out.rows + 1
    cdef uint8_t* data = out.data
    cdef Py_ssize_t at = out.data_bytes, row
    for row in range(block.count):
        block.rows[row] = data + at
        block.tails[row] = data + at + block.head
        at += block.sizes[row]
        ends[row] = <int32_t>at
    out.data_bytes = at
    out.rows += block.count


cdef void put_shapes(const Written* block, const uint8_t* shape, Py_ssize_t shape_bytes) noexcept nogil:
    """Writes the shape and an empty bitmap, rows ascending, so that the next row overwrites a short row's slack."""
    cdef uint64_t low = 0, high = 0
    cdef Py_ssize_t row
    if block.fixed <= 16:
        memcpy(&low, shape, <size_t>min(shape_bytes, <Py_ssize_t>8))
        if shape_bytes > 8:
            memcpy(&high, shape + 8, <size_t>(shape_bytes - 8))
        if block.fixed <= 8:
            for row in range(block.count):
                store64(block.rows[row], low)
        else:
            for row in range(block.count):
                store64(block.rows[row], low)
                store64(block.rows[row] + 8, high)
        return
    for row in range(block.count):
        memcpy(block.rows[row], shape, <size_t>shape_bytes)
        memset(block.rows[row] + shape_bytes, 0, <size_t>(block.fixed - shape_bytes))


cdef int write_columns(
    const ValueLayout* format, const ColumnView** views, Written* block, int section
) except -1 nogil:
    cdef Py_ssize_t at = block.fixed, end = block.fixed + section, failed = -1, null_byte
    cdef const Field* field
    cdef uint8_t null_bit
    cdef int position, i
    for position in range(format.count):
        i = format.order[position]
        field = &format.fields[i]
        null_byte, null_bit = block.nulls + (position >> 3), <uint8_t>(1 << (position & 7))
        if field.fixed_bytes:
            if not write_fixed(
                field, views[i], block.start, block.count, block.rows, at, null_byte, null_bit, &failed
            ):
                raise_encoding(OUT_OF_RANGE, block.start + failed, i, -1)
            at += field.fixed_bytes
            continue
        if has_bytes(field.kind):
            write_texts(
                views[i], block.start, block.count, block.rows, end, block.head, block.tails, null_byte, null_bit
            )
        else:
            failed = write_nested(field, views[i], block, end, null_byte, null_bit)
            if failed >= 0:
                raise_encoding(OUT_OF_RANGE, block.start + failed, i, -1)
        end += 4
    return 0


cdef Py_ssize_t write_nested(
    const Field* field, const ColumnView* view, Written* block, Py_ssize_t end, Py_ssize_t null_byte, uint8_t null_bit
) noexcept nogil:
    """-1, or the row of the block whose value has no encoding."""
    cdef Py_ssize_t row
    for row in range(block.count):
        if is_null(view, block.start + row):
            block.rows[row][null_byte] |= null_bit
        else:
            block.tails[row] = write_payload(field, view, block.start + row, block.tails[row])
            if block.tails[row] == NULL:
                return row
        store32(block.rows[row] + end, <int32_t>(block.tails[row] - block.rows[row] - block.head))
    return -1


cdef struct Read:                       # consecutive rows of one shape
    Py_ssize_t start
    Py_ssize_t count
    Shape shape
    ColumnLocation* locations                       # of each field
    const uint8_t* rows[BLOCK_ROWS]
    const uint8_t* stops[BLOCK_ROWS]
    const uint8_t* cells[BLOCK_ROWS]    # of one column; NULL: a NULL
    const uint8_t* cell_stops[BLOCK_ROWS]


cdef int read_value_rows(
    const ValueLayout* format, PyObject** sinks, BinaryColumn values, const uint8_t* wanted, bint absent_is_null
) except -1:
    cdef Read* part = <Read*>malloc(sizeof(Read))
    cdef ColumnLocation* locations = <ColumnLocation*>malloc((format.count + 1) * sizeof(ColumnLocation))
    cdef JsonText json = JsonText()
    try:
        if part == NULL or locations == NULL:
            raise MemoryError("no memory to decode a block of rows")
        part.locations = locations
        if values.rows * format.count < LONG_WORK:
            read_parts(format, sinks, values, wanted, absent_is_null, part, json)
        else:
            with nogil:
                read_parts(format, sinks, values, wanted, absent_is_null, part, json)
    finally:
        free(part)
        free(locations)
    return 0


cdef int read_parts(
    const ValueLayout* format, PyObject** sinks, BinaryColumn values, const uint8_t* wanted, bint absent_is_null,
    Read* part, JsonText json
) except -1 nogil:
    cdef int i
    for i in range(format.count):
        if wanted == NULL or wanted[i]:
            (<ColumnBuilder>sinks[i]).reserve(values.rows, 0)
    part.start = 0
    part.shape.start = NULL
    while part.start < values.rows:
        if values.is_null(part.start):
            if not absent_is_null:
                raise_encoding(ABSENT, part.start, -1, -1)
            for i in range(format.count):
                if wanted == NULL or wanted[i]:
                    (<ColumnBuilder>sinks[i]).append_null()
            part.start += 1
            continue
        read_part(format, values, part)
        for i in range(format.count):
            if wanted == NULL or wanted[i]:
                read_column(format, i, <ColumnBuilder>sinks[i], part, json)
        part.start += part.count
    return 0


cdef int read_part(const ValueLayout* format, BinaryColumn values, Read* part) except -1 nogil:
    """Selects the rows from `start` on with one shape, at most a block, and checks their lengths."""
    cdef Slice row = values.at(part.start)
    cdef Reason reason
    cdef Py_ssize_t most = min(<Py_ssize_t>BLOCK_ROWS, values.rows - part.start), last
    if part.shape.start == NULL or not has_shape(&part.shape, row):
        reason = read_shape(
            row.data, row.data + row.size, format.fields, format.ids, format.order, format.count, &part.shape,
            part.locations)
        if reason != FINE:
            part.shape.start = NULL
            raise_encoding(reason, part.start, -1, 0)
    part.count = 0
    while True:
        if row.size < part.shape.head:
            raise_encoding(TRUNCATED, part.start + part.count, -1, row.size)
        last = part.shape.head
        if part.shape.variable:
            last += load32(row.data + part.shape.head - 4)
        if last != row.size:
            raise_encoding(TRAILING if last < row.size else TRUNCATED, part.start + part.count, -1, row.size)
        part.rows[part.count] = row.data
        part.stops[part.count] = row.data + row.size
        part.count += 1
        if part.count == most or values.is_null(part.start + part.count):
            return 0
        row = values.at(part.start + part.count)
        if not has_shape(&part.shape, row):
            return 0


cdef inline bint has_shape(const Shape* shape, Slice row) noexcept nogil:
    cdef Py_ssize_t i
    if row.size < shape.bytes or (shape.bytes == 0) != (row.size == 0):
        return False
    if shape.bytes > 8:
        return memcmp(row.data, shape.start, <size_t>shape.bytes) == 0
    for i in range(shape.bytes):
        if row.data[i] != shape.start[i]:
            return False
    return True


cdef int read_column(const ValueLayout* format, int i, ColumnBuilder sink, Read* part, JsonText json) except -1 nogil:
    cdef const Field* field = &format.fields[i]
    cdef ColumnLocation* location = &part.locations[i]
    cdef Py_ssize_t failed = -1
    cdef int reason = FINE
    if location.column < 0:
        add_defaults(format, i, sink, part, json)
        return 0
    if field.fixed_bytes:
        sink.reserve(part.count, 0)
        reason = read_fixed(
            field, sink, part.count, part.rows, location.at, part.shape.bytes + (location.column >> 3),
            <uint8_t>(1 << (location.column & 7)), &failed)
        if reason != FINE:
            raise_encoding(<Reason>reason, part.start + failed, i, location.at)
        return 0
    failed = find_cells(part, location)
    if failed >= 0:
        raise_encoding(TRUNCATED, part.start + failed, i, part.shape.ends + 4 * location.at)
    reason = read_cells(field, sink, part.count, part.cells, part.cell_stops, json, &failed)
    if reason != FINE:
        raise_encoding(<Reason>reason, part.start + failed, i, part.cells[failed] - part.rows[failed])
    return 0


cdef Py_ssize_t find_cells(Read* part, const ColumnLocation* location) noexcept nogil:
    """Locates the column's bytes in each row; returns -1, or the row whose ends do not ascend."""
    cdef Py_ssize_t end_at = part.shape.ends + 4 * <Py_ssize_t>location.at, head = part.shape.head, begin, end, i
    cdef Py_ssize_t null_byte = part.shape.bytes + (location.column >> 3)
    cdef uint8_t null_bit = <uint8_t>(1 << (location.column & 7))
    cdef const uint8_t* row
    for i in range(part.count):
        row = part.rows[i]
        begin = load32(row + end_at - 4) if location.at > 0 else 0
        end = load32(row + end_at)
        if begin > end or end > part.stops[i] - row - head:
            return i
        if row[null_byte] & null_bit:
            part.cells[i] = part.cell_stops[i] = NULL
            continue
        part.cells[i] = row + head + begin
        part.cell_stops[i] = row + head + end
    return -1


cdef int add_defaults(const ValueLayout* format, int i, ColumnBuilder sink, Read* part, JsonText json) except -1 nogil:
    cdef Py_ssize_t row, failed = 0
    for row in range(part.count):
        part.cells[row] = format.default_at[i]
        part.cell_stops[row] = format.default_at[i] + format.default_sizes[i] if format.default_at[i] != NULL else NULL
    return read_cells(&format.fields[i], sink, part.count, part.cells, part.cell_stops, json, &failed)
