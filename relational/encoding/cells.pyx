"""CellEncoder: value rows as one entry per value, the older row format of a table; CellJoin reassembles the rows.

    key    key of the row | u32 BE 0                  value  empty: the row exists
    key    key of the row | u32 BE column id + 1      value  the payload of a value, as in rows

A NULL has no entry, and neither has a column that was added later, so its default can only be NULL. The entries of a
row are contiguous and ordered by id, because no key of a row is a prefix of another. An update of one column writes one
entry, which is the purpose of this format; everything else costs an entry per value.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

import numpy as np

from hummock.base.key cimport Slice
from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.chunk.scalar cimport __builtin_bswap32, load32, store32
from relational.encoding.field cimport BAD_FORM, Reason, TRUNCATED, bitmap_bytes, raise_encoding
from relational.encoding.value.encoder cimport ValueEncoder

cdef enum:
    CELL_BYTES = 4          # after the key of the row: identifies the entry


cdef class CellEncoder:
    """Splits rows written by a ValueEncoder into entries. Immutable, usable from several threads at once."""

    cdef readonly ValueEncoder rows     # the format of whole rows
    cdef readonly int count             # columns
    cdef int32_t* ids                   # owned; ascending
    cdef int32_t* widths                # owned; of each payload, 0: variable width
    cdef int32_t* at                    # owned; offset of the payload in a row, or its index among variable-width ones
    cdef Py_ssize_t nulls               # offset of a row's null bitmap
    cdef Py_ssize_t ends                # offset of the ends
    cdef Py_ssize_t head                # offset of the variable-width payloads

    def __init__(self, ValueEncoder rows not None):
        cdef int position, variable = 0
        cdef Py_ssize_t at
        self.rows, self.count = rows, rows.layout.count
        self.ids = <int32_t*>calloc(self.count + 1, sizeof(int32_t))
        self.widths = <int32_t*>calloc(self.count + 1, sizeof(int32_t))
        self.at = <int32_t*>calloc(self.count + 1, sizeof(int32_t))
        if self.ids == NULL or self.widths == NULL or self.at == NULL:
            raise MemoryError("no memory for the fields of a row")
        self.nulls = rows.layout.shape_bytes
        at = self.nulls + bitmap_bytes(self.count)
        for position in range(self.count):
            self.ids[position] = rows.layout.ids[rows.layout.order[position]]
            self.widths[position] = rows.layout.fields[rows.layout.order[position]].fixed_bytes
            if self.widths[position]:
                self.at[position] = <int32_t>at
                at += self.widths[position]
            else:
                self.at[position] = variable
                variable += 1
        self.ends, self.head = at, at + 4 * variable

    def __dealloc__(self):
        free(self.ids)
        free(self.widths)
        free(self.at)

    def split(self, BinaryColumn keys not None, BinaryColumn values not None, BinaryColumn old=None):
        """(keys, values) of the entries that differ, in key order, where the rows under ascending `keys` become
        `values`, null for a deleted row. `old`: the previous rows, null where unknown or absent.

        A deleted entry has a null value. EncodingError for a row that the ValueEncoder did not write.
        """
        cdef BinaryColumnBuilder cell_keys = BinaryColumnBuilder(), cell_values = BinaryColumnBuilder()
        cdef Slice* parts = <Slice*>calloc(2 * self.count + 1, sizeof(Slice))
        if parts == NULL:
            raise MemoryError("no memory to split rows")
        if values.rows != keys.rows or (old is not None and old.rows != keys.rows):
            free(parts)
            raise ValueError(f"{values.rows} values under {keys.rows} keys")
        try:
            with nogil:
                split_rows(self, keys, values, old, parts, cell_keys, cell_values)
        finally:
            free(parts)
        return cell_keys.finish(), cell_values.finish()

    cdef int cut(self, Slice row, Py_ssize_t number, Slice* parts) except -1 nogil:
        """Fills parts[count] with the payloads of the row; Slice NULL for a NULL."""
        cdef Py_ssize_t begin = 0, end
        cdef int position
        if row.size < self.head or memcmp(row.data, self.rows.layout.shape, <size_t>self.nulls) != 0:
            raise_encoding(BAD_FORM, number, -1, 0)
        for position in range(self.count):
            parts[position].data, parts[position].size = row.data + self.at[position], self.widths[position]
            if self.widths[position] == 0:
                end = load32(row.data + self.ends + 4 * <Py_ssize_t>self.at[position])
                if end < begin or end > row.size - self.head:
                    raise_encoding(TRUNCATED, number, self.rows.layout.order[position], self.ends)
                parts[position].data, parts[position].size = row.data + self.head + begin, end - begin
                begin = end
            if row.data[self.nulls + (position >> 3)] >> (position & 7) & 1:
                parts[position].data, parts[position].size = NULL, 0
        return 0

    cdef int put_row(self, const Slice* parts, BinaryColumnBuilder out) except -1 nogil:
        """Appends the row with these payloads."""
        cdef Py_ssize_t size = self.head, end = 0
        cdef uint8_t* row
        cdef int position
        for position in range(self.count):
            if self.widths[position] == 0:
                size += parts[position].size
        out.reserve(1, size)
        row = out.data + out.data_bytes
        memcpy(row, self.rows.layout.shape, <size_t>self.nulls)
        memset(row + self.nulls, 0, <size_t>(self.head - self.nulls))
        for position in range(self.count):
            if parts[position].data == NULL:
                row[self.nulls + (position >> 3)] |= <uint8_t>(1 << (position & 7))
            elif self.widths[position]:
                memcpy(row + self.at[position], parts[position].data, <size_t>self.widths[position])
            else:
                memcpy(row + self.head + end, parts[position].data, <size_t>parts[position].size)
                end += parts[position].size
            if self.widths[position] == 0:
                store32(row + self.ends + 4 * <Py_ssize_t>self.at[position], <uint32_t>end)
        out.data_bytes += size
        out.rows += 1
        out.offsets[out.rows] = <int32_t>out.data_bytes
        return 0

    def __reduce__(self):
        return CellEncoder, (self.rows,)


cdef int split_rows(
    CellEncoder format, BinaryColumn keys, BinaryColumn values, BinaryColumn old, Slice* parts,
    BinaryColumnBuilder cell_keys, BinaryColumnBuilder cell_values
) except -1 nogil:
    cdef Slice* before = parts + format.count
    cdef Slice empty
    cdef Py_ssize_t row
    cdef bint is_gone, is_known
    cdef int position
    empty.data, empty.size = values.data, 0
    for row in range(keys.rows):
        is_gone = values.is_null(row)
        is_known = not is_gone and old is not None and not old.is_null(row)
        if is_gone:
            memset(parts, 0, format.count * sizeof(Slice))
        else:
            format.cut(values.at(row), row, parts)
        if is_known:
            format.cut(old.at(row), row, before)
        else:
            put_key(cell_keys, keys.at(row), 0)
            cell_values.append_null() if is_gone else cell_values.append(empty)
        for position in range(format.count):
            if is_known and same_part(parts[position], before[position]):
                continue
            put_key(cell_keys, keys.at(row), <uint32_t>format.ids[position] + 1)
            cell_values.append_null() if parts[position].data == NULL else cell_values.append(parts[position])
    return 0


cdef inline bint same_part(Slice a, Slice b) noexcept nogil:
    if a.data == NULL or b.data == NULL:
        return a.data == b.data
    return a.size == b.size and memcmp(a.data, b.data, <size_t>a.size) == 0


cdef int put_key(BinaryColumnBuilder out, Slice key, uint32_t cell) except -1 nogil:
    cdef uint8_t* at
    out.reserve(1, key.size + CELL_BYTES)
    at = out.data + out.data_bytes
    memcpy(at, key.data, <size_t>key.size)
    store32(at + key.size, __builtin_bswap32(cell))
    out.data_bytes += key.size + CELL_BYTES
    out.rows += 1
    out.offsets[out.rows] = <int32_t>out.data_bytes
    return 0


cdef class CellJoin:
    """Joins entries in scan order, batch after batch, to value rows. One thread at a time.

    A row without its existence entry is skipped, as are entries of columns that the format does not contain.
    """

    cdef CellEncoder format
    cdef bint is_reverse
    cdef Slice* parts                   # owned; payloads of the current row, by ascending id
    cdef ByteBuffer key                 # of the current row
    cdef ByteBuffer held                # copies of its payloads, once their batch ends
    cdef bint is_open                   # there is a current row
    cdef bint exists                    # its existence entry was read
    cdef int32_t owner
    cdef int64_t last                   # index of its previous entry
    cdef BinaryColumnBuilder keys       # the completed rows
    cdef BinaryColumnBuilder values
    cdef ByteBuffer owners              # int32 of each

    def __init__(self, CellEncoder format not None, *, bint is_reverse=False):
        self.format, self.is_reverse = format, is_reverse
        self.parts = <Slice*>calloc(format.count + 1, sizeof(Slice))
        if self.parts == NULL:
            raise MemoryError("no memory for the values of a row")
        self.key, self.held, self.owners = ByteBuffer(), ByteBuffer(), ByteBuffer()
        self.keys, self.values = BinaryColumnBuilder(), BinaryColumnBuilder()

    def __dealloc__(self):
        free(self.parts)

    def take(self, BinaryColumn keys not None, BinaryColumn values not None, const int32_t[::1] owners=None):
        """Continues with these entries; with `owners`, a row does not extend from one owner to the next. EncodingError
        naming an entry that no encoder wrote.
        """
        if values.rows != keys.rows or (owners is not None and owners.shape[0] != keys.rows):
            raise ValueError(f"{values.rows} values under {keys.rows} keys")
        cdef const int32_t* owned = &owners[0] if owners is not None and keys.rows > 0 else NULL
        with nogil:
            self.add(keys, values, owned)
        self.hold()

    def rows(self, bint is_end=False):
        """(keys, values, int32 owners) of the rows completed since the last call; `is_end` means that no more entries
        follow, and completes the current row too.
        """
        if is_end:
            self.close_row()
        owners = np.frombuffer(self.owners, np.int32).copy()
        self.owners.size = 0
        return self.keys.finish(), self.values.finish(), owners

    cdef int add(self, BinaryColumn keys, BinaryColumn values, const int32_t* owners) except -1 nogil:
        cdef Slice key, value
        cdef Py_ssize_t row
        cdef int64_t cell
        cdef int position = 0
        cdef bint is_same
        for row in range(keys.rows):
            key, value = keys.at(row), values.at(row)
            if key.size < CELL_BYTES:
                raise_encoding(TRUNCATED, row, -1, key.size)
            key.size -= CELL_BYTES
            cell = __builtin_bswap32(load32(key.data + key.size))
            is_same = self.is_open and key.size == self.key.size and (
                memcmp(key.data, self.key.data, <size_t>key.size) == 0
            ) and (owners == NULL or owners[row] == self.owner)
            if not is_same:
                self.close_row()
                self.key.size = 0
                self.key.append(key.data, key.size)
                self.is_open = True
                self.owner = owners[row] if owners != NULL else 0
            elif (cell >= self.last) if self.is_reverse else (cell <= self.last):
                raise_encoding(BAD_FORM, row, -1, key.size)
            self.last = cell
            if cell == 0:
                self.exists = True
                if value.size:
                    raise_encoding(BAD_FORM, row, -1, -1)
                continue
            position = position_of(self.format, <int64_t>cell - 1, position)
            if position < self.format.count and self.format.ids[position] == cell - 1:
                if self.format.widths[position] and value.size != self.format.widths[position]:
                    raise_encoding(BAD_FORM, row, self.format.rows.layout.order[position], -1)
                self.parts[position] = value
        return 0

    cdef int close_row(self) except -1 nogil:
        if self.is_open and self.exists:
            self.keys.append(slice_of(self.key))
            self.format.put_row(self.parts, self.values)
            self.owners.append(<const uint8_t*>&self.owner, sizeof(int32_t))
        self.is_open = self.exists = False
        memset(self.parts, 0, self.format.count * sizeof(Slice))
        return 0

    cdef int hold(self) except -1:
        """Copies the payloads of the current row, since their batch is about to be released."""
        cdef ByteBuffer held = ByteBuffer()
        cdef Py_ssize_t size = 1
        cdef int position
        for position in range(self.format.count):
            size += self.parts[position].size
        held.reserve(size)
        for position in range(self.format.count):
            if self.parts[position].data != NULL:
                held.append(self.parts[position].data, self.parts[position].size)
                self.parts[position].data = held.data + held.size - self.parts[position].size
        self.held = held
        return 0


cdef inline int position_of(CellEncoder format, int64_t id, int hint) noexcept nogil:
    """The first column whose id is not below `id`, searched from `hint` on."""
    while hint > 0 and format.ids[hint - 1] >= id:
        hint -= 1
    while hint < format.count and format.ids[hint] < id:
        hint += 1
    return hint


cdef inline Slice slice_of(ByteBuffer buffer) noexcept nogil:
    cdef Slice out
    out.data, out.size = buffer.data, buffer.size
    return out
