"""STRUCT and LIST in value form, both laid out as columns, little-endian:

    STRUCT  null bitmap | payloads of the fields of fixed width | u32 end of each other field | their payloads
    LIST    u32 count | null bitmap | payloads of the elements                where they have a fixed width
            u32 count | null bitmap | u32 end of each element | their payloads         where they have none

Bit i of a bitmap (byte i / 8, lowest bit first) is set if field or element i is NULL; its payload is then zeros, or
empty. Ends count from the start of the payloads after them. The total size is stored by the container.
"""

from libc.stdint cimport INT32_MAX, int32_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy, memset

from relational.chunk.column cimport BYTEA, ColumnView, JSONB, LIST, NUMERIC, STRUCT, has_bytes, is_null
from relational.chunk.column_builder cimport ColumnBuilder
from relational.chunk.json cimport JsonText
from relational.chunk.scalar cimport load32, store32
from relational.encoding.field cimport (
    BAD_UTF8, FINE, Field, NO_JSON, SLACK, TRAILING, TRUNCATED, bitmap_bytes,
)
from relational.encoding.utf8 cimport first_bad_text
from relational.encoding.value.kernels cimport is_plain, put_one, read_bytes, copy_one


cdef enum:
    FEW = 64                            # values read at a time


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


cdef int read_cells(
    const Field* field, ColumnBuilder sink, Py_ssize_t count, const uint8_t** starts, const uint8_t** stops,
    JsonText json, Py_ssize_t* failed
) except -1 nogil:
    cdef Py_ssize_t at = 0, some
    cdef int reason = FINE
    if field.kind < STRUCT:
        return read_few(field, sink, count, starts, stops, json, failed)
    while at < count and reason == FINE:
        some = min(count - at, <Py_ssize_t>FEW)
        reason = read_few(field, sink, some, starts + at, stops + at, json, failed)
        if reason != FINE:
            failed[0] += at
        at += some
    return reason


cdef int read_few(
    const Field* field, ColumnBuilder sink, Py_ssize_t count, const uint8_t** starts, const uint8_t** stops,
    JsonText json, Py_ssize_t* failed
) except -1 nogil:
    """For STRUCT and LIST at most FEW, since that many cursors are on the stack for each nesting level."""
    if field.kind == STRUCT:
        return read_structs(field, sink, count, starts, stops, json, failed)
    if field.kind == LIST:
        return read_lists(field, sink, <ColumnBuilder>sink.children[0], count, starts, stops, json, failed)
    if field.fixed_bytes:
        return read_numbers(field, sink, count, starts, stops, failed)
    return read_texts(field, sink, count, starts, stops, json, failed)


cdef int read_numbers(
    const Field* field, ColumnBuilder sink, Py_ssize_t count, const uint8_t** starts, const uint8_t** stops,
    Py_ssize_t* failed
) except -1 nogil:
    cdef int width = sink.width, reason
    cdef uint8_t* values
    cdef Py_ssize_t i
    sink.reserve(count, 0)
    values = sink.values + sink.rows * width
    for i in range(count):
        sink.present[sink.rows + i] = starts[i] != NULL
        if starts[i] == NULL:
            sink.nulls += 1
            memset(values + i * width, 0, <size_t>width)
            continue
        failed[0] = i
        if stops[i] - starts[i] != field.fixed_bytes:
            return TRUNCATED if stops[i] - starts[i] < field.fixed_bytes else TRAILING
        reason = copy_one(field, starts[i], values + i * width)
        if reason != FINE:
            return reason
    sink.rows += count
    return FINE


cdef int read_texts(
    const Field* field, ColumnBuilder sink, Py_ssize_t count, const uint8_t** starts, const uint8_t** stops,
    JsonText json, Py_ssize_t* failed
) except -1 nogil:
    cdef Py_ssize_t i, room = 0, first = sink.rows
    for i in range(count):
        room += stops[i] - starts[i]
    sink.reserve(count, room + SLACK)
    read_bytes(sink, count, starts, stops)
    if field.kind != BYTEA:
        failed[0] = first_bad_text(sink.data, <int32_t*>sink.values + first, count)
        if failed[0] >= 0:
            return BAD_UTF8
    if field.kind == JSONB:
        for i in range(count):
            failed[0] = i
            if starts[i] != NULL and not is_canonical(starts[i], stops[i], json):
                return NO_JSON
    return FINE


cdef bint is_canonical(const uint8_t* at, const uint8_t* stop, JsonText json) except -1 nogil:
    json.out.size = 0
    return (json.write(at, stop - at) and json.out.size == stop - at
            and memcmp(json.out.data, at, <size_t>(stop - at)) == 0)


