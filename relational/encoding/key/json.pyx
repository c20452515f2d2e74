"""JSONB in key form: PostgreSQL's order, Object > Array > Boolean > Number > String > Null.

    01  null
    02  a string: the form of VARCHAR
    03  a number: 15 for zero; 16, u32 E + 2 ** 31 and base-100 digits, as in keys of NUMERIC but for decimal digits:
        |value| = 0.D1 D2 ... * 10 ** E; 14 and the same inverted where it is negative
    04  false, 05 true
    06  an array: u32 elements, then each
    07  an object: u32 keys, then each key (the form of VARCHAR) and its value, in the order of the canonical text
    00  the empty array as the whole value, which PostgreSQL orders first

Integers are big-endian. So of two arrays or objects the one with more elements is larger, as in PostgreSQL.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.chunk.json cimport JsonText, Member, compare_keys, put, put_escaped, put_number, unescaped
from relational.chunk.scalar cimport __builtin_bswap32, load32, store32
from relational.encoding.field cimport BAD_FORM, FINE, OUT_OF_RANGE, TRUNCATED

cdef enum:
    LONE_EMPTY_ARRAY = 0
    NOTHING = 1
    STRING = 2
    NUMBER = 3
    NO = 4
    YES = 5
    ARRAY = 6
    OBJECT = 7
    MOST_DEPTH = 1_000
    MOST_EXPONENT = 131_072


cdef int append_json(const uint8_t* text, const uint8_t* stop, ByteBuffer out) except -1 nogil:
    if stop - text == 2 and text[0] == b"[":
        return put(out, LONE_EMPTY_ARRAY)
    append_value(&text, stop, out)
    return 0


cdef int append_value(const uint8_t** at, const uint8_t* stop, ByteBuffer out) except -1 nogil:
    cdef uint8_t first = at[0][0]
    if first == b"{" or first == b"[":
        return append_many(at, stop, out, first == b"{")
    if first == b'"':
        put(out, STRING)
        return append_string(at, stop, out)
    if first == b"n" or first == b"t" or first == b"f":
        at[0] += 5 if first == b"f" else 4
        return put(out, NOTHING if first == b"n" else YES if first == b"t" else NO)
    put(out, NUMBER)
    return append_number(at, stop, out)


cdef int append_many(const uint8_t** at, const uint8_t* stop, ByteBuffer out, bint is_object) except -1 nogil:
    cdef Py_ssize_t count_at = out.size + 1
    cdef uint32_t count = 0
    put(out, OBJECT if is_object else ARRAY)
    out.append(<const uint8_t*>&count, 4)
    at[0] += 1
    while at[0] < stop and at[0][0] != b"}" and at[0][0] != b"]":
        at[0] += count > 0              # a comma
        if is_object:
            append_string(at, stop, out)
            at[0] += 1                  # the colon
        append_value(at, stop, out)
        count += 1
    at[0] += 1
    store32(out.data + count_at, __builtin_bswap32(count))
    return 0


cdef int append_string(const uint8_t** at, const uint8_t* stop, ByteBuffer out) except -1 nogil:
    """As VARCHAR: 00, or 01 and groups of eight, each followed by a byte."""
    cdef int filled = 0
    at[0] += 1
    put(out, 0 if at[0][0] == b'"' else 1)
    while at[0] < stop and at[0][0] != b'"':
        if filled == 8:
            put(out, 9)
            filled = 0
        put(out, unescaped(at))
        filled += 1
    at[0] += 1
    if filled == 0:
        return 0
    for _ in range(8 - filled):
        put(out, 0)
    return put(out, <uint8_t>filled)


cdef int append_number(const uint8_t** at, const uint8_t* stop, ByteBuffer out) except -1 nogil:
    cdef bint negative = at[0][0] == b"-", pointed = False, minus
    cdef int64_t point = 0, exponent = 0
    cdef Py_ssize_t start = out.size, digits_at, zeros = 0, count = 0
    at[0] += negative
    put(out, 0x16)
    digits_at = out.size + 4
    out.append(<const uint8_t*>&point, 4)
    while at[0] < stop and (at[0][0] == b"." or 48 <= at[0][0] <= 57):
        if at[0][0] == b".":
            pointed = True
        elif count == 0 and at[0][0] == b"0":
            point -= pointed            # a zero after the point, before the first digit
        else:
            put(out, at[0][0] - 48)
            count += 1
            point += not pointed
            zeros = zeros + 1 if at[0][0] == b"0" else 0
        at[0] += 1
    if at[0] < stop and at[0][0] == b"e":
        minus = at[0][1] == b"-"
        at[0] += 2
        while at[0] < stop and 48 <= at[0][0] <= 57:
            exponent = exponent * 10 + at[0][0] - 48
            at[0] += 1
        point += -exponent if minus else exponent
    count -= zeros
    if count == 0:
        out.size = start
        return put(out, 0x15)
    store32(out.data + start + 1, __builtin_bswap32(<uint32_t>(point + (<int64_t>1 << 31))))
    pair_digits(out, start, digits_at, count, negative)
    return 0


cdef void pair_digits(
    ByteBuffer out, Py_ssize_t start, Py_ssize_t digits_at, Py_ssize_t count, bint negative
) noexcept nogil:
    """The decimal digits from `digits_at` on as base-100 digits; all bytes from `start` on inverted if negative."""
    cdef Py_ssize_t pairs = (count + 1) >> 1, i
    cdef uint8_t* digits = out.data + digits_at
    cdef int pair
    for i in range(pairs):
        pair = digits[2 * i] * 10 + (digits[2 * i + 1] if 2 * i + 1 < count else 0)
        digits[i] = <uint8_t>(2 * pair + (i + 1 < pairs))
    out.size = digits_at + pairs
    if negative:
        out.data[start] = 0x14
        for i in range(start + 1, out.size):
            out.data[i] ^= 0xFF


cdef int read_json(
    const uint8_t** cursor, const uint8_t* limit, uint8_t flip, JsonText json, int depth
) except -1 nogil:
    cdef uint8_t kind
    if cursor[0] >= limit:
        return TRUNCATED
    kind = cursor[0][0] ^ flip
    cursor[0] += 1
    if kind == LONE_EMPTY_ARRAY and depth == 0:
        json.out.append(<const uint8_t*>b"[]", 2)
    elif kind == NOTHING:
        json.out.append(<const uint8_t*>b"null", 4)
    elif kind == NO:
        json.out.append(<const uint8_t*>b"false", 5)
    elif kind == YES:
        json.out.append(<const uint8_t*>b"true", 4)
    elif kind == STRING:
        return read_string(cursor, limit, flip, json, NULL)
    elif kind == NUMBER:
        return read_number(cursor, limit, flip, json)
    elif (kind == ARRAY or kind == OBJECT) and depth < MOST_DEPTH:
        return read_many(cursor, limit, flip, json, depth + 1, kind == OBJECT)
    else:
        return BAD_FORM
    return FINE


cdef int read_many(
    const uint8_t** cursor, const uint8_t* limit, uint8_t flip, JsonText json, int depth, bint is_object
) except -1 nogil:
    cdef Member previous, member
    cdef uint32_t count, i
    cdef int reason
    if limit - cursor[0] < 4:
        return TRUNCATED
    count = __builtin_bswap32(load32(cursor[0])) ^ (<uint32_t>0 - (flip & 1))
    cursor[0] += 4
    if count == 0 and not is_object and depth == 1:
        return BAD_FORM
    put(json.out, b"{" if is_object else b"[")
    for i in range(count):
        if i > 0:
            put(json.out, b",")
        if is_object:
            member.start = json.out.size
            reason = read_string(cursor, limit, flip, json, &member.key_bytes)
            if reason != FINE:
                return reason
            member.base = previous.base = json.out.data
            if i > 0 and compare_keys(&previous, &member) >= 0:
                return BAD_FORM
            previous = member
            put(json.out, b":")
        reason = read_json(cursor, limit, flip, json, depth)
        if reason != FINE:
            return reason
    put(json.out, b"}" if is_object else b"]")
    return FINE


cdef int read_string(
    const uint8_t** cursor, const uint8_t* limit, uint8_t flip, JsonText json, Py_ssize_t* bytes
) except -1 nogil:
    """Appends the string in quotes; `bytes`, unless NULL: the size of the unescaped string."""
    cdef const uint8_t* at = cursor[0]
    cdef Py_ssize_t size = 0
    cdef uint8_t marker = 9
    cdef int i
    if at >= limit:
        return TRUNCATED
    if at[0] ^ flip > 1:
        return BAD_FORM
    if at[0] == flip:
        marker = 0
    at += 1
    put(json.out, b'"')
    while marker == 9:
        if limit - at < 9:
            return TRUNCATED
        marker = at[8] ^ flip
        if marker == 0 or marker > 9:
            return BAD_FORM
        for i in range(8):
            if i >= marker:
                if at[i] != flip:
                    return BAD_FORM
            elif at[i] == flip:
                return BAD_FORM             # no string holds character 0
            else:
                put_escaped(json.out, at[i] ^ flip)
        size += min(<int>marker, 8)
        at += 9
    put(json.out, b'"')
    cursor[0] = at
    if bytes != NULL:
        bytes[0] = size
    return FINE


cdef int read_number(const uint8_t** cursor, const uint8_t* limit, uint8_t flip, JsonText json) except -1 nogil:
    cdef const uint8_t* at = cursor[0]
    cdef uint8_t byte = at[0] ^ flip if at < limit else 0
    cdef bint negative = byte == 0x14
    cdef int64_t point
    cdef Py_ssize_t count
    if at >= limit:
        return TRUNCATED
    cursor[0] = at + 1
    if byte == 0x15:
        return put(json.out, b"0")
    if byte != 0x14 and byte != 0x16:
        return BAD_FORM
    if limit - at < 6:
        return TRUNCATED
    flip ^= 0xFF if negative else 0
    point = <int64_t>(__builtin_bswap32(load32(at + 1)) ^ (<uint32_t>0 - (flip & 1))) - (<int64_t>1 << 31)
    at += 5
    json.digits.size = 0
    byte = 1
    while byte & 1:
        if at >= limit:
            return TRUNCATED
        byte = at[0] ^ flip
        at += 1
        if byte >= 200:
            return BAD_FORM
        put(json.digits, 48 + (byte >> 1) // 10)
        put(json.digits, 48 + (byte >> 1) % 10)
    count = json.digits.size
    count -= json.digits.data[count - 1] == 48
    if json.digits.data[0] == 48 or json.digits.data[count - 1] == 48:
        return BAD_FORM
    if not -MOST_EXPONENT <= point <= MOST_EXPONENT:
        return OUT_OF_RANGE
    cursor[0] = at
    return put_number(json.out, negative, json.digits.data, count, point)
