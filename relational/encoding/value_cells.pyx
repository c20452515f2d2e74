"""STRUCT and LIST in value form, both laid out as columns, little-endian:

    STRUCT  null bitmap | payloads of the fields of fixed width | u32 end of each other field | their payloads
    LIST    u32 count | null bitmap | payloads of the elements                where they have a fixed width
            u32 count | null bitmap | u32 end of each element | their payloads         where they have none

Bit i of a bitmap (byte i / 8, lowest bit first) is set where field or element i is NULL; its payload is then zeros, or
empty. Ends count from where the payloads behind them begin. How long the whole is, the reader knows from outside.
"""

from libc.stdint cimport INT32_MAX, int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from relational.chunk.column cimport BOOLEAN, ColumnView, JSONB, LIST, NUMERIC, STRUCT, VARCHAR, has_bytes, is_null
from relational.chunk.column_builder cimport ColumnBuilder
from relational.chunk.json_text cimport JsonText
from relational.chunk.scalar cimport load32, store32
from relational.encoding.field cimport (
    BAD_FORM, BAD_UTF8, FINE, Field, NO_JSON, SLACK, TRAILING, TRUNCATED, bitmap_bytes,
)
from relational.encoding.utf8 cimport first_bad_text
from relational.encoding.value_kernels cimport is_plain, put_one, take_one


cdef Py_ssize_t payload_size(const Field* field, const ColumnView* view, Py_ssize_t row) noexcept nogil:
    cdef Py_ssize_t size, i
    cdef int32_t first, count
    if field.fixed_bytes:
        return field.fixed_bytes
    if has_bytes(field.kind):
        return view.offsets[row + 1] - view.offsets[row]
    if field.kind == STRUCT:
        size = bitmap_bytes(field.child_count) + field.section + 4 * field.variable
        for i in range(field.child_count):
            if not field.children[i].fixed_bytes and not is_null(view.children[i], row):
                size += payload_size(&field.children[i], view.children[i], row)
        return size
    first = view.offsets[row]
    count = view.offsets[row + 1] - first
    size = 4 + bitmap_bytes(count)
    if field.children.fixed_bytes:
        return size + <Py_ssize_t>count * field.children.fixed_bytes
    size += 4 * <Py_ssize_t>count
    for i in range(first, first + count):
        if not is_null(view.children[0], i):
            size += payload_size(field.children, view.children[0], i)
    return size


cdef uint8_t* write_payload(const Field* field, const ColumnView* view, Py_ssize_t row, uint8_t* out) noexcept nogil:
    cdef int32_t size
    if field.fixed_bytes:
        return out + field.fixed_bytes if put_one(field, view, row, out) else NULL
    if has_bytes(field.kind):
        size = view.offsets[row + 1] - view.offsets[row]
        memcpy(out, view.data + view.offsets[row], <size_t>size)
        return out + size
    if field.kind == STRUCT:
        return write_struct(field, view, row, out)
    return write_list(field, view, row, out)


cdef uint8_t* write_struct(const Field* field, const ColumnView* view, Py_ssize_t row, uint8_t* out) noexcept nogil:
    cdef uint8_t* fixed = out + bitmap_bytes(field.child_count)
    cdef uint8_t* ends = fixed + field.section
    cdef uint8_t* data = ends + 4 * field.variable
    cdef uint8_t* tail = data
    cdef const Field* child
    cdef int i
    memset(out, 0, <size_t>(data - out))
    for i in range(field.child_count):
        child = &field.children[i]
        if is_null(view.children[i], row):
            out[i >> 3] |= <uint8_t>(1 << (i & 7))
        elif child.fixed_bytes:
            if not put_one(child, view.children[i], row, fixed):
                return NULL
        else:
            tail = write_payload(child, view.children[i], row, tail)
            if tail == NULL:
                return NULL
        if child.fixed_bytes:
            fixed += child.fixed_bytes
        else:
            store32(ends, <uint32_t>(tail - data))
            ends += 4
    return tail


cdef uint8_t* write_list(const Field* field, const ColumnView* view, Py_ssize_t row, uint8_t* out) noexcept nogil:
    cdef const Field* child = field.children
    cdef const ColumnView* elements = view.children[0]
    cdef int32_t first = view.offsets[row]
    cdef int32_t count = view.offsets[row + 1] - first, i
    cdef int width = child.fixed_bytes if child.fixed_bytes else 4
    cdef uint8_t* bits = out + 4
    cdef uint8_t* at = bits + bitmap_bytes(count)
    cdef uint8_t* data = at + <Py_ssize_t>count * width
    cdef uint8_t* tail = data
    store32(out, <uint32_t>count)
    if is_plain(child.kind) and elements.validity == NULL:
        memset(bits, 0, <size_t>(at - bits))
        memcpy(at, elements.values + <Py_ssize_t>first * width, <size_t>(data - at))
        return data
    memset(bits, 0, <size_t>(data - bits))
    for i in range(count):
        if is_null(elements, first + i):
            bits[i >> 3] |= <uint8_t>(1 << (i & 7))
        elif child.fixed_bytes:
            if not put_one(child, elements, first + i, at):
                return NULL
        else:
            tail = write_payload(child, elements, first + i, tail)
            if tail == NULL:
                return NULL
        if not child.fixed_bytes:
            store32(at, <uint32_t>(tail - data))
        at += width
    return tail


