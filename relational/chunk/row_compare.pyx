"""SQL's order of two values of one type, row by row: comparisons of STRUCT, LIST and JSONB.

A STRUCT orders by its fields in turn, a LIST by its elements in turn and then by length; NULL inside either is larger
than all values. JSONB orders as in PostgreSQL: Object > Array > Boolean > Number > String > Null, more elements above
fewer.
"""

import numpy as np

from libc.stdint cimport int8_t, int64_t, uint8_t
from libc.string cimport memcmp

from relational.chunk.canonical cimport pair_of, word_of
from relational.chunk.column cimport (
    Column, ColumnView, DOUBLE, INTERVAL, JSONB, LIST, NUMERIC, REAL, STRUCT, has_bytes, is_null,
)
from relational.chunk.json cimport unescaped
from relational.chunk.scalar cimport int128_t, ordered64_of_double


cdef inline int sign_of(int128_t left, int128_t right) noexcept nogil:
    return 1 if left > right else -1 if left < right else 0


cdef inline int order_of_bytes(
    const uint8_t* left, Py_ssize_t left_bytes, const uint8_t* right, Py_ssize_t right_bytes
) noexcept nogil:
    cdef int order = memcmp(left, right, <size_t>min(left_bytes, right_bytes))
    return order if order else sign_of(left_bytes, right_bytes)


cdef int order_of(const ColumnView* left, Py_ssize_t a, const ColumnView* right, Py_ssize_t b) noexcept nogil:
    """Negative, 0 or positive: the order of row a of `left` and row b of `right`, of one type; NULL is the largest."""
    cdef int kind = left.kind
    cdef const uint8_t* x
    cdef const uint8_t* y
    if is_null(left, a) or is_null(right, b):
        return <int>is_null(left, a) - <int>is_null(right, b)
    if kind == STRUCT or kind == LIST:
        return order_of_parts(left, a, right, b)
    if has_bytes(kind):
        x, y = left.data + left.offsets[a], right.data + right.offsets[b]
        if kind == JSONB:
            return order_of_json(&x, left.data + left.offsets[a + 1], &y, right.data + right.offsets[b + 1], 0)
        return order_of_bytes(x, left.offsets[a + 1] - left.offsets[a], y, right.offsets[b + 1] - right.offsets[b])
    if kind == NUMERIC or kind == INTERVAL:
        return sign_of(<int128_t>pair_of(left, a), <int128_t>pair_of(right, b))
    if kind == DOUBLE or kind == REAL:
        return sign_of(ordered64_of_double(word_of(left, a)), ordered64_of_double(word_of(right, b)))
    return sign_of(<int64_t>word_of(left, a), <int64_t>word_of(right, b))


cdef int order_of_parts(const ColumnView* left, Py_ssize_t a, const ColumnView* right, Py_ssize_t b) noexcept nogil:
    cdef Py_ssize_t i, x, y, count
    cdef int order
    if left.kind == STRUCT:
        for i in range(left.child_count):
            order = order_of(left.children[i], a, right.children[i], b)
            if order:
                return order
        return 0
    x, y = left.offsets[a + 1] - left.offsets[a], right.offsets[b + 1] - right.offsets[b]
    count = min(x, y)
    for i in range(count):
        order = order_of(left.children[0], left.offsets[a] + i, right.children[0], right.offsets[b] + i)
        if order:
            return order
    return sign_of(x, y)


cdef inline int rank_of(uint8_t first) noexcept nogil:
    if first == b"{":
        return 7
    if first == b"[":
        return 6
    if first == b"t" or first == b"f":
        return 5 if first == b"t" else 4
    return 1 if first == b"n" else 2 if first == b'"' else 3


cdef int order_of_json(
    const uint8_t** x, const uint8_t* x_stop, const uint8_t** y, const uint8_t* y_stop, int depth
) noexcept nogil:
    """Compares canonical texts and, if they are equal, advances past both."""
    cdef int rank = rank_of(x[0][0])
    cdef bint x_empty = depth == 0 and x_stop - x[0] == 2 and rank == 6, y_empty
    if rank != rank_of(y[0][0]) or rank == 6 and depth == 0:
        y_empty = depth == 0 and y_stop - y[0] == 2 and y[0][0] == b"["
        if x_empty or y_empty:
            return <int>y_empty - <int>x_empty      # an empty array at the top level is below all
        if rank != rank_of(y[0][0]):
            return rank - rank_of(y[0][0])
    if rank == 2:
        return order_of_strings(x, y)
    if rank == 3:
        return order_of_numbers(x, x_stop, y, y_stop)
    if rank >= 6:
        return order_of_many(x, x_stop, y, y_stop, depth + 1, rank == 7)
    x[0] += 5 if rank == 4 else 4
    y[0] += 5 if rank == 4 else 4
    return 0


