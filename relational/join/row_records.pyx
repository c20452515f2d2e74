"""RowRecords: rows of a chunk as fixed-size records, one after the other in memory.

Columns are written and read a block of rows at a time, so that a record fetched for its first column is still cached
for the others.
"""

cimport cython
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memmove, memset

from hummock.base.prefetch cimport prefetch
from relational.chunk.canonical cimport equal_values
from relational.chunk.column cimport BOOLEAN, LONG_WORK, ColumnView, bit_at, has_bytes, is_null, width_of
from relational.chunk.column_builder cimport ColumnBuilder
from relational.hash.record_arena cimport RecordArena

cdef enum:
    BLOCK = 512             # rows whose records are fetched together
    STRING_BYTES = 12       # position and size
    OFFSET_BYTES = 4        # of a string in Arrow, besides its bytes
    ALIGNED = 4             # a header


@cython.final
cdef class RowRecords:
    """Records of rows of `types` after a header of `header_bytes`."""

    def __cinit__(self, types, Py_ssize_t header_bytes):
        cdef int i
        self.types, self.bits = tuple(types), header_bytes
        self.count = len(self.types)
        self.slots = <FieldSlot*>calloc(self.count + 1, sizeof(FieldSlot))
        if self.slots == NULL:
            raise MemoryError("no memory for the layout of columns")
        self.width = header_bytes + self.count // 8 + 1
        if any([data_type.is_nested for data_type in self.types]):
            raise ValueError(f"records hold no STRUCT and no LIST, so not {', '.join(map(str, self.types))}")
        for i in range(self.count):
            self.slots[i].kind = self.types[i].kind
            self.slots[i].width = value_bytes(self.slots[i].kind)
            self.slots[i].offset = self.width
            self.width += self.slots[i].width
            self.has_strings |= has_bytes(self.slots[i].kind)
            self.value_bytes += OFFSET_BYTES if has_bytes(self.slots[i].kind) else self.slots[i].width
        self.width = max(self.width, <Py_ssize_t>sizeof(int32_t))
        if header_bytes:
            self.width = (self.width + ALIGNED - 1) // ALIGNED * ALIGNED
        self.records, self.arena, self.rows = RecordArena(), RecordArena(), -1
        self.grow(0)

    def __dealloc__(self):
        free(self.slots)

    @property
    def size_bytes(self):
        """Memory used."""
        return self.records.capacity + self.arena.capacity

    def column_bytes(self, Py_ssize_t rows):
        """The bytes of the columns of so many rows, all that there are: those of Arrow's buffers."""
        return rows * self.value_bytes + (rows * self.count + 7) // 8 + self.arena.size - self.dead_bytes

    cdef int grow(self, Py_ssize_t rows) except -1:
        if rows > self.rows:
            self.records.extend((rows - self.rows) * self.width)
            self.rows = rows
        return 0

    cdef int make_room(self, Py_ssize_t more) except -1 nogil:
        return self.records.reserve(more * self.width)

    cdef bint equals(self, int32_t row, int column, const ColumnView* view, Py_ssize_t at) noexcept nogil:
        cdef const uint8_t* record = self.record(row)
        cdef const uint8_t* value = record + self.slots[column].offset
        cdef bint is_there = (record[self.bits + (column >> 3)] >> (column & 7)) & 1
        cdef ColumnView own
        cdef int64_t position
        cdef int32_t size
        if is_null(view, at) or not is_there:
            return is_null(view, at) and not is_there
        if has_bytes(view.kind):
            memcpy(&position, value, 8)
            memcpy(&size, value + 8, 4)
            return (size == view.offsets[at + 1] - view.offsets[at]
                    and memcmp(self.arena.data + position, view.data + view.offsets[at], <size_t>size) == 0)
        if view.kind == BOOLEAN:
            return value[0] == bit_at(view.values, view.offset + at)
        memset(&own, 0, sizeof(ColumnView))
        own.kind, own.scale, own.values = view.kind, view.scale, value
        return equal_values(&own, 0, view, at, False)

    cdef int write(self, const ColumnView** views, Py_ssize_t first, Py_ssize_t rows, const int32_t* ids,
                   ) except -1 nogil:
        cdef Py_ssize_t strings = 0
        cdef int i
        for i in range(self.count):
            if has_bytes(self.slots[i].kind):
                strings += written_bytes(views[i], first, rows, ids)
            else:
                write_field(self, i, views[i], first, rows, ids)
        if self.has_strings:
            self.arena.reserve(strings)
            write_strings(self, views, first, rows, ids)
        return 0

    cdef list gather(self, const int32_t* ids, Py_ssize_t rows, tuple columns):
        cdef list out = [ColumnBuilder(self.types[column]) for column in columns]
        cdef int count = len(out), i
        cdef void** builders = <void**>calloc(count + 1, sizeof(void*))
        cdef int* wanted = <int*>calloc(count + 1, sizeof(int))
        try:
            if builders == NULL or wanted == NULL:
                raise MemoryError("no memory for the columns of rows")
            for i in range(count):
                builders[i], wanted[i] = <void*>out[i], columns[i]
            if rows * count < LONG_WORK:
                gather_rows(self, ids, rows, builders, wanted, count)
            else:
                with nogil:
                    gather_rows(self, ids, rows, builders, wanted, count)
        finally:
            free(builders)
            free(wanted)
        return [(<ColumnBuilder>builder).finish() for builder in out]

    cdef int keep(self, const uint8_t* marks, int32_t* numbers) except -1:
        cdef bint ascends = True
        cdef Py_ssize_t strings = 0
        cdef RecordArena arena = self.arena
        if self.has_strings:
            with nogil:
                strings = kept_strings(self, marks, &ascends)
        if not ascends:
            arena = RecordArena()
            arena.reserve(strings)
        with nogil:
            self.rows = move_records(self, arena.data, marks, numbers)
        self.records.size, arena.size = (self.rows + 1) * self.width, strings
        self.records.trim()
        arena.trim()
        self.arena, self.dead_bytes = arena, 0
        return 0

    cdef Py_ssize_t string_bytes(self, int64_t row) noexcept nogil:
        cdef const uint8_t* record = self.record(row)
        cdef Py_ssize_t total = 0
        cdef int32_t size
        cdef int i
        for i in range(self.count):
            if has_bytes(self.slots[i].kind):
                memcpy(&size, record + self.slots[i].offset + 8, 4)
                total += size
        return total


