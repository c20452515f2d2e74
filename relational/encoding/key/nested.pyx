"""STRUCT and LIST in key form.

    STRUCT  the fields one after the other, each with a tag: 00 before a value, 01 for NULL, which is the largest
    LIST    a string, in the form of VARCHAR, of the elements one after the other, each with such a tag

Where the column descends all of it is inverted, once. JSONB is in `key/json`.
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.chunk.column cimport ColumnView, LIST, STRUCT, VARCHAR, has_bytes, is_null
from relational.chunk.column_builder cimport ColumnBuilder
from relational.chunk.json cimport JsonText, put
from relational.chunk.scalar cimport load64, store32, store64
from relational.encoding.field cimport (
    BAD_FORM, BAD_TAG, BAD_UTF8, FINE, Field, OUT_OF_RANGE, Reason, SLACK, TRUNCATED,
)
from relational.encoding.key.json cimport append_json, read_json
from relational.encoding.key.read cimport read_keys, read_groups
from relational.encoding.key.write cimport DECIMAL_SLOT, add_key_sizes, write_keys
from relational.encoding.utf8 cimport first_bad_text


cdef void pass_flip_on(Field* field) noexcept nogil:
    cdef Field* child
    cdef int i
    for i in range(field.child_count):
        child = &field.children[i]
        child.flip = field.flip if field.kind == STRUCT else 0
        child.value_tag, child.null_tag = child.flip, child.flip ^ 1
        pass_flip_on(child)


cdef int append_cell(const Field* field, const ColumnView* view, Py_ssize_t row, ByteBuffer out) except -1 nogil:
    cdef Py_ssize_t start, i
    cdef int reason = FINE
    if is_null(view, row):
        put(out, field.null_tag)
        return FINE
    if not is_composed(field.kind):
        return append_leaf(field, view, row, out)
    put(out, field.value_tag)
    start = out.size
    if field.kind == STRUCT:
        for i in range(field.child_count):
            reason = append_cell(&field.children[i], view.children[i], row, out)
            if reason != FINE:
                return reason
    elif field.kind == LIST:
        for i in range(view.offsets[row], view.offsets[row + 1]):
            reason = append_cell(field.children, view.children[0], i, out)
            if reason != FINE:
                return reason
        close_groups(out, start, field.flip)
    else:
        append_json(view.data + view.offsets[row], view.data + view.offsets[row + 1], out)
        if field.flip:
            for i in range(start, out.size):
                out.data[i] ^= 0xFF
    return FINE


cdef int append_leaf(const Field* field, const ColumnView* view, Py_ssize_t row, ByteBuffer out) except -1 nogil:
    """Encodes one row by the column kernels."""
    cdef uint8_t scratch[DECIMAL_SLOT]
    cdef Py_ssize_t size = field.fixed_bytes
    cdef uint8_t* cursor
    if size == 0:
        add_key_sizes(field, view, row, 1, &size, scratch)
    if out.capacity - out.size < size:
        out.reserve(size)
    cursor = out.data + out.size
    if write_keys(field, view, row, 1, &cursor, scratch) >= 0:
        return OUT_OF_RANGE
    out.size += size
    return FINE


cdef int close_groups(ByteBuffer out, Py_ssize_t start, uint8_t flip) except -1 nogil:
    cdef uint64_t flips = <uint64_t>0 - (flip & 1)
    cdef Py_ssize_t size = out.size - start, groups = (size + 7) >> 3, group
    cdef uint64_t eight
    cdef uint8_t* at
    out.reserve(groups + 1 + SLACK)
    at = out.data + start
    group = groups - 1
    while group >= 0:
        eight = load64(at + 8 * group)
        if group == groups - 1 and size & 7:
            eight &= <uint64_t>0xFFFFFFFFFFFFFFFF >> (64 - 8 * (size & 7))
        store64(at + 1 + 9 * group, eight ^ flips)
        at[9 + 9 * group] = <uint8_t>((9 if group < groups - 1 else size - 8 * group) ^ flips)
        group -= 1
    at[0] = (1 if size else 0) ^ flip
    out.size = start + 1 + 9 * groups
    return 0


cdef int read_cell(
    const Field* field, ColumnBuilder sink, const uint8_t** cursor, const uint8_t* limit, JsonText json
) except -1 nogil:
    cdef int reason = FINE, i
    if not is_composed(field.kind):
        return read_leaf(field, sink, cursor, limit)
    if cursor[0] >= limit:
        return TRUNCATED
    if cursor[0][0] == field.null_tag:
        cursor[0] += 1
        sink.append_null()
        return FINE
    if cursor[0][0] != field.value_tag:
        return BAD_TAG
    cursor[0] += 1
    sink.reserve(1, 0)
    if field.kind == STRUCT:
        for i in range(field.child_count):
            reason = read_cell(&field.children[i], <ColumnBuilder>sink.children[i], cursor, limit, json)
            if reason != FINE:
                return reason
    elif field.kind == LIST:
        reason = read_list(field, <ColumnBuilder>sink.children[0], cursor, limit, json)
        store32(sink.values + 4 * (sink.rows + 1), <uint32_t>(<ColumnBuilder>sink.children[0]).rows)
    else:
        reason = read_json_cell(field, sink, cursor, limit, json)
    sink.present[sink.rows] = 1
    sink.rows += 1
    return reason


cdef int read_leaf(
    const Field* field, ColumnBuilder sink, const uint8_t** cursor, const uint8_t* limit
) except -1 nogil:
    cdef Py_ssize_t first = sink.rows
    cdef Reason reason = FINE
    sink.reserve(1, limit - cursor[0] + SLACK if has_bytes(field.kind) else 0)
    if read_keys(field, sink, 1, cursor, &limit, &reason) >= 0:
        return reason
    if field.kind == VARCHAR and first_bad_text(sink.data, <int32_t*>sink.values + first, 1) >= 0:
        return BAD_UTF8
    return FINE


cdef int read_list(
    const Field* field, ColumnBuilder sink, const uint8_t** cursor, const uint8_t* limit, JsonText json
) except -1 nogil:
    """Reads the elements from the string that contains them."""
    cdef uint8_t* bytes
    cdef uint8_t* stop
    cdef const uint8_t* at
    cdef Reason why = FINE
    cdef int reason = FINE
    if cursor[0] >= limit:
        return TRUNCATED
    cursor[0] += 1
    if (cursor[0] - 1)[0] == field.flip:
        return FINE
    if (cursor[0] - 1)[0] != field.flip ^ 1:
        return BAD_FORM
    bytes = stop = <uint8_t*>malloc(<size_t>(limit - cursor[0]) + SLACK)
    if bytes == NULL:
        with gil:
            raise MemoryError("no memory to decode a list")
    try:
        at = read_groups(cursor[0], limit, <uint64_t>0 - (field.flip & 1), &stop, &why)
        if at == NULL:
            return why
        cursor[0] = at
        at = bytes
        while at < stop and reason == FINE:
            reason = read_cell(field.children, sink, &at, stop, json)
    finally:
        free(bytes)
    return reason


cdef int read_json_cell(
    const Field* field, ColumnBuilder sink, const uint8_t** cursor, const uint8_t* limit, JsonText json
) except -1 nogil:
    cdef int reason
    cdef int32_t ends[2]
    json.out.size = 0
    reason = read_json(cursor, limit, field.flip, json, 0)
    if reason != FINE:
        return reason
    ends[0], ends[1] = 0, <int32_t>json.out.size
    if first_bad_text(json.out.data, ends, 1) >= 0:
        return BAD_UTF8
    sink.reserve(1, json.out.size + SLACK)
    memcpy(sink.data + sink.data_size, json.out.data, <size_t>json.out.size)
    sink.data_size += json.out.size
    store32(sink.values + 4 * (sink.rows + 1), <uint32_t>sink.data_size)
    return FINE
