"""Rows to bytes and back, a block of rows and one column at a time.

A block is small enough that its cursors and its bytes stay in the first-level caches while one column after
the other passes over them, so each inner loop knows one type and the memory is still walked once.
"""

from cpython.object cimport PyObject
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free, malloc

from hummock.binary_column cimport BinaryColumn, BinaryColumnBuilder
from hummock.key cimport Slice
from relational.chunk.column cimport Column, ColumnView, LONG_WORK, VARCHAR, is_null
from relational.chunk.column_builder cimport ColumnBuilder
from relational.encoding.field cimport (
    ABSENT, BAD_FORM, BAD_TAG, BAD_UTF8, BLOCK_ROWS, DECIMAL_SLOT, FINE, Field, OUT_OF_RANGE, Reason, TRAILING, TRUNCATED,
)
from relational.chunk.scalar cimport __builtin_bswap16, __builtin_bswap32, store16, store32
from relational.encoding.utf8 cimport first_bad_text

from relational.errors import EncodingError

cdef enum:
    USER_KEY_PREFIX = 6                 # table_id u32, vnode u16, both big-endian
    SLACK = 16                          # bytes that a kernel may write beyond the last string

cdef dict REASONS = {
    TRUNCATED: "the bytes end inside a value",
    BAD_TAG: "neither a value nor NULL begins here",
    BAD_FORM: "not a form in which a value is written",
    OUT_OF_RANGE: "the value is outside what its type can hold",
    BAD_UTF8: "the text is not UTF-8",
    TRAILING: "bytes follow the last column",
    ABSENT: "there are no bytes to decode",
}


cdef struct Block:                      # the rows in hand
    Py_ssize_t start
    Py_ssize_t count
    int32_t sizes[BLOCK_ROWS]
    uint8_t* cursors[BLOCK_ROWS]
    const uint8_t* limits[BLOCK_ROWS]   # reading only


cdef struct Source:                     # the bytes to decode
    PyObject* column                    # borrowed BinaryColumn, used where `slices` is NULL
    const Slice* slices
    Py_ssize_t rows
    Py_ssize_t skip                     # leading bytes of each row that are not ours
    bint absent_is_null


cdef int raise_encoding(Reason reason, Py_ssize_t row, Py_ssize_t column, Py_ssize_t offset) except -1 nogil:
    with gil:
        raise EncodingError(
            REASONS[reason], row=row, column=column if column >= 0 else None, offset=offset if offset >= 0 else None)


cdef class RowFormat:
    """Fields in order and the kernels of one encoding. Immutable, usable from several threads at once."""

    def __cinit__(self, types, *args, **options):
        cdef int i
        self.types = tuple(types)
        self.count = len(self.types)
        self.fields = <Field*>calloc(self.count + 1, sizeof(Field))
        if self.fields == NULL:
            raise MemoryError("no memory for the fields of a row")
        for i in range(self.count):
            self.fields[i].kind = self.types[i].kind
            self.fields[i].scale = self.types[i].scale or 0
            self.fields[i].precision = self.types[i].precision or 0

    def __dealloc__(self):
        free(self.fields)

    cdef BinaryColumn write_rows(self, tuple columns, Py_ssize_t rows, int64_t table_id, const uint16_t* vnodes):
        cdef BinaryColumnBuilder out = BinaryColumnBuilder()
        cdef int count = len(columns), i
        cdef const ColumnView** views
        cdef uint8_t* scratch
        if count > self.count:
            raise ValueError(f"{count} columns for a row of {self.count}")
        for i in range(count):
            if (<Column?>columns[i]).data_type != self.types[i] or (<Column>columns[i]).view.rows != rows:
                raise ValueError(f"column {i} is {columns[i]!r}, not {rows} rows of {self.types[i]}")
        views = <const ColumnView**>malloc((count + 1) * sizeof(ColumnView*))
        scratch = <uint8_t*>malloc(<size_t>(count * BLOCK_ROWS * DECIMAL_SLOT + 1))
        try:
            if views == NULL or scratch == NULL:
                raise MemoryError("no memory to encode a block of rows")
            for i in range(count):
                views[i] = &(<Column>columns[i]).view
            if rows * count < LONG_WORK:
                write_blocks(self, views, count, rows, table_id, vnodes, scratch, out)
            else:
                with nogil:
                    write_blocks(self, views, count, rows, table_id, vnodes, scratch, out)
        finally:
            free(views)
            free(scratch)
        return out.finish()

    cdef list read_rows(
        self, BinaryColumn column, const Slice* slices, Py_ssize_t rows, Py_ssize_t skip, bint absent_is_null,
        const uint8_t* wanted
    ):
        cdef list sinks = [ColumnBuilder(data_type) for data_type in self.types]
        cdef PyObject** borrowed = <PyObject**>malloc((self.count + 1) * sizeof(PyObject*))
        cdef Source source
        cdef ColumnBuilder sink
        cdef int i
        if borrowed == NULL:
            raise MemoryError("no memory to decode a block of rows")
        source.column, source.slices = <PyObject*>column, slices
        source.rows, source.skip, source.absent_is_null = rows, skip, absent_is_null
        try:
            for i, sink in enumerate(sinks):
                borrowed[i] = <PyObject*>sink
            if rows * self.count < LONG_WORK:
                read_blocks(self, borrowed, &source, wanted)
            else:
                with nogil:
                    read_blocks(self, borrowed, &source, wanted)
        finally:
            free(borrowed)
        return [sink.finish() if wanted == NULL or wanted[i] else None for i, sink in enumerate(sinks)]


