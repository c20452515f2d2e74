"""Kernels that write and read one column of a block of rows in value form.

A tag, 00 for NULL or 01, and then, little-endian and without loss:

    integers, REAL, DOUBLE  as in memory            BOOLEAN    00 or 01
    NUMERIC                 int128, the value times 10 ** scale of the type
    VARCHAR                 u32 bytes, then the bytes
    DATE                    int32 days, 0001-01-01 is 1        TIMESTAMPTZ  int64 microseconds since 1970
    TIME                    u32 seconds, u32 nanoseconds       TIMESTAMP    int64 seconds, u32 nanoseconds
    INTERVAL                int32 months, int32 days, int64 microseconds
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from relational.chunk.column cimport (
    BIGINT, BOOLEAN, ColumnView, DATE, DOUBLE, INT, INTERVAL, NUMERIC, REAL, SMALLINT, TIME, TIMESTAMP, TIMESTAMPTZ,
    VARCHAR, bit_at, is_null, width_of,
)
from relational.chunk.column_builder cimport ColumnBuilder
from relational.encoding.field cimport BAD_FORM, BAD_TAG, FINE, Field, OUT_OF_RANGE, Reason, TRUNCATED
from relational.chunk.scalar cimport (
    ArrowInterval, arrow_day, clock_of_time, day_number, floor_divide, int128_t, join_timestamp, load32, load64,
    split_timestamp, store32, store64, time_of_clock, uint128_t,
)

cdef enum:
    NULL_TAG = 0
    VALUE_TAG = 1

cdef int64_t MOST_MICROSECONDS = INT64_MAX // 1000      # of an interval: Arrow's are int64 nanoseconds


cdef inline bint is_plain(int kind) noexcept nogil:
    """The payload is the value as it lies in memory."""
    return (kind == SMALLINT or kind == INT or kind == BIGINT or kind == REAL or kind == DOUBLE
            or kind == TIMESTAMPTZ or kind == NUMERIC)


cdef void add_value_sizes(
    const Field* field, const ColumnView* view, Py_ssize_t start, Py_ssize_t count, int32_t* sizes, uint8_t* scratch
) noexcept nogil:
    """VARCHAR, the only kind whose size depends on the value."""
    cdef const int32_t* offsets = view.offsets + start
    cdef Py_ssize_t i
    for i in range(count):
        sizes[i] += 1 if is_null(view, start + i) else 5 + offsets[i + 1] - offsets[i]


cdef Py_ssize_t write_values(
    const Field* field, const ColumnView* view, Py_ssize_t start, Py_ssize_t count, uint8_t** cursors,
    const uint8_t* scratch
) noexcept nogil:
    cdef int payload = field.fixed_bytes - 1
    if field.kind == VARCHAR:
        write_text(view, start, count, cursors)
    elif payload == 8 and is_plain(field.kind):
        write_plain(view, start, count, cursors, 8)
    elif payload == 4 and is_plain(field.kind):
        write_plain(view, start, count, cursors, 4)
    elif is_plain(field.kind):
        write_plain(view, start, count, cursors, payload)
    else:
        return write_converted(field, view, start, count, cursors)
    return -1


cdef inline void write_plain(
    const ColumnView* view, Py_ssize_t start, Py_ssize_t count, uint8_t** cursors, int width
) noexcept nogil:
    cdef const uint8_t* values = view.values + start * width
    cdef uint8_t* out
    cdef Py_ssize_t i
    for i in range(count):
        out = cursors[i]
        if is_null(view, start + i):
            out[0] = NULL_TAG
            cursors[i] = out + 1
        else:
            out[0] = VALUE_TAG
            memcpy(out + 1, values + i * width, <size_t>width)
            cursors[i] = out + 1 + width


cdef void write_text(
    const ColumnView* view, Py_ssize_t start, Py_ssize_t count, uint8_t** cursors
) noexcept nogil:
    # Exact copies: the next row's earlier columns already stand behind this one.
    cdef const int32_t* offsets = view.offsets + start
    cdef uint8_t* out
    cdef int32_t size
    cdef Py_ssize_t i
    for i in range(count):
        out = cursors[i]
        if is_null(view, start + i):
            out[0] = NULL_TAG
            cursors[i] = out + 1
            continue
        size = offsets[i + 1] - offsets[i]
        out[0] = VALUE_TAG
        store32(out + 1, <uint32_t>size)
        copy_exact(out + 5, view.data + offsets[i], size)
        cursors[i] = out + 5 + size


cdef inline void copy_exact(uint8_t* out, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Copies `size` bytes and touches no others; short strings without a call."""
    cdef uint8_t half[8]
    if size > 16:
        memcpy(out, data, <size_t>size)
    elif size >= 8:
        memcpy(half, data + size - 8, 8)
        memcpy(out, data, 8)
        memcpy(out + size - 8, half, 8)
    elif size >= 4:
        memcpy(half, data + size - 4, 4)
        memcpy(out, data, 4)
        memcpy(out + size - 4, half, 4)
    elif size > 0:
        out[0] = data[0]
        out[size >> 1] = data[size >> 1]
        out[size - 1] = data[size - 1]


