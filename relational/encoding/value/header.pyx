"""The shape of a stored row, its first bytes: which columns the row holds, by id, and how wide each is.

    u8    80 + n: n bytes of runs follow, n < 127; or ff, and u16 n
    runs  u8 each: low three bits the width (0: has an end; 1 to 6: 1, 2, 4, 8, 12, 16 bytes), bit 3: a gap follows,
          high four bits the number of columns minus 1. The ids of a run are consecutive; they begin where the last
          run stopped (at 0 for the first), or, with a gap, so many ids later: LEB128 of the gap, not 0

So a reader can locate each column without knowing the types of the others. All rows written under one schema begin with
the same bytes.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t

from relational.encoding.field cimport (
    BAD_FORM, BAD_TAG, FINE, Field, OLD_FORM, Reason, TRUNCATED, bitmap_bytes,
)

cdef enum:
    SHAPE = 0x80
    LONG_SHAPE = 0xFF
    HAS_GAP = 8
    MOST_RUN = 16

cdef tuple WIDTHS = (0, 1, 2, 4, 8, 12, 16)
cdef int WIDTH_OF_CODE[8]
WIDTH_OF_CODE[:] = [0, 1, 2, 4, 8, 12, 16, -1]


cdef bytes shape_of(ids, widths):
    cdef list runs = []
    expected, at = 0, 0
    while at < len(ids):
        size = 1
        while size < MOST_RUN and at + size < len(ids) and (
            ids[at + size] == ids[at] + size and widths[at + size] == widths[at]
        ):
            size += 1
        gap = ids[at] - expected
        runs.append(WIDTHS.index(widths[at]) | (HAS_GAP if gap else 0) | (size - 1) << 4)
        while gap:
            runs.append(gap & 0x7F | (0x80 if gap > 0x7F else 0))
            gap >>= 7
        expected = ids[at] + size
        at += size
    if not runs:
        return b""
    if len(runs) < LONG_SHAPE - SHAPE:
        return bytes([SHAPE + len(runs)]) + bytes(runs)
    return bytes([LONG_SHAPE]) + len(runs).to_bytes(2, "little") + bytes(runs)


cdef inline Reason open_shape(
    const uint8_t* row, const uint8_t* stop, const uint8_t** at, const uint8_t** end
) noexcept nogil:
    """The first and last byte of the runs."""
    if row[0] < SHAPE:
        return OLD_FORM if row[0] <= 1 else BAD_TAG
    at[0] = row + 1
    end[0] = row + 1 + (row[0] - SHAPE)
    if row[0] == LONG_SHAPE:
        if stop - row < 3:
            return TRUNCATED
        at[0] = row + 3
        end[0] = row + 3 + (row[1] | <int>row[2] << 8)
    return FINE if end[0] <= stop else TRUNCATED


cdef inline bint read_gap(const uint8_t** at, const uint8_t* end, int64_t* id) noexcept nogil:
    cdef int64_t gap = 0
    cdef int shift = 0
    while at[0] < end and shift < 35:
        gap |= <int64_t>(at[0][0] & 0x7F) << shift
        at[0] += 1
        if not (at[0] - 1)[0] & 0x80:
            id[0] += gap
            return gap > 0
        shift += 7
    return False


cdef Reason read_shape(
    const uint8_t* row, const uint8_t* stop, const Field* fields, const int32_t* ids, const int32_t* order, int count,
    Shape* shape, ColumnLocation* locations
) noexcept nogil:
    cdef const uint8_t* at = row
    cdef const uint8_t* end = row
    cdef int64_t id = 0
    cdef int next = 0, i, size, width
    cdef Reason reason = FINE
    for i in range(count):
        locations[i].column = -1
    shape.start, shape.columns, shape.section, shape.variable = row, 0, 0, 0
    if row < stop:
        reason = open_shape(row, stop, &at, &end)
        if reason != FINE:
            return reason
    shape.bytes = end - row
    while at < end:
        size = (at[0] >> 4) + 1
        width = WIDTH_OF_CODE[at[0] & 7]
        at += 1
        if width < 0 or ((at - 1)[0] & HAS_GAP and not read_gap(&at, end, &id)) or id + size > INT32_MAX:
            return BAD_FORM
        while next < count and ids[order[next]] < id:
            next += 1
        while next < count and ids[order[next]] < id + size:
            if fields[order[next]].fixed_bytes != width:
                return BAD_FORM
            i = <int>(ids[order[next]] - id)
            locations[order[next]].column = shape.columns + i
            locations[order[next]].at = shape.section + i * width if width else shape.variable + i
            next += 1
        id += size
        shape.columns += size
        shape.section += size * width
        shape.variable += 0 if width else size
    shape.ends = shape.bytes + bitmap_bytes(shape.columns) + shape.section
    shape.head = shape.ends + 4 * <Py_ssize_t>shape.variable
    for i in range(count):
        if locations[i].column >= 0 and fields[i].fixed_bytes:
            locations[i].at += <int>(shape.ends - shape.section)
    return FINE