cdef int write_blocks(
    RowFormat format, const ColumnView** views, int count, Py_ssize_t rows, int64_t table_id, const uint16_t* vnodes,
    uint8_t* scratch, BinaryColumnBuilder out
) except -1 nogil:
    cdef Block block
    cdef Py_ssize_t failed, total
    cdef int prefix = USER_KEY_PREFIX if table_id >= 0 else 0
    cdef int i
    out.reserve(rows, estimate(format, views, count, rows, prefix))
    block.start = 0
    while block.start < rows:
        block.count = min(<Py_ssize_t>BLOCK_ROWS, rows - block.start)
        total = most_bytes(format, views, count, prefix, &block)
        if total <= INT32_MAX:              # sizes are int32, so they are added up only where they cannot wrap
            total = size_rows(format, views, count, prefix, &block, scratch)
        if out.data_bytes + total > INT32_MAX:
            with gil:
                raise OverflowError(f"row {block.start}: a column of bytes ends at 2 GiB - 1")
        out.reserve(block.count, total)
        place_rows(&block, out)
        if prefix:
            write_prefixes(&block, table_id, vnodes)
        for i in range(count):
            failed = format.write(
                &format.fields[i], views[i], block.start, block.count, block.cursors,
                scratch + <Py_ssize_t>i * BLOCK_ROWS * DECIMAL_SLOT)
            if failed >= 0:
                raise_encoding(OUT_OF_RANGE, block.start + failed, i, -1)
        block.start += block.count
    return 0


cdef Py_ssize_t estimate(
    RowFormat format, const ColumnView** views, int count, Py_ssize_t rows, int prefix
) noexcept nogil:
    """Bytes that the rows will need, mostly a little more, so that the output need not grow."""
    cdef Py_ssize_t total = rows * prefix + SLACK
    cdef Py_ssize_t text
    cdef int i
    for i in range(count):
        if format.fields[i].fixed_bytes > 0:
            total += rows * format.fields[i].fixed_bytes
        elif views[i].kind == VARCHAR:
            text = views[i].offsets[rows] - views[i].offsets[0]
            total += text + (text >> 3) + rows * 6
        else:
            total += rows * 10
    return min(total, <Py_ssize_t>INT32_MAX)


cdef Py_ssize_t most_bytes(
    RowFormat format, const ColumnView** views, int count, int prefix, const Block* block
) noexcept nogil:
    """An upper bound of the bytes of the block's rows."""
    cdef Py_ssize_t total = block.count * prefix
    cdef Py_ssize_t text
    cdef int i
    for i in range(count):
        if views[i].kind == VARCHAR:
            text = views[i].offsets[block.start + block.count] - views[i].offsets[block.start]
            total += text + (text >> 3) + block.count * 11
        else:
            total += block.count * DECIMAL_SLOT
    return total


cdef Py_ssize_t size_rows(
    RowFormat format, const ColumnView** views, int count, int prefix, Block* block, uint8_t* scratch
) noexcept nogil:
    """Fills `sizes`; returns their sum."""
    cdef int32_t same = prefix
    cdef Py_ssize_t row, total
    cdef int i
    for i in range(count):
        if format.fields[i].fixed_bytes > 0 and views[i].validity == NULL:
            same += format.fields[i].fixed_bytes
    for row in range(block.count):
        block.sizes[row] = same
    total = same * block.count
    for i in range(count):
        if format.fields[i].fixed_bytes == 0:
            format.add_sizes(
                &format.fields[i], views[i], block.start, block.count, block.sizes,
                scratch + <Py_ssize_t>i * BLOCK_ROWS * DECIMAL_SLOT)
        elif views[i].validity != NULL:
            for row in range(block.count):
                block.sizes[row] += 1 if is_null(views[i], block.start + row) else format.fields[i].fixed_bytes
        else:
            continue
        total = -1
    if total < 0:
        total = 0
        for row in range(block.count):
            total += block.sizes[row]
    return total