cdef Py_ssize_t write_converted(
    const Field* field, const ColumnView* view, Py_ssize_t start, Py_ssize_t count, uint8_t** cursors
) noexcept nogil:
    cdef int width = width_of(field.kind)
    cdef Py_ssize_t i
    cdef uint8_t* out
    for i in range(count):
        out = cursors[i]
        if is_null(view, start + i):
            out[0] = NULL_TAG
            cursors[i] = out + 1
            continue
        out[0] = VALUE_TAG
        if field.kind == BOOLEAN:
            out[1] = bit_at(view.values, view.offset + start + i)
        elif not put_time(field.kind, view.values + (start + i) * width, out + 1):
            return i
        cursors[i] = out + field.fixed_bytes
    return -1


cdef inline bint put_time(int kind, const uint8_t* value, uint8_t* out) noexcept nogil:
    """DATE, TIME, TIMESTAMP and INTERVAL; False for a value that has no form."""
    cdef ArrowInterval interval
    cdef uint32_t seconds, nanoseconds
    cdef int64_t long_seconds
    cdef int32_t day
    cdef bint fine = True
    if kind == DATE:
        fine = day_number(<int32_t>load32(value), &day)
        store32(out, <uint32_t>day)
    elif kind == TIME:
        fine = clock_of_time(<int64_t>load64(value), &seconds, &nanoseconds)
        store32(out, seconds)
        store32(out + 4, nanoseconds)
    elif kind == TIMESTAMP:
        split_timestamp(<int64_t>load64(value), &long_seconds, &nanoseconds)
        store64(out, <uint64_t>long_seconds)
        store32(out + 8, nanoseconds)
    else:
        memcpy(&interval, value, 16)
        interval.nanoseconds = floor_divide(interval.nanoseconds, 1000)
        fine = interval.nanoseconds >= -MOST_MICROSECONDS
        memcpy(out, &interval, 16)
    return fine


cdef Py_ssize_t read_values(
    const Field* field, ColumnBuilder sink, Py_ssize_t count, const uint8_t** cursors, const uint8_t** limits,
    Reason* reason
) noexcept nogil:
    cdef Py_ssize_t failed
    if field.kind == VARCHAR:
        failed = read_text(sink, count, cursors, limits, reason)
    elif field.fixed_bytes == 9 and is_plain(field.kind):
        failed = read_plain(field, sink, count, cursors, limits, 8, reason)
    elif field.fixed_bytes == 5 and is_plain(field.kind):
        failed = read_plain(field, sink, count, cursors, limits, 4, reason)
    elif is_plain(field.kind):
        failed = read_plain(field, sink, count, cursors, limits, field.fixed_bytes - 1, reason)
    else:
        failed = read_converted(field, sink, count, cursors, limits, reason)
    if failed < 0:
        sink.rows += count
    return failed


cdef inline int take_tag(const uint8_t** cursor, const uint8_t* limit, Reason* reason) noexcept nogil:
    """1: a payload follows, 0: NULL or no row at all, -1: neither."""
    cdef int tag
    if cursor[0] >= limit:
        if cursor[0] == NULL:
            return 0
        reason[0] = TRUNCATED
        return -1
    tag = cursor[0][0]
    cursor[0] += 1
    if tag > VALUE_TAG:
        reason[0] = BAD_TAG
        return -1
    return tag


cdef inline bint fits(const uint8_t* value, int precision) noexcept nogil:
    """A decimal128 has no more digits than its type."""
    cdef int128_t number
    cdef uint128_t magnitude, bound = 1
    cdef int i
    memcpy(&number, value, 16)
    magnitude = 0 - <uint128_t>number if number < 0 else <uint128_t>number
    if magnitude < <uint64_t>1_000_000_000_000_000_000 and precision >= 18:
        return True
    for i in range(precision):
        bound *= 10
    return magnitude < bound


