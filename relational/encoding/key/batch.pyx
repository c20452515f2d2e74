"""Encodes rows to key bytes and decodes them, a block of rows and one column at a time.

A block is small enough that its cursors and its bytes stay in the L1 cache while the columns are processed one after
the other, so each inner loop handles one type and memory is still traversed once. Columns of composed types are written
value by value to a side buffer, which yields their sizes.
"""

from cpython.object cimport PyObject
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from hummock.base.key cimport Slice
from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.chunk.column cimport ColumnView, LONG_WORK, VARCHAR, has_bytes, is_null
from relational.chunk.column_builder cimport ColumnBuilder
from relational.chunk.json cimport JsonText
from relational.chunk.scalar cimport __builtin_bswap16, __builtin_bswap32, store16, store32
from relational.encoding.field cimport (
    ABSENT, BAD_UTF8, BLOCK_ROWS, FINE, Field, OUT_OF_RANGE, Reason, SLACK, TRAILING, TRUNCATED, raise_encoding,
)
from relational.encoding.key.nested cimport append_cell, is_composed, read_cell
from relational.encoding.key.read cimport read_keys
from relational.encoding.key.write cimport DECIMAL_SLOT, add_key_sizes, write_keys
from relational.encoding.utf8 cimport first_bad_text

cdef enum:
    USER_KEY_PREFIX = 6                 # table_id u32, vnode u16, both big-endian


cdef struct Written:                    # the current block
    Py_ssize_t start
    Py_ssize_t count
    int prefix
    uint8_t* scratch                    # DECIMAL_SLOT bytes per column and row
    Py_ssize_t* ends                    # of composed columns: the end of each row's cell in `cells`
    Py_ssize_t sizes[BLOCK_ROWS]
    uint8_t* cursors[BLOCK_ROWS]


cdef struct Read:
    Py_ssize_t start
    Py_ssize_t count
    const uint8_t* cursors[BLOCK_ROWS]
    const uint8_t* limits[BLOCK_ROWS]


cdef int write_key_rows(
    const Field* fields, const ColumnView** views, int count, Py_ssize_t rows, int64_t table_id, const uint16_t* vnodes,
    BinaryColumnBuilder out
) except -1:
    cdef Written* block = <Written*>malloc(sizeof(Written))
    cdef uint8_t* scratch = <uint8_t*>malloc(<size_t>(count * BLOCK_ROWS * DECIMAL_SLOT + 1))
    cdef Py_ssize_t* ends = <Py_ssize_t*>malloc(<size_t>(count + 1) * (BLOCK_ROWS + 1) * sizeof(Py_ssize_t))
    cdef ByteBuffer cells = ByteBuffer()
    try:
        if block == NULL or scratch == NULL or ends == NULL:
            raise MemoryError("no memory to encode a block of rows")
        block.scratch, block.ends, block.prefix = scratch, ends, USER_KEY_PREFIX if table_id >= 0 else 0
        if rows * count < LONG_WORK // 2:
            write_blocks(fields, views, count, rows, table_id, vnodes, block, cells, out)
        else:
            with nogil:
                write_blocks(fields, views, count, rows, table_id, vnodes, block, cells, out)
    finally:
        free(block)
        free(scratch)
        free(ends)
    return 0


cdef int write_blocks(
    const Field* fields, const ColumnView** views, int count, Py_ssize_t rows, int64_t table_id, const uint16_t* vnodes,
    Written* block, ByteBuffer cells, BinaryColumnBuilder out
) except -1 nogil:
    cdef Py_ssize_t failed, total
    cdef int i
    out.reserve(rows, estimate(fields, views, count, rows, block.prefix))
    block.start = 0
    while block.start < rows:
        block.count = min(<Py_ssize_t>BLOCK_ROWS, rows - block.start)
        cells.size = 0
        total = size_rows(fields, views, count, block, cells)
        if out.data_bytes + total > INT32_MAX:
            with gil:
                raise OverflowError(f"row {block.start}: a column of bytes ends at 2 GiB - 1")
        out.reserve(block.count, total)
        locate_rows(block, out)
        if block.prefix:
            write_prefixes(block, table_id, vnodes)
        for i in range(count):
            if is_composed(fields[i].kind):
                copy_cells(block, i, cells)
                continue
            failed = write_keys(
                &fields[i], views[i], block.start, block.count, block.cursors,
                block.scratch + <Py_ssize_t>i * BLOCK_ROWS * DECIMAL_SLOT)
            if failed >= 0:
                raise_encoding(OUT_OF_RANGE, block.start + failed, i, -1)
        block.start += block.count
    return 0