cdef void place_rows(Block* block, BinaryColumnBuilder out) noexcept nogil:
    """Appends the rows to `out` as ends and sets the cursors to their beginnings."""
    cdef int32_t* ends = out.offsets + out.rows + 1
    cdef uint8_t* data = out.data
    cdef int32_t at = <int32_t>out.data_bytes
    cdef Py_ssize_t row
    for row in range(block.count):
        block.cursors[row] = data + at
        at += block.sizes[row]
        ends[row] = at
    out.data_bytes = at
    out.rows += block.count


cdef void write_prefixes(Block* block, int64_t table_id, const uint16_t* vnodes) noexcept nogil:
    cdef uint32_t table = __builtin_bswap32(<uint32_t>table_id)
    cdef Py_ssize_t row
    for row in range(block.count):
        store32(block.cursors[row], table)
        store16(block.cursors[row] + 4, __builtin_bswap16(vnodes[block.start + row]) if vnodes != NULL else 0)
        block.cursors[row] += USER_KEY_PREFIX


cdef int read_blocks(RowFormat format, PyObject** sinks, const Source* source, const uint8_t* wanted) except -1 nogil:
    cdef Block block
    cdef int i, last = format.count
    while last > 0 and wanted != NULL and not wanted[last - 1]:
        last -= 1
    for i in range(last):
        (<ColumnBuilder>sinks[i]).reserve(source.rows, 0)
    block.start = 0
    while block.start < source.rows:
        block.count = min(<Py_ssize_t>BLOCK_ROWS, source.rows - block.start)
        point_at_rows(&block, source)
        for i in range(last):
            read_field(format, i, <ColumnBuilder>sinks[i], wanted == NULL or wanted[i], &block, source)
        if last == format.count:
            check_ends(&block)
        block.start += block.count
    return 0


cdef Slice row_at(const Source* source, Py_ssize_t row) noexcept nogil:
    """The bytes of a row; data NULL: there are none."""
    cdef Slice out
    if source.slices != NULL:
        return source.slices[row]
    out = (<BinaryColumn>source.column).at(row)
    if (<BinaryColumn>source.column).is_null(row):
        out.data = NULL
    return out


cdef int point_at_rows(Block* block, const Source* source) except -1 nogil:
    cdef Py_ssize_t i
    cdef Slice row
    for i in range(block.count):
        row = row_at(source, block.start + i)
        if row.data == NULL:
            if not source.absent_is_null:
                raise_encoding(ABSENT, block.start + i, -1, -1)
            block.cursors[i] = NULL
            block.limits[i] = NULL
        elif row.size < source.skip:
            raise_encoding(TRUNCATED, block.start + i, -1, row.size)
        else:
            block.cursors[i] = <uint8_t*>row.data + source.skip
            block.limits[i] = row.data + row.size
    return 0


cdef int read_field(
    RowFormat format, int field, ColumnBuilder sink, bint wanted, Block* block, const Source* source
) except -1 nogil:
    """Appends the field of each row of the block to `sink`, or only passes over it."""
    cdef Reason reason = FINE
    cdef Py_ssize_t failed, row, room = 0
    cdef Py_ssize_t first = sink.rows
    if format.fields[field].kind == VARCHAR:
        for row in range(block.count):
            room += block.limits[row] - block.cursors[row]
        room += SLACK
    sink.reserve(block.count, room)
    failed = format.read(
        &format.fields[field], sink, block.count, <const uint8_t**>block.cursors, block.limits, &reason)
    if failed < 0 and format.fields[field].kind == VARCHAR:
        failed = first_bad_text(sink.data, <int32_t*>sink.values + first, block.count)
        reason = BAD_UTF8
    if failed >= 0:
        row = block.start + failed
        raise_encoding(reason, row, field, block.cursors[failed] - row_at(source, row).data
                       if block.cursors[failed] != NULL else -1)
    if not wanted:
        sink.rows = sink.nulls = sink.data_size = 0
    return 0


cdef int check_ends(Block* block) except -1 nogil:
    cdef Py_ssize_t row
    for row in range(block.count):
        if block.cursors[row] != block.limits[row]:
            raise_encoding(TRAILING, block.start + row, -1, -1)
    return 0
