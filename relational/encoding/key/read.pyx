"""The kernel that reads one column of a block of rows in key form.

Each value has exactly one form, and any other is rejected: decoded keys re-encode to the same bytes. Every length is
checked against the end of the row before a read.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from relational.chunk.column cimport BIGINT, BOOLEAN, DATE, DOUBLE, INT, INTERVAL, NUMERIC, REAL, SMALLINT, TIME
from relational.chunk.column cimport TIMESTAMP, TIMESTAMPTZ, has_bytes
from relational.chunk.column_builder cimport ColumnBuilder
from relational.chunk.scalar cimport (
    ArrowInterval, __builtin_bswap16, __builtin_bswap32, __builtin_bswap64, arrow_day, double_of_ordered64,
    float_of_ordered32, int128_t, interval_of_length, join_timestamp, load16, load32, load64, ordered32_of_float,
    ordered64_of_double, store16, store32, store64, time_of_clock, uint128_t,
)
from relational.encoding.field cimport BAD_FORM, BAD_TAG, FINE, Field, OUT_OF_RANGE, Reason, TRUNCATED
from relational.encoding.key.decimal cimport decode_decimal

cdef uint64_t SIGN64 = (<uint64_t>1) << 63
cdef uint32_t SIGN32 = (<uint32_t>1) << 31


cdef Py_ssize_t read_keys(
    const Field* field, ColumnBuilder sink, Py_ssize_t count, const uint8_t** cursors, const uint8_t** limits,
    Reason* reason
) noexcept nogil:
    cdef Py_ssize_t failed
    if has_bytes(field.kind):
        failed = read_strings(field, sink, count, cursors, limits, reason)
    elif field.kind == NUMERIC:
        failed = read_decimals(field, sink, count, cursors, limits, reason)
    elif field.kind == BIGINT:
        failed = read_int64(field, sink, count, cursors, limits, reason)
    else:
        failed = read_fixed(field, sink, count, cursors, limits, reason)
    if failed < 0:
        sink.rows += count
    return failed


cdef inline int read_tag(
    const Field* field, const uint8_t** cursor, const uint8_t* limit, Reason* reason
) noexcept nogil:
    """1: a payload follows, 0: NULL, -1: neither."""
    cdef uint8_t tag
    if cursor[0] >= limit:
        reason[0] = TRUNCATED
        return -1
    tag = cursor[0][0]
    cursor[0] += 1
    if tag == field.value_tag:
        return 1
    if tag == field.null_tag:
        return 0
    reason[0] = BAD_TAG
    return -1


cdef Py_ssize_t read_int64(
    const Field* field, ColumnBuilder sink, Py_ssize_t count, const uint8_t** cursors, const uint8_t** limits,
    Reason* reason
) noexcept nogil:
    cdef uint64_t flip = SIGN64 ^ (<uint64_t>0 - (field.flip & 1))
    cdef uint8_t* values = sink.values + sink.rows * 8
    cdef uint8_t* present = sink.present + sink.rows
    cdef uint8_t value_tag = field.value_tag
    cdef const uint8_t* at
    cdef Py_ssize_t i
    cdef int tag
    for i in range(count):
        at = cursors[i]
        if limits[i] - at >= 9 and at[0] == value_tag:
            store64(values + i * 8, __builtin_bswap64(load64(at + 1)) ^ flip)
            present[i] = 1
            cursors[i] = at + 9
            continue
        tag = read_tag(field, &cursors[i], limits[i], reason)
        if tag != 0:
            reason[0] = TRUNCATED if tag > 0 else reason[0]
            return i
        present[i] = 0
        store64(values + i * 8, 0)
        sink.nulls += 1
    return -1


cdef Py_ssize_t read_fixed(
    const Field* field, ColumnBuilder sink, Py_ssize_t count, const uint8_t** cursors, const uint8_t** limits,
    Reason* reason
) noexcept nogil:
    cdef int width = sink.width, payload = field.fixed_bytes - 1, tag
    cdef uint8_t* values = sink.values + sink.rows * width
    cdef uint8_t* present = sink.present + sink.rows
    cdef Py_ssize_t i
    for i in range(count):
        tag = read_tag(field, &cursors[i], limits[i], reason)
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
        reason[0] = read_value(field, cursors[i], values + i * width)
        if reason[0] != FINE:
            return i
        cursors[i] += payload
    return -1


cdef inline Reason read_value(const Field* field, const uint8_t* at, uint8_t* value) noexcept nogil:
    """Reads one payload, which is complete, into Arrow's form."""
    cdef uint64_t flip = <uint64_t>0 - (field.flip & 1)
    cdef uint32_t short_flip = <uint32_t>flip, short_bits
    cdef uint64_t bits
    cdef int kind = field.kind
    if kind == INT:
        store32(value, __builtin_bswap32(load32(at)) ^ short_flip ^ SIGN32)
    elif kind == TIMESTAMPTZ:
        store64(value, __builtin_bswap64(load64(at)) ^ flip ^ SIGN64)
    elif kind == DOUBLE:
        bits = __builtin_bswap64(load64(at)) ^ flip
        store64(value, double_of_ordered64(bits))
        return FINE if ordered64_of_double(load64(value)) == bits else BAD_FORM
    elif kind == REAL:
        short_bits = __builtin_bswap32(load32(at)) ^ short_flip
        store32(value, float_of_ordered32(short_bits))
        return FINE if ordered32_of_float(load32(value)) == short_bits else BAD_FORM
    elif kind == SMALLINT:
        store16(value, <uint16_t>(__builtin_bswap16(load16(at)) ^ short_flip ^ 0x8000))
    elif kind == BOOLEAN:
        value[0] = at[0] ^ field.flip
        return FINE if value[0] <= 1 else BAD_FORM
    else:
        return read_time(kind, at, flip, value)
    return FINE