cdef int read_structs(
    const Field* field, ColumnBuilder sink, Py_ssize_t count, const uint8_t** starts, const uint8_t** stops,
    JsonText json, Py_ssize_t* failed
) except -1 nogil:
    cdef const uint8_t* cells[FEW]
    cdef const uint8_t* cell_stops[FEW]
    cdef Py_ssize_t ends[FEW]           # end of the last payload of each row
    cdef Py_ssize_t fixed = bitmap_bytes(field.child_count), end_at = fixed + field.section, width, i
    cdef Py_ssize_t head = end_at + 4 * <Py_ssize_t>field.variable
    cdef int child, reason
    sink.reserve(count, 0)
    for i in range(count):
        sink.present[sink.rows + i] = starts[i] != NULL
        sink.nulls += starts[i] == NULL
        ends[i] = head
        if starts[i] != NULL and stops[i] - starts[i] < head:
            failed[0] = i
            return TRUNCATED
    for child in range(field.child_count):
        width = field.children[child].fixed_bytes
        for i in range(count):
            cells[i] = cell_stops[i] = NULL
            if starts[i] == NULL:
                continue
            if width:
                cells[i], cell_stops[i] = starts[i] + fixed, starts[i] + fixed + width
            else:
                cells[i] = starts[i] + ends[i]
                if not end_of(starts[i] + end_at, ends[i] - head, stops[i] - starts[i] - head, &ends[i]):
                    failed[0] = i
                    return TRUNCATED
                ends[i] += head
                cell_stops[i] = starts[i] + ends[i]
            if starts[i][child >> 3] >> (child & 7) & 1:
                cells[i] = cell_stops[i] = NULL
        fixed += width
        end_at += 0 if width else 4
        reason = read_few(
            &field.children[child], <ColumnBuilder>sink.children[child], count, cells, cell_stops, json, failed)
        if reason != FINE:
            return reason
    for i in range(count):
        if starts[i] != NULL and starts[i] + ends[i] != stops[i]:
            failed[0] = i
            return TRAILING
    sink.rows += count
    return FINE


cdef inline bint end_of(const uint8_t* at, Py_ssize_t previous, Py_ssize_t most, Py_ssize_t* end) noexcept nogil:
    """Reads an end, which is between the previous one and `most`."""
    end[0] = load32(at)
    return previous <= end[0] <= most


cdef int read_lists(
    const Field* field, ColumnBuilder sink, ColumnBuilder elements, Py_ssize_t count, const uint8_t** starts,
    const uint8_t** stops, JsonText json, Py_ssize_t* failed
) except -1 nogil:
    cdef Py_ssize_t i
    cdef int reason
    sink.reserve(count, 0)
    for i in range(count):
        failed[0] = i
        sink.present[sink.rows] = starts[i] != NULL
        sink.nulls += starts[i] == NULL
        if starts[i] != NULL:
            reason = read_elements(field.children, elements, starts[i], stops[i], json)
            if reason != FINE:
                return reason
        sink.rows += 1
        store32(sink.values + 4 * sink.rows, <uint32_t>elements.rows)
    return FINE


cdef int read_elements(
    const Field* child, ColumnBuilder sink, const uint8_t* at, const uint8_t* stop, JsonText json
) except -1 nogil:
    """The elements of one list."""
    cdef const uint8_t* cells[FEW]
    cdef const uint8_t* cell_stops[FEW]
    cdef Py_ssize_t count, i, some = 0, end = 0, failed = 0
    cdef int width = child.fixed_bytes if child.fixed_bytes else 4, reason
    cdef const uint8_t* bits = at + 4
    cdef const uint8_t* data
    if stop - at < 4:
        return TRUNCATED
    count = load32(at)
    if 4 + bitmap_bytes(count) + count * width > stop - at:
        return TRUNCATED
    if sink.rows + count > INT32_MAX:
        with gil:
            raise OverflowError("a column of lists ends at 2**31 - 1 elements")
    at = bits + bitmap_bytes(count)
    data = at + count * width
    if is_plain(child.kind) and child.kind != NUMERIC and no_bits(bits, at):
        append_plain(sink, at, count, width)
        return FINE if data == stop else TRAILING
    for i in range(count):
        cells[some] = at + i * width
        if not child.fixed_bytes:
            cells[some] = data + end
            if not end_of(at + i * width, end, stop - data, &end):
                return TRUNCATED
        cell_stops[some] = cells[some] + width if child.fixed_bytes else data + end
        if bits[i >> 3] >> (i & 7) & 1:
            cells[some] = cell_stops[some] = NULL
        some += 1
        if some == FEW or i + 1 == count:
            reason = read_few(child, sink, some, cells, cell_stops, json, &failed)
            if reason != FINE:
                return reason
            some = 0
    return FINE if data + end == stop else TRAILING


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