cdef int order_of_many(
    const uint8_t** x, const uint8_t* x_stop, const uint8_t** y, const uint8_t* y_stop, int depth, bint is_object
) noexcept nogil:
    cdef Py_ssize_t count = items_of(x[0], x_stop), i
    cdef int order = sign_of(count, items_of(y[0], y_stop))
    if order:
        return order
    for i in range(count):
        x[0] += 1                       # a bracket or a comma
        y[0] += 1
        if is_object:
            order = order_of_strings(x, y)
            if order:
                return order
            x[0] += 1                   # the colon
            y[0] += 1
        order = order_of_json(x, x_stop, y, y_stop, depth)
        if order:
            return order
    x[0] += 1 if count else 2
    y[0] += 1 if count else 2
    return 0


cdef Py_ssize_t items_of(const uint8_t* at, const uint8_t* stop) noexcept nogil:
    """The number of elements of the array, or keys of the object, that begins at `at`."""
    cdef Py_ssize_t commas = 0
    cdef int depth = 0
    cdef bint is_text = False
    if at[1] == b"]" or at[1] == b"}":
        return 0
    while at < stop:
        if is_text:
            is_text = at[0] != b'"'
            at += at[0] == b"\\"         # skips the escaped character
        elif at[0] == b'"':
            is_text = True
        elif at[0] == b"[" or at[0] == b"{":
            depth += 1
        elif at[0] == b"]" or at[0] == b"}":
            depth -= 1
            if depth == 0:
                break
        else:
            commas += at[0] == b"," and depth == 1
        at += 1
    return commas + 1


cdef int order_of_strings(const uint8_t** x, const uint8_t** y) noexcept nogil:
    cdef int a, b
    x[0] += 1
    y[0] += 1
    while x[0][0] != b'"' and y[0][0] != b'"':
        a, b = unescaped(x), unescaped(y)
        if a != b:
            return a - b
    if x[0][0] != b'"' or y[0][0] != b'"':
        return 1 if y[0][0] == b'"' else -1
    x[0] += 1
    y[0] += 1
    return 0


cdef struct Number:                     # 0.DIGITS * 10 ** point
    int sign
    int64_t point
    const uint8_t* digits               # may have a point among them
    const uint8_t* stop


cdef Number number_at(const uint8_t** at, const uint8_t* stop) noexcept nogil:
    cdef Number out
    cdef bint pointed = False, minus
    cdef int64_t exponent = 0
    out.sign, out.point, out.digits = 0, 0, NULL
    minus = at[0][0] == b"-"
    at[0] += minus
    while at[0] < stop and (at[0][0] == b"." or 48 <= at[0][0] <= 57):
        if at[0][0] == b".":
            pointed = True
        elif out.digits == NULL and at[0][0] == b"0":
            out.point -= pointed
        else:
            out.digits = at[0] if out.digits == NULL else out.digits
            out.point += not pointed
        at[0] += 1
    out.stop = at[0]
    if out.digits == NULL:
        return out
    out.sign = -1 if minus else 1
    if at[0] < stop and at[0][0] == b"e":
        minus = at[0][1] == b"-"
        at[0] += 2
        while at[0] < stop and 48 <= at[0][0] <= 57:
            exponent = exponent * 10 + at[0][0] - 48
            at[0] += 1
        out.point += -exponent if minus else exponent
    return out


cdef int order_of_numbers(
    const uint8_t** x, const uint8_t* x_stop, const uint8_t** y, const uint8_t* y_stop
) noexcept nogil:
    cdef Number a = number_at(x, x_stop), b = number_at(y, y_stop)
    cdef int left, right
    if a.sign != b.sign or a.sign == 0:
        return sign_of(a.sign, b.sign)
    if a.point != b.point:
        return a.sign * sign_of(a.point, b.point)
    while a.digits < a.stop or b.digits < b.stop:
        a.digits += a.digits < a.stop and a.digits[0] == b"."
        b.digits += b.digits < b.stop and b.digits[0] == b"."
        left = a.digits[0] if a.digits < a.stop else 48
        right = b.digits[0] if b.digits < b.stop else 48
        if left != right:
            return a.sign * (left - right)
        a.digits += 1
        b.digits += 1
    return 0


def compare_columns(Column left, Column right):
    """int8[rows]: -1, 0 or 1, the order of each row of `left` and that of `right`, of one type; NULL is the largest."""
    cdef Py_ssize_t row, rows = left.view.rows
    cdef int order
    if left.data_type != right.data_type or right.view.rows != rows:
        raise ValueError(f"{left!r} and {right!r} do not compare row by row")
    signs = np.empty(rows, dtype=np.int8)
    cdef int8_t[::1] out = signs
    with nogil:
        for row in range(rows):
            order = order_of(&left.view, row, &right.view, row)
            out[row] = (order > 0) - (order < 0)
    return signs