cdef int read_payload(
    const Field* field, ColumnBuilder sink, const uint8_t* at, const uint8_t* stop, JsonText json
) except -1 nogil:
    cdef int reason
    if at == NULL:
        sink.append_null()
        return FINE
    if field.kind == STRUCT:
        return read_struct(field, sink, at, stop, json)
    if field.kind == LIST:
        return read_list(field, sink, <ColumnBuilder>sink.children[0], at, stop, json)
    if not field.fixed_bytes:
        return read_text(field, sink, at, stop, json)
    if stop - at != field.fixed_bytes:
        return TRUNCATED if stop - at < field.fixed_bytes else TRAILING
    sink.reserve(1, 0)
    reason = take_one(field, at, sink.values + sink.rows * sink.width)
    sink.present[sink.rows] = 1
    sink.rows += 1
    return reason


cdef int read_text(
    const Field* field, ColumnBuilder sink, const uint8_t* at, const uint8_t* stop, JsonText json
) except -1 nogil:
    cdef int32_t ends[2]
    if stop - at > INT32_MAX:
        return BAD_FORM
    ends[0], ends[1] = 0, <int32_t>(stop - at)
    if field.kind == VARCHAR or field.kind == JSONB:
        if first_bad_text(at, ends, 1) >= 0:
            return BAD_UTF8
    if field.kind == JSONB and not is_canonical(at, stop, json):
        return NO_JSON
    sink.reserve(1, ends[1] + SLACK)
    memcpy(sink.data + sink.data_size, at, <size_t>ends[1])
    sink.data_size += ends[1]
    sink.present[sink.rows] = 1
    sink.rows += 1
    store32(sink.values + 4 * sink.rows, <uint32_t>sink.data_size)
    return FINE


cdef bint is_canonical(const uint8_t* at, const uint8_t* stop, JsonText json) except -1 nogil:
    json.out.size = 0
    return (json.write(at, stop - at) and json.out.size == stop - at
            and memcmp(json.out.data, at, <size_t>(stop - at)) == 0)


cdef inline bint end_of(const uint8_t* at, Py_ssize_t previous, Py_ssize_t most, Py_ssize_t* end) noexcept nogil:
    """Reads an end, which lies between the one before and `most`."""
    end[0] = load32(at)
    return previous <= end[0] <= most


cdef int read_struct(
    const Field* field, ColumnBuilder sink, const uint8_t* at, const uint8_t* stop, JsonText json
) except -1 nogil:
    cdef const uint8_t* fixed = at + bitmap_bytes(field.child_count)
    cdef const uint8_t* ends = fixed + field.section
    cdef const uint8_t* data = ends + 4 * field.variable
    cdef const uint8_t* begin
    cdef const uint8_t* end
    cdef Py_ssize_t previous = 0, last = 0
    cdef int reason = FINE
    cdef int i
    if data > stop:
        return TRUNCATED
    sink.reserve(1, 0)
    for i in range(field.child_count):
        if field.children[i].fixed_bytes:
            begin = fixed
            fixed += field.children[i].fixed_bytes
            end = fixed
        else:
            if not end_of(ends, previous, stop - data, &last):
                return TRUNCATED
            begin, end = data + previous, data + last
            previous = last
            ends += 4
        if at[i >> 3] >> (i & 7) & 1:
            begin = NULL
        reason = read_payload(&field.children[i], <ColumnBuilder>sink.children[i], begin, end, json)
        if reason != FINE:
            return reason
    sink.present[sink.rows] = 1
    sink.rows += 1
    return FINE if data + previous == stop else TRAILING


cdef int read_list(
    const Field* field, ColumnBuilder sink, ColumnBuilder elements, const uint8_t* at, const uint8_t* stop,
    JsonText json
) except -1 nogil:
    cdef const Field* child = field.children
    cdef int width = child.fixed_bytes if child.fixed_bytes else 4
    cdef Py_ssize_t count, i, previous = 0, last = 0
    cdef const uint8_t* bits = at + 4
    cdef const uint8_t* data
    cdef const uint8_t* begin
    cdef int reason = FINE
    if stop - at < 4:
        return TRUNCATED
    count = load32(at)
    if 4 + bitmap_bytes(count) + count * width > stop - at:
        return TRUNCATED
    if elements.rows + count > INT32_MAX:
        with gil:
            raise OverflowError("a column of lists ends at 2**31 - 1 elements")
    at = bits + bitmap_bytes(count)
    data = at + count * width
    sink.reserve(1, 0)
    if is_plain(child.kind) and child.kind != NUMERIC and no_bits(bits, at):
        append_plain(elements, at, count, width)
        at += count * width
    else:
        for i in range(count):
            begin = at
            if child.fixed_bytes:
                last = width
            else:
                if not end_of(at, previous, stop - data, &last):
                    return TRUNCATED
                begin = data + previous
                last -= previous
                previous += last
            if bits[i >> 3] >> (i & 7) & 1:
                begin = NULL
            reason = read_payload(child, elements, begin, begin + last if begin != NULL else NULL, json)
            if reason != FINE:
                return reason
            at += width
    sink.present[sink.rows] = 1
    sink.rows += 1
    store32(sink.values + 4 * sink.rows, <uint32_t>elements.rows)
    return FINE if data + previous == stop else TRAILING


cdef inline bint no_bits(const uint8_t* bits, const uint8_t* stop) noexcept nogil:
    cdef uint8_t seen = 0
    while bits < stop:
        seen |= bits[0]
        bits += 1
    return seen == 0


cdef int append_plain(ColumnBuilder sink, const uint8_t* at, Py_ssize_t count, int width) except -1 nogil:
    sink.reserve(count, 0)
    memcpy(sink.values + sink.rows * width, at, <size_t>(count * width))
    memset(sink.present + sink.rows, 1, <size_t>count)
    sink.rows += count
    return 0
