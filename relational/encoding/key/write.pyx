"""Kernels that write one column of a block of rows in key form: bytes that compare as the values do.

    integers      big-endian with the sign bit flipped
    REAL, DOUBLE  IEEE bits, -0.0 as 0.0, one NaN; sign bit set if it was clear, else all bits inverted
    VARCHAR, BYTEA  00 if empty; else 01 and groups of 8 bytes, each followed by 09 if more follow, or by the
                  number of bytes that count in it, the rest of the group being zero
    DATE          int32 days, 0001-01-01 is 1       TIMESTAMPTZ  int64 microseconds since 1970
    TIME          u32 seconds, u32 nanoseconds      TIMESTAMP    int64 seconds, u32 nanoseconds
    INTERVAL      int128 microseconds of its length NUMERIC      see key/decimal

All under the tag of the column, and all inverted where it descends. FORMAT.md has the examples; composed kinds (STRUCT,
LIST, JSONB) are in `key/nested`.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from relational.chunk.column cimport (
    BIGINT, BOOLEAN, ColumnView, DATE, DOUBLE, INT, INTERVAL, NUMERIC, REAL, SMALLINT, TIME, TIMESTAMP, TIMESTAMPTZ,
    bit_at, has_bytes, is_null,
)
from relational.chunk.scalar cimport (
    ArrowInterval, __builtin_bswap16, __builtin_bswap32, __builtin_bswap64, clock_of_time, day_number, int128_t,
    length_of_interval, load16, load32, load64, ordered32_of_float, ordered64_of_double, split_timestamp, store16,
    store32, store64, uint128_t,
)
from relational.encoding.field cimport Field
from relational.encoding.key.decimal cimport encode_decimal

cdef uint64_t SIGN64 = (<uint64_t>1) << 63


cdef void add_key_sizes(
    const Field* field, const ColumnView* view, Py_ssize_t start, Py_ssize_t count, Py_ssize_t* sizes, uint8_t* scratch
) noexcept nogil:
    """Kinds of variable size, and NUMERIC, whose payloads are left in `scratch`, one slot per row, for the writer."""
    cdef Py_ssize_t i
    cdef int32_t size
    cdef uint8_t* slot
    if has_bytes(field.kind):
        for i in range(count):
            size = view.offsets[start + i + 1] - view.offsets[start + i]
            sizes[i] += 1 if is_null(view, start + i) else 2 + ((size + 7) >> 3) * 9
        return
    for i in range(count):
        slot = scratch + i * DECIMAL_SLOT
        if is_null(view, start + i):
            sizes[i] += 1
        else:
            slot[0] = <uint8_t>encode_decimal(view.values + (start + i) * 16, view.scale, field.flip, slot + 1)
            sizes[i] += 1 + slot[0]


cdef Py_ssize_t write_keys(
    const Field* field, const ColumnView* view, Py_ssize_t start, Py_ssize_t count, uint8_t** cursors,
    const uint8_t* scratch
) noexcept nogil:
    cdef int kind = field.kind
    if kind == BIGINT or kind == TIMESTAMPTZ:
        write_int64(field, view, start, count, cursors)
    elif kind == INT or kind == SMALLINT or kind == BOOLEAN:
        write_small(field, view, start, count, cursors)
    elif kind == DOUBLE or kind == REAL:
        write_floats(field, view, start, count, cursors)
    elif has_bytes(kind):
        write_strings(field, view, start, count, cursors)
    elif kind == NUMERIC:
        write_decimals(field, view, start, count, cursors, scratch)
    elif kind == INTERVAL:
        write_intervals(field, view, start, count, cursors)
    else:
        return write_times(field, view, start, count, cursors)
    return -1


cdef inline bint put_tag(
    const Field* field, const ColumnView* view, Py_ssize_t row, uint8_t** cursor
) noexcept nogil:
    """Writes the tag; True if a payload follows."""
    cdef bint null = is_null(view, row)
    cursor[0][0] = field.null_tag if null else field.value_tag
    cursor[0] += 1
    return not null


cdef inline void put64(uint8_t** cursor, uint64_t ordered, uint64_t flip) noexcept nogil:
    store64(cursor[0], __builtin_bswap64(ordered ^ flip))
    cursor[0] += 8


cdef inline void put32(uint8_t** cursor, uint32_t ordered, uint32_t flip) noexcept nogil:
    store32(cursor[0], __builtin_bswap32(ordered ^ flip))
    cursor[0] += 4


cdef void write_int64(
    const Field* field, const ColumnView* view, Py_ssize_t start, Py_ssize_t count, uint8_t** cursors
) noexcept nogil:
    cdef uint64_t flip = SIGN64 ^ (<uint64_t>0 - (field.flip & 1))
    cdef const uint8_t* values = view.values + start * 8
    cdef uint8_t tag = field.value_tag
    cdef uint8_t* out
    cdef Py_ssize_t i
    if view.validity == NULL:
        for i in range(count):
            out = cursors[i]
            out[0] = tag
            store64(out + 1, __builtin_bswap64(load64(values + i * 8) ^ flip))
            cursors[i] = out + 9
        return
    for i in range(count):
        if put_tag(field, view, start + i, &cursors[i]):
            put64(&cursors[i], load64(values + i * 8), flip)


cdef void write_small(
    const Field* field, const ColumnView* view, Py_ssize_t start, Py_ssize_t count, uint8_t** cursors
) noexcept nogil:
    cdef uint32_t flip = <uint32_t>0 - (field.flip & 1)
    cdef Py_ssize_t i
    for i in range(count):
        if not put_tag(field, view, start + i, &cursors[i]):
            continue
        if field.kind == INT:
            put32(&cursors[i], load32(view.values + (start + i) * 4) ^ <uint32_t>0x80000000, flip)
        elif field.kind == SMALLINT:
            store16(cursors[i], __builtin_bswap16(
                <uint16_t>(load16(view.values + (start + i) * 2) ^ 0x8000 ^ flip)))
            cursors[i] += 2
        else:
            cursors[i][0] = <uint8_t>(bit_at(view.values, view.offset + start + i) ^ field.flip)
            cursors[i] += 1


cdef void write_floats(
    const Field* field, const ColumnView* view, Py_ssize_t start, Py_ssize_t count, uint8_t** cursors
) noexcept nogil:
    cdef uint64_t flip = <uint64_t>0 - (field.flip & 1)
    cdef Py_ssize_t i
    for i in range(count):
        if not put_tag(field, view, start + i, &cursors[i]):
            continue
        if field.kind == DOUBLE:
            put64(&cursors[i], ordered64_of_double(load64(view.values + (start + i) * 8)), flip)
        else:
            put32(&cursors[i], ordered32_of_float(load32(view.values + (start + i) * 4)), <uint32_t>flip)


cdef inline uint8_t* put_groups(
    const uint8_t* at, int32_t size, const uint8_t* readable, uint8_t* out, uint64_t flip
) noexcept nogil:
    """Groups of 8 for `size` > 0 bytes; the bytes from there to `readable` may be loaded but do not matter."""
    cdef uint64_t group
    while size > 8:
        store64(out, load64(at) ^ flip)
        out[8] = <uint8_t>(9 ^ flip)
        out += 9
        at += 8
        size -= 8
    if at + 8 <= readable:
        group = load64(at) & (<uint64_t>0xFFFFFFFFFFFFFFFF >> (64 - 8 * size))
    else:
        group = 0
        memcpy(&group, at, <size_t>size)
    store64(out, group ^ flip)
    out[8] = <uint8_t>(size ^ flip)
    return out + 9


cdef void write_strings(
    const Field* field, const ColumnView* view, Py_ssize_t start, Py_ssize_t count, uint8_t** cursors
) noexcept nogil:
    cdef uint64_t flip = <uint64_t>0 - (field.flip & 1)
    cdef const uint8_t* readable = view.data + view.data_bytes
    cdef const int32_t* offsets = view.offsets + start
    cdef uint8_t* out
    cdef int32_t size
    cdef Py_ssize_t i
    for i in range(count):
        if not put_tag(field, view, start + i, &cursors[i]):
            continue
        out = cursors[i]
        size = offsets[i + 1] - offsets[i]
        out[0] = (1 if size > 0 else 0) ^ field.flip
        out += 1
        if size > 0:
            out = put_groups(view.data + offsets[i], size, readable, out, flip)
        cursors[i] = out


cdef void write_decimals(
    const Field* field, const ColumnView* view, Py_ssize_t start, Py_ssize_t count, uint8_t** cursors,
    const uint8_t* scratch
) noexcept nogil:
    cdef Py_ssize_t i
    cdef const uint8_t* slot
    for i in range(count):
        if put_tag(field, view, start + i, &cursors[i]):
            slot = scratch + i * DECIMAL_SLOT
            memcpy(cursors[i], slot + 1, slot[0])
            cursors[i] += slot[0]


cdef void write_intervals(
    const Field* field, const ColumnView* view, Py_ssize_t start, Py_ssize_t count, uint8_t** cursors
) noexcept nogil:
    cdef uint64_t flip = <uint64_t>0 - (field.flip & 1)
    cdef ArrowInterval interval
    cdef uint128_t length
    cdef Py_ssize_t i
    for i in range(count):
        if put_tag(field, view, start + i, &cursors[i]):
            memcpy(&interval, view.values + (start + i) * 16, 16)
            length = <uint128_t>length_of_interval(&interval)
            put64(&cursors[i], <uint64_t>(length >> 64) ^ SIGN64, flip)
            put64(&cursors[i], <uint64_t>length, flip)


cdef Py_ssize_t write_times(
    const Field* field, const ColumnView* view, Py_ssize_t start, Py_ssize_t count, uint8_t** cursors
) noexcept nogil:
    """DATE, TIME and TIMESTAMP: the kinds with values that have no key."""
    cdef uint64_t flip = <uint64_t>0 - (field.flip & 1)
    cdef uint32_t flip32 = <uint32_t>flip, seconds, nanoseconds
    cdef int64_t long_seconds
    cdef int32_t day
    cdef Py_ssize_t i
    for i in range(count):
        if not put_tag(field, view, start + i, &cursors[i]):
            continue
        if field.kind == DATE:
            if not day_number(<int32_t>load32(view.values + (start + i) * 4), &day):
                return i
            put32(&cursors[i], <uint32_t>day ^ <uint32_t>0x80000000, flip32)
        elif field.kind == TIME:
            if not clock_of_time(<int64_t>load64(view.values + (start + i) * 8), &seconds, &nanoseconds):
                return i
            put32(&cursors[i], seconds, flip32)
            put32(&cursors[i], nanoseconds, flip32)
        else:
            split_timestamp(<int64_t>load64(view.values + (start + i) * 8), &long_seconds, &nanoseconds)
            put64(&cursors[i], <uint64_t>long_seconds ^ SIGN64, flip)
            put32(&cursors[i], nanoseconds, flip32)
    return -1
