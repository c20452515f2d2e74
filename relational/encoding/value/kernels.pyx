"""Kernels that write and read one column of a block of rows in value form.

Payloads are little-endian and lose nothing:

    integers, REAL, DOUBLE  as in memory            BOOLEAN    00 or 01
    NUMERIC                 int128, the value times 10 ** scale of the type
    VARCHAR, BYTEA          the bytes               JSONB      canonical text
    DATE                    int32 days, 0001-01-01 is 1        TIMESTAMPTZ  int64 microseconds since 1970
    TIME                    u32 seconds, u32 nanoseconds       TIMESTAMP    int64 seconds, u32 nanoseconds
    INTERVAL                int32 months, int32 days, int64 microseconds

The layout of a row is described in `value/encoder`; STRUCT and LIST are in `value/nested`.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from relational.chunk.column cimport (
    BIGINT, BOOLEAN, ColumnView, DATE, DOUBLE, INT, INTERVAL, NUMERIC, REAL, SMALLINT, TIME, TIMESTAMP, TIMESTAMPTZ,
    bit_at, is_null, width_of,
)
from relational.chunk.column_builder cimport ColumnBuilder
from relational.chunk.scalar cimport (
    ArrowInterval, arrow_day, clock_of_time, day_number, floor_divide, int128_t, join_timestamp, load32, load64,
    split_timestamp, store32, store64, time_of_clock, uint128_t,
)
from relational.encoding.field cimport BAD_FORM, FINE, Field, OUT_OF_RANGE, Reason

cdef int64_t MOST_MICROSECONDS = INT64_MAX // 1000      # of an interval: Arrow uses int64 nanoseconds


cdef bint is_plain(int kind) noexcept nogil:
    return (kind == SMALLINT or kind == INT or kind == BIGINT or kind == REAL or kind == DOUBLE
            or kind == TIMESTAMPTZ or kind == NUMERIC)


cdef bint write_fixed(
    const Field* field, const ColumnView* view, Py_ssize_t start, Py_ssize_t count, uint8_t** rows, Py_ssize_t at,
    Py_ssize_t null_byte, uint8_t null_bit, Py_ssize_t* failed
) noexcept nogil:
    cdef Py_ssize_t i
    if not is_plain(field.kind) or view.validity != NULL:
        for i in range(count):
            if is_null(view, start + i):
                rows[i][null_byte] |= null_bit
                memset(rows[i] + at, 0, <size_t>field.fixed_bytes)
            elif not put_one(field, view, start + i, rows[i] + at):
                failed[0] = i
                return False
    elif field.fixed_bytes == 8:
        scatter(view.values + start * 8, count, rows, at, 8)
    elif field.fixed_bytes == 4:
        scatter(view.values + start * 4, count, rows, at, 4)
    else:
        scatter(view.values + start * field.fixed_bytes, count, rows, at, field.fixed_bytes)
    return True


cdef inline void scatter(
    const uint8_t* values, Py_ssize_t count, uint8_t** rows, Py_ssize_t at, int width
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(count):
        memcpy(rows[i] + at, values + i * width, <size_t>width)


cdef bint put_one(const Field* field, const ColumnView* view, Py_ssize_t row, uint8_t* out) noexcept nogil:
    cdef int width = width_of(field.kind)
    if field.kind == BOOLEAN:
        out[0] = bit_at(view.values, view.offset + row)
        return True
    if is_plain(field.kind):
        memcpy(out, view.values + row * width, <size_t>width)
        return True
    return put_time(field.kind, view.values + row * width, out)


cdef void write_texts(
    const ColumnView* view, Py_ssize_t start, Py_ssize_t count, uint8_t** rows, Py_ssize_t end_at, Py_ssize_t head,
    uint8_t** tails, Py_ssize_t null_byte, uint8_t null_bit
) noexcept nogil:
    # Exact copies: the shape of the next row is already written after this one.
    cdef const int32_t* offsets = view.offsets + start
    cdef uint8_t* tail
    cdef int32_t size
    cdef Py_ssize_t i
    for i in range(count):
        tail = tails[i]
        if is_null(view, start + i):
            rows[i][null_byte] |= null_bit
        else:
            size = offsets[i + 1] - offsets[i]
            copy_exact(tail, view.data + offsets[i], size)
            tail += size
            tails[i] = tail
        store32(rows[i] + end_at, <uint32_t>(tail - rows[i] - head))


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


cdef inline bint put_time(int kind, const uint8_t* value, uint8_t* out) noexcept nogil:
    """DATE, TIME, TIMESTAMP and INTERVAL; False for a value without an encoding."""
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


cdef Reason read_fixed(
    const Field* field, ColumnBuilder sink, Py_ssize_t count, const uint8_t** rows, Py_ssize_t at,
    Py_ssize_t null_byte, uint8_t null_bit, Py_ssize_t* failed
) noexcept nogil:
    cdef Reason reason = FINE
    cdef uint8_t* present = sink.present + sink.rows
    cdef int width = sink.width
    cdef uint8_t* values = sink.values + sink.rows * width
    cdef Py_ssize_t i, nulls = 0
    for i in range(count):
        present[i] = rows[i][null_byte] & null_bit == 0
        nulls += not present[i]
    if is_plain(field.kind) and field.kind != NUMERIC:
        if width == 8:
            collect(values, count, rows, at, 8)
        elif width == 4:
            collect(values, count, rows, at, 4)
        else:
            collect(values, count, rows, at, width)
    elif field.kind == NUMERIC:
        failed[0] = collect_decimals(values, count, rows, at, present, limit_of(field.precision))
        if failed[0] >= 0:
            return OUT_OF_RANGE
    else:
        for i in range(count):
            if not present[i]:
                memset(values + i * width, 0, <size_t>width)
                continue
            reason = copy_one(field, rows[i] + at, values + i * width)
            if reason != FINE:
                failed[0] = i
                return reason
    sink.rows += count
    sink.nulls += nulls
    return FINE


cdef inline void collect(
    uint8_t* values, Py_ssize_t count, const uint8_t** rows, Py_ssize_t at, int width
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(count):
        memcpy(values + i * width, rows[i] + at, <size_t>width)


cdef Py_ssize_t collect_decimals(
    uint8_t* values, Py_ssize_t count, const uint8_t** rows, Py_ssize_t at, const uint8_t* present, uint128_t limit
) noexcept nogil:
    """Zero where a row is not `present`. The first row whose value reaches the limit; -1 if none does."""
    cdef Py_ssize_t i
    for i in range(count):
        if not present[i]:
            memset(values + 16 * i, 0, 16)
            continue
        memcpy(values + 16 * i, rows[i] + at, 16)
        if not below(values + 16 * i, limit):
            return i
    return -1


cdef void read_bytes(
    ColumnBuilder sink, Py_ssize_t count, const uint8_t** starts, const uint8_t** stops
) noexcept nogil:
    cdef int32_t* ends = <int32_t*>sink.values + sink.rows + 1
    cdef uint8_t* present = sink.present + sink.rows
    cdef uint8_t* out = sink.data + sink.data_size
    cdef Py_ssize_t i, size, nulls = 0
    for i in range(count):
        size = stops[i] - starts[i]
        present[i] = starts[i] != NULL
        nulls += not present[i]
        copy_exact(out, starts[i], size)
        out += size
        ends[i] = <int32_t>(out - sink.data)
    sink.data_size = out - sink.data
    sink.rows += count
    sink.nulls += nulls


cdef inline uint128_t limit_of(int precision) noexcept nogil:
    """Above the magnitudes of a NUMERIC of so many digits."""
    cdef uint128_t limit = 1
    cdef int i
    for i in range(precision):
        limit *= 10
    return limit


cdef inline bint below(const uint8_t* value, uint128_t limit) noexcept nogil:
    """Whether the magnitude of a decimal128 is."""
    cdef int128_t number
    memcpy(&number, value, 16)
    return (0 - <uint128_t>number if number < 0 else <uint128_t>number) < limit


cdef Reason copy_one(const Field* field, const uint8_t* at, uint8_t* value) noexcept nogil:
    if not is_plain(field.kind):
        return copy_converted(field.kind, at, value)
    memcpy(value, at, <size_t>field.fixed_bytes)
    return OUT_OF_RANGE if field.kind == NUMERIC and not below(value, limit_of(field.precision)) else FINE


cdef inline Reason copy_converted(int kind, const uint8_t* at, uint8_t* value) noexcept nogil:
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