cdef int value_bytes(int kind) noexcept:
    return STRING_BYTES if has_bytes(kind) else 1 if kind == BOOLEAN else width_of(kind)


cdef Py_ssize_t written_bytes(const ColumnView* view, Py_ssize_t first, Py_ssize_t rows, const int32_t* ids
                              ) noexcept nogil:
    cdef Py_ssize_t row, total = 0
    for row in range(first, first + rows):
        if ids[row - first] >= 0:
            total += view.offsets[row + 1] - view.offsets[row]
    return total


cdef void write_field(RowRecords self, int column, const ColumnView* view, Py_ssize_t first, Py_ssize_t rows,
                      const int32_t* ids) noexcept nogil:
    """Writes one column of fixed width of a block of rows; the last row of a record wins."""
    cdef FieldSlot* slot = self.slots + column
    cdef Py_ssize_t bit = self.bits + (column >> 3), row
    cdef uint8_t flag = <uint8_t>(1 << (column & 7))
    cdef uint8_t* record
    if slot.width == 8 and view.validity == NULL:
        for row in range(rows):
            if ids[row] >= 0:
                record = self.record(ids[row])
                record[bit] |= flag
                memcpy(record + slot.offset, view.values + 8 * (first + row), 8)
        return
    for row in range(rows):
        if ids[row] < 0:
            continue
        record = self.record(ids[row])
        record[bit] &= <uint8_t>~flag
        if is_null(view, first + row):
            continue
        record[bit] |= flag
        write_value(self, slot, view, first + row, record + slot.offset)


cdef void write_strings(RowRecords self, const ColumnView** views, Py_ssize_t first, Py_ssize_t rows, const int32_t* ids
                        ) noexcept nogil:
    """Writes the strings of a block of rows, row by row, so that those of new records follow each other; the last row
    of a record wins. REQUIRES capacity in the arena."""
    cdef Py_ssize_t row
    cdef uint8_t* record
    cdef uint8_t flag
    cdef int i
    for row in range(rows):
        if ids[row] < 0:
            continue
        record = self.record(ids[row])
        for i in range(self.count):
            if not has_bytes(self.slots[i].kind):
                continue
            flag = <uint8_t>(1 << (i & 7))
            record[self.bits + (i >> 3)] &= <uint8_t>~flag
            if not is_null(views[i], first + row):
                record[self.bits + (i >> 3)] |= flag
                write_string(self, views[i], first + row, record + self.slots[i].offset)


cdef inline void write_value(RowRecords self, const FieldSlot* slot, const ColumnView* view, Py_ssize_t row,
                             uint8_t* value) noexcept nogil:
    if slot.width == 8:
        memcpy(value, view.values + 8 * row, 8)
    elif slot.width == 4:
        memcpy(value, view.values + 4 * row, 4)
    elif slot.width == 16:
        memcpy(value, view.values + 16 * row, 16)
    elif slot.width == 2:
        memcpy(value, view.values + 2 * row, 2)
    else:
        value[0] = bit_at(view.values, view.offset + row)


cdef inline void write_string(RowRecords self, const ColumnView* view, Py_ssize_t row, uint8_t* value) noexcept nogil:
    cdef int64_t position = self.arena.size
    cdef int32_t size = view.offsets[row + 1] - view.offsets[row]
    memcpy(value, &position, 8)
    memcpy(value + 8, &size, 4)
    memcpy(self.arena.data + position, view.data + view.offsets[row], <size_t>size)
    self.arena.size += size