cdef Py_ssize_t estimate(
    const Field* fields, const ColumnView** views, int count, Py_ssize_t rows, int prefix
) noexcept nogil:
    """An estimate, mostly slightly high, of the bytes of the rows, so that the output need not grow."""
    cdef Py_ssize_t total = rows * prefix + SLACK
    cdef Py_ssize_t text
    cdef int i
    for i in range(count):
        if fields[i].fixed_bytes > 0:
            total += rows * fields[i].fixed_bytes
        elif has_bytes(fields[i].kind):
            text = views[i].offsets[rows] - views[i].offsets[0]
            total += text + (text >> 3) + rows * 6
        else:
            total += rows * 10
    return min(total, <Py_ssize_t>INT32_MAX)


cdef Py_ssize_t size_rows(
    const Field* fields, const ColumnView** views, int count, Written* block, ByteBuffer cells
) except -1 nogil:
    """Fills `sizes`; returns their sum."""
    cdef Py_ssize_t same = block.prefix, row, total = 0
    cdef bint vary = False
    cdef int i
    for i in range(count):
        if fields[i].fixed_bytes > 0 and views[i].validity == NULL:
            same += fields[i].fixed_bytes
    for row in range(block.count):
        block.sizes[row] = same
    for i in range(count):
        if is_composed(fields[i].kind):
            size_cells(&fields[i], views[i], i, block, cells)
        elif fields[i].fixed_bytes == 0:
            add_key_sizes(
                &fields[i], views[i], block.start, block.count, block.sizes,
                block.scratch + <Py_ssize_t>i * BLOCK_ROWS * DECIMAL_SLOT)
        elif views[i].validity != NULL:
            for row in range(block.count):
                block.sizes[row] += 1 if is_null(views[i], block.start + row) else fields[i].fixed_bytes
        else:
            continue
        vary = True
    if not vary:
        return same * block.count
    for row in range(block.count):
        total += block.sizes[row]
    return total


cdef int size_cells(
    const Field* field, const ColumnView* view, int column, Written* block, ByteBuffer cells
) except -1 nogil:
    """Writes the column's part of each row to `cells` and adds its size."""
    cdef Py_ssize_t* ends = block.ends + <Py_ssize_t>column * (BLOCK_ROWS + 1)
    cdef Py_ssize_t row
    ends[0] = cells.size
    for row in range(block.count):
        if append_cell(field, view, block.start + row, cells) != FINE:
            raise_encoding(OUT_OF_RANGE, block.start + row, column, -1)
        ends[row + 1] = cells.size
        block.sizes[row] += ends[row + 1] - ends[row]
    return 0


cdef void copy_cells(Written* block, int column, ByteBuffer cells) noexcept nogil:
    cdef const Py_ssize_t* ends = block.ends + <Py_ssize_t>column * (BLOCK_ROWS + 1)
    cdef Py_ssize_t row
    for row in range(block.count):
        memcpy(block.cursors[row], cells.data + ends[row], <size_t>(ends[row + 1] - ends[row]))
        block.cursors[row] += ends[row + 1] - ends[row]


cdef void locate_rows(Written* block, BinaryColumnBuilder out) noexcept nogil:
    """Appends the ends of the rows to `out` and sets the cursors to the row starts."""
    cdef int32_t* ends = out.offsets + out.rows + 1
    cdef uint8_t* data = out.data
    cdef Py_ssize_t at = out.data_bytes, row
    for row in range(block.count):
        block.cursors[row] = data + at
        at += block.sizes[row]
        ends[row] = <int32_t>at
    out.data_bytes = at
    out.rows += block.count