cdef Reason read_time(int kind, const uint8_t* at, uint64_t flip, uint8_t* value) noexcept nogil:
    """DATE, TIME, TIMESTAMP and INTERVAL."""
    cdef uint32_t short_flip = <uint32_t>flip
    cdef ArrowInterval interval
    cdef int64_t microseconds
    cdef int32_t day
    cdef uint64_t high
    if kind == DATE:
        if not arrow_day(<int32_t>(__builtin_bswap32(load32(at)) ^ short_flip ^ SIGN32), &day):
            return OUT_OF_RANGE
        store32(value, <uint32_t>day)
        return FINE
    high = __builtin_bswap64(load64(at)) ^ flip
    if kind == INTERVAL:
        if not interval_of_length(
            <int128_t>((<uint128_t>(high ^ SIGN64) << 64) | (__builtin_bswap64(load64(at + 8)) ^ flip)), &interval
        ):
            return OUT_OF_RANGE
        memcpy(value, &interval, 16)
        return FINE
    if kind == TIME:
        if not time_of_clock(<uint32_t>(high >> 32), <uint32_t>high, &microseconds):
            return OUT_OF_RANGE
    elif not join_timestamp(
        <int64_t>(high ^ SIGN64), __builtin_bswap32(load32(at + 8)) ^ short_flip, &microseconds
    ):
        return OUT_OF_RANGE
    store64(value, <uint64_t>microseconds)
    return FINE


cdef Py_ssize_t read_decimals(
    const Field* field, ColumnBuilder sink, Py_ssize_t count, const uint8_t** cursors, const uint8_t** limits,
    Reason* reason
) noexcept nogil:
    cdef uint8_t* values = sink.values + sink.rows * 16
    cdef uint8_t* present = sink.present + sink.rows
    cdef Py_ssize_t i
    cdef int tag
    for i in range(count):
        tag = read_tag(field, &cursors[i], limits[i], reason)
        if tag < 0:
            return i
        present[i] = <uint8_t>tag
        if tag == 0:
            memset(values + i * 16, 0, 16)
            sink.nulls += 1
            continue
        cursors[i] = decode_decimal(
            cursors[i], limits[i], field.flip, field.precision, field.scale, values + i * 16, reason)
        if cursors[i] == NULL:
            return i
    return -1


cdef Py_ssize_t read_strings(
    const Field* field, ColumnBuilder sink, Py_ssize_t count, const uint8_t** cursors, const uint8_t** limits,
    Reason* reason
) noexcept nogil:
    cdef uint64_t flip = <uint64_t>0 - (field.flip & 1)
    cdef int32_t* ends = <int32_t*>sink.values + sink.rows + 1
    cdef uint8_t* present = sink.present + sink.rows
    cdef uint8_t* out = sink.data + sink.data_size
    cdef const uint8_t* at
    cdef Py_ssize_t i
    cdef int tag
    for i in range(count):
        tag = read_tag(field, &cursors[i], limits[i], reason)
        if tag < 0:
            return i
        present[i] = <uint8_t>tag
        sink.nulls += not tag
        if tag == 1:
            at = cursors[i]
            if at >= limits[i]:
                reason[0] = TRUNCATED
                return i
            if at[0] ^ field.flip == 1:
                at = read_groups(at + 1, limits[i], flip, &out, reason)
                if at == NULL:
                    return i
            elif at[0] == field.flip:
                at += 1
            else:
                reason[0] = BAD_FORM
                return i
            cursors[i] = at
        ends[i] = <int32_t>(out - sink.data)
    sink.data_size = out - sink.data
    return -1