cdef int gather_rows(RowRecords self, const int32_t* ids, Py_ssize_t rows, void** builders, const int* columns,
                     int count) except -1 nogil:
    cdef Py_ssize_t first = 0, block, row
    cdef int i
    for i in range(count):
        (<ColumnBuilder>builders[i]).reserve(rows, 0)
    while first < rows:
        block = min(rows - first, <Py_ssize_t>BLOCK)
        for row in range(first, first + block):
            prefetch(self.record(ids[row]))
            prefetch(self.record(ids[row]) + self.width - 1)
        for i in range(count):
            if has_bytes(self.slots[columns[i]].kind):
                gather_strings(self, columns[i], ids + first, block, <ColumnBuilder>builders[i])
            else:
                gather_field(self, columns[i], ids + first, block, <ColumnBuilder>builders[i])
        first += block
    return 0


cdef void gather_field(RowRecords self, int column, const int32_t* ids, Py_ssize_t rows, ColumnBuilder out
                       ) noexcept nogil:
    """Appends a block of a fixed-width column; REQUIRES capacity."""
    cdef FieldSlot* slot = self.slots + column
    cdef Py_ssize_t bit = self.bits + (column >> 3), row, nulls = 0
    cdef int shift = column & 7
    cdef uint8_t* present = out.present + out.rows
    cdef uint8_t* values = out.values + out.rows * out.width
    cdef const uint8_t* record
    for row in range(rows):
        record = self.record(ids[row])
        present[row] = (record[bit] >> shift) & 1
        nulls += not present[row]
        record += slot.offset
        if slot.width == 8:
            memcpy(values + 8 * row, record, 8)
        elif slot.width == 4:
            memcpy(values + 4 * row, record, 4)
        elif slot.width == 16:
            memcpy(values + 16 * row, record, 16)
        elif slot.width == 2:
            memcpy(values + 2 * row, record, 2)
        else:
            values[row] = record[0]
    out.rows += rows
    out.nulls += nulls


cdef int gather_strings(RowRecords self, int column, const int32_t* ids, Py_ssize_t rows, ColumnBuilder out
                        ) except -1 nogil:
    """Appends a block of a string column; REQUIRES capacity for the rows."""
    cdef FieldSlot* slot = self.slots + column
    cdef Py_ssize_t bit = self.bits + (column >> 3), row, total = 0
    cdef const uint8_t* record
    cdef int64_t position
    cdef int32_t size
    for row in range(rows):
        memcpy(&size, self.record(ids[row]) + slot.offset + 8, 4)
        total += size
    out.reserve(0, total)
    for row in range(rows):
        record = self.record(ids[row])
        memcpy(&position, record + slot.offset, 8)
        memcpy(&size, record + slot.offset + 8, 4)
        out.present[out.rows] = (record[bit] >> (column & 7)) & 1
        out.nulls += not out.present[out.rows]
        if out.present[out.rows]:
            memcpy(out.data + out.data_size, self.arena.data + position, <size_t>size)
            out.data_size += size
        out.rows += 1
        (<int32_t*>out.values)[out.rows] = <int32_t>out.data_size
    return 0


cdef Py_ssize_t kept_strings(RowRecords self, const uint8_t* marks, bint* ascends) noexcept nogil:
    """The bytes of the strings of the marked records; whether they follow each other in the order of the records."""
    cdef Py_ssize_t row, total = 0
    cdef int64_t position, end = 0
    cdef int32_t size
    cdef const uint8_t* record
    cdef int i
    for row in range(self.rows):
        if not marks[row]:
            continue
        record = self.record(row)
        for i in range(self.count):
            if has_bytes(self.slots[i].kind) and (record[self.bits + (i >> 3)] >> (i & 7)) & 1:
                memcpy(&position, record + self.slots[i].offset, 8)
                memcpy(&size, record + self.slots[i].offset + 8, 4)
                ascends[0] &= position >= end
                end = position + size
                total += size
    return total


cdef Py_ssize_t move_records(RowRecords self, uint8_t* strings, const uint8_t* marks, int32_t* numbers) noexcept nogil:
    """Moves the marked records down, and their strings to `strings`, which has room for them, and may be where they
    are if they ascend; returns the number of records."""
    cdef Py_ssize_t row, to = 0
    cdef int64_t position, end = 0
    cdef int32_t size
    cdef uint8_t* record
    cdef int i
    for row in range(self.rows):
        if not marks[row]:
            continue
        record = self.record(to)
        if to < row:
            memcpy(record, self.record(row), <size_t>self.width)
        for i in range(self.count):
            if has_bytes(self.slots[i].kind) and (record[self.bits + (i >> 3)] >> (i & 7)) & 1:
                memcpy(&position, record + self.slots[i].offset, 8)
                memcpy(&size, record + self.slots[i].offset + 8, 4)
                memmove(strings + end, self.arena.data + position, <size_t>size)
                memcpy(record + self.slots[i].offset, &end, 8)
                end += size
        numbers[row] = <int32_t>to
        to += 1
    return to