cdef inline Py_ssize_t read_plain(
    const Field* field, ColumnBuilder sink, Py_ssize_t count, const uint8_t** cursors, const uint8_t** limits,
    int width, Reason* reason
) noexcept nogil:
    cdef uint8_t* values = sink.values + sink.rows * width
    cdef uint8_t* present = sink.present + sink.rows
    cdef const uint8_t* at
    cdef Py_ssize_t i
    cdef int tag
    for i in range(count):
        at = cursors[i]
        if limits[i] - at > width and at[0] == VALUE_TAG:
            memcpy(values + i * width, at + 1, <size_t>width)
            present[i] = 1
            cursors[i] = at + 1 + width
            if field.kind == NUMERIC and not fits(values + i * width, field.precision):
                reason[0] = OUT_OF_RANGE
                return i
            continue
        tag = take_tag(&cursors[i], limits[i], reason)
        if tag != 0:
            reason[0] = TRUNCATED if tag > 0 else reason[0]
            return i
        present[i] = 0
        memset(values + i * width, 0, <size_t>width)
        sink.nulls += 1
    return -1


cdef Py_ssize_t read_text(
    ColumnBuilder sink, Py_ssize_t count, const uint8_t** cursors, const uint8_t** limits, Reason* reason
) noexcept nogil:
    """REQUIRES 16 bytes to spare behind the room for all strings."""
    cdef int32_t* ends = <int32_t*>sink.values + sink.rows + 1
    cdef uint8_t* present = sink.present + sink.rows
    cdef uint8_t* out = sink.data + sink.data_size
    cdef const uint8_t* at
    cdef Py_ssize_t i, size
    cdef int tag
    for i in range(count):
        tag = take_tag(&cursors[i], limits[i], reason)
        if tag < 0:
            return i
        present[i] = <uint8_t>tag
        sink.nulls += not tag
        if tag == 1:
            at = cursors[i]
            if limits[i] - at < 4 or limits[i] - at - 4 < <Py_ssize_t>load32(at):
                reason[0] = TRUNCATED
                return i
            size = load32(at)
            if size <= 16 and limits[i] - at >= 20:
                memcpy(out, at + 4, 16)
            else:
                memcpy(out, at + 4, <size_t>size)
            out += size
            cursors[i] = at + 4 + size
        ends[i] = <int32_t>(out - sink.data)
    sink.data_size = out - sink.data
    return -1


cdef Py_ssize_t read_converted(
    const Field* field, ColumnBuilder sink, Py_ssize_t count, const uint8_t** cursors, const uint8_t** limits,
    Reason* reason
) noexcept nogil:
    cdef int width = sink.width, payload = field.fixed_bytes - 1, tag
    cdef uint8_t* values = sink.values + sink.rows * width
    cdef uint8_t* present = sink.present + sink.rows
    cdef Py_ssize_t i
    for i in range(count):
        tag = take_tag(&cursors[i], limits[i], reason)
        if tag < 0:
            return i
        present[i] = <uint8_t>tag
        if tag == 0:
            memset(values + i * width, 0, <size_t>width)
            sink.nulls += 1
            continue
        if limits[i] - cursors[i] < payload:
            reason[0] = TRUNCATED
            return i
        reason[0] = take_converted(field.kind, cursors[i], values + i * width)
        if reason[0] != FINE:
            return i
        cursors[i] += payload
    return -1


cdef inline Reason take_converted(int kind, const uint8_t* at, uint8_t* value) noexcept nogil:
    """BOOLEAN, DATE, TIME, TIMESTAMP and INTERVAL."""
    cdef ArrowInterval interval
    cdef int64_t microseconds
    cdef int32_t day
    cdef bint fine
    if kind == BOOLEAN:
        value[0] = at[0]
        return FINE if at[0] <= 1 else BAD_FORM
    if kind == DATE:
        fine = arrow_day(<int32_t>load32(at), &day)
        store32(value, <uint32_t>day)
    elif kind == INTERVAL:
        memcpy(&interval, at, 16)
        fine = -MOST_MICROSECONDS <= interval.nanoseconds <= MOST_MICROSECONDS
        interval.nanoseconds = <int64_t>(<uint64_t>interval.nanoseconds * 1000)
        memcpy(value, &interval, 16)
    else:
        if kind == TIME:
            fine = time_of_clock(load32(at), load32(at + 4), &microseconds)
        else:
            fine = join_timestamp(<int64_t>load64(at), load32(at + 8), &microseconds)
        store64(value, <uint64_t>microseconds)
    return FINE if fine else OUT_OF_RANGE