cdef void write_prefixes(Written* block, int64_t table_id, const uint16_t* vnodes) noexcept nogil:
    cdef uint32_t table = __builtin_bswap32(<uint32_t>table_id)
    cdef Py_ssize_t row
    for row in range(block.count):
        store32(block.cursors[row], table)
        store16(block.cursors[row] + 4, __builtin_bswap16(vnodes[block.start + row]) if vnodes != NULL else 0)
        block.cursors[row] += USER_KEY_PREFIX


cdef int read_key_rows(const Field* fields, int count, PyObject** sinks, BinaryColumn keys, Py_ssize_t skip) except -1:
    cdef Read* block = <Read*>malloc(sizeof(Read))
    cdef JsonText json = JsonText()
    try:
        if block == NULL:
            raise MemoryError("no memory to decode a block of rows")
        if keys.rows * count < LONG_WORK // 2:
            read_blocks(fields, count, sinks, keys, skip, block, json)
        else:
            with nogil:
                read_blocks(fields, count, sinks, keys, skip, block, json)
    finally:
        free(block)
    return 0


cdef int read_blocks(
    const Field* fields, int count, PyObject** sinks, BinaryColumn keys, Py_ssize_t skip, Read* block, JsonText json
) except -1 nogil:
    cdef Py_ssize_t row
    cdef int i
    for i in range(count):
        (<ColumnBuilder>sinks[i]).reserve(keys.rows, 0)
    block.start = 0
    while block.start < keys.rows:
        block.count = min(<Py_ssize_t>BLOCK_ROWS, keys.rows - block.start)
        point_at_rows(block, keys, skip)
        for i in range(count):
            if is_composed(fields[i].kind):
                read_cells(&fields[i], i, <ColumnBuilder>sinks[i], block, keys, json)
            else:
                read_field(&fields[i], i, <ColumnBuilder>sinks[i], block, keys)
        for row in range(block.count):
            if block.cursors[row] != block.limits[row]:
                raise_encoding(TRAILING, block.start + row, -1, block.cursors[row] - keys.at(block.start + row).data)
        block.start += block.count
    return 0


cdef int point_at_rows(Read* block, BinaryColumn keys, Py_ssize_t skip) except -1 nogil:
    cdef Py_ssize_t i
    cdef Slice row
    for i in range(block.count):
        if keys.is_null(block.start + i):
            raise_encoding(ABSENT, block.start + i, -1, -1)
        row = keys.at(block.start + i)
        if row.size < skip:
            raise_encoding(TRUNCATED, block.start + i, -1, row.size)
        block.cursors[i] = row.data + skip
        block.limits[i] = row.data + row.size
    return 0


cdef int read_field(const Field* field, int column, ColumnBuilder sink, Read* block, BinaryColumn keys) except -1 nogil:
    """Appends the field of each row of the block."""
    cdef Reason reason = FINE
    cdef Py_ssize_t failed, row, room = 0
    cdef Py_ssize_t first = sink.rows
    if has_bytes(field.kind):
        for row in range(block.count):
            room += block.limits[row] - block.cursors[row]
        room += SLACK
    sink.reserve(block.count, room)
    failed = read_keys(field, sink, block.count, block.cursors, block.limits, &reason)
    if failed < 0 and field.kind == VARCHAR:
        failed = first_bad_text(sink.data, <int32_t*>sink.values + first, block.count)
        reason = BAD_UTF8
    if failed >= 0:
        row = block.start + failed
        raise_encoding(
            reason, row, column, block.cursors[failed] - keys.at(row).data if block.cursors[failed] != NULL else -1)
    return 0


cdef int read_cells(
    const Field* field, int column, ColumnBuilder sink, Read* block, BinaryColumn keys, JsonText json
) except -1 nogil:
    """As `read_field`, for a composed kind."""
    cdef Py_ssize_t row
    cdef int reason
    for row in range(block.count):
        reason = read_cell(field, sink, &block.cursors[row], block.limits[row], json)
        if reason != FINE:
            raise_encoding(
                <Reason>reason, block.start + row, column,
                block.cursors[row] - keys.at(block.start + row).data if block.cursors[row] != NULL else -1)
    return 0
