"""Canonical forms of values: integers that are equal exactly where SQL considers the values equal [R4].

-0.0 is 0.0, all NaN are one value, and an interval is its length. For hashing and equality, never for storage.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from relational.chunk.column cimport (
    BIGINT, BOOLEAN, ColumnView, DATE, DOUBLE, INT, INTERVAL, REAL, SMALLINT, TIME, TIMESTAMP, TIMESTAMPTZ, bit_at,
    has_bytes, is_nested, is_null, width_of,
)
from relational.chunk.scalar cimport (
    ArrowInterval, double_of_ordered64, length_of_interval, load16, load32, load64, ordered64_of_double, uint128_t,
)


cdef bint equal_nested(
    const ColumnView* left, Py_ssize_t a, const ColumnView* right, Py_ssize_t b, bint is_exact
) noexcept nogil
# two rows of a STRUCT or a LIST, neither NULL, have equal parts
cdef uint64_t hash_of(const ColumnView* view, Py_ssize_t row, uint64_t hash) noexcept nogil
# folds the value of a row of any kind into a hash; equal values give equal hashes
cdef void add_hashes(const ColumnView* view, Py_ssize_t first, Py_ssize_t rows, uint64_t* hashes) noexcept nogil
# hashes[i]: the value of row `first + i` is folded in


cdef inline bint is_plain_word(int kind) noexcept nogil:
    """Whether a value is 8 bytes that are their own canonical form."""
    return kind == BIGINT or kind == TIME or kind == TIMESTAMP or kind == TIMESTAMPTZ


cdef inline uint64_t word_of(const ColumnView* view, Py_ssize_t row) noexcept nogil:
    """A value of a kind of up to 8 bytes: integers widened, REAL as its DOUBLE. REQUIRES not NULL."""
    cdef float small
    cdef double wide
    cdef uint64_t bits
    if view.kind == INT or view.kind == DATE:
        return <uint64_t><int64_t><int32_t>load32(view.values + row * 4)
    if view.kind == SMALLINT:
        return <uint64_t><int64_t><int16_t>load16(view.values + row * 2)
    if view.kind == BOOLEAN:
        return bit_at(view.values, view.offset + row)
    if view.kind == REAL:
        memcpy(&small, view.values + row * 4, 4)
        wide = small
        memcpy(&bits, &wide, 8)
        return double_of_ordered64(ordered64_of_double(bits))
    bits = load64(view.values + row * 8)
    return double_of_ordered64(ordered64_of_double(bits)) if view.kind == DOUBLE else bits


cdef inline uint128_t pair_of(const ColumnView* view, Py_ssize_t row) noexcept nogil:
    """NUMERIC: the mantissa at the type's scale; INTERVAL: microseconds. REQUIRES not NULL."""
    cdef ArrowInterval interval
    cdef uint128_t number
    if view.kind == INTERVAL:
        memcpy(&interval, view.values + row * 16, 16)
        return <uint128_t>length_of_interval(&interval)
    memcpy(&number, view.values + row * 16, 16)
    return number


cdef inline bint same_bytes(const uint8_t* a, const uint8_t* b, Py_ssize_t size) noexcept nogil:
    """Compares short values, the common case, without a call."""
    if size > 16 or size < 8:
        return memcmp(a, b, <size_t>size) == 0
    return load64(a) == load64(b) and load64(a + size - 8) == load64(b + size - 8)


cdef inline bint equal_values(
    const ColumnView* left, Py_ssize_t a, const ColumnView* right, Py_ssize_t b, bint is_exact
) noexcept nogil:
    """Whether two rows of columns of one type are equal, or both NULL. `is_exact`: in representation too, which
    distinguishes 0.0 and -0.0.
    """
    cdef Py_ssize_t size
    cdef int width
    if is_null(left, a) or is_null(right, b):
        return is_null(left, a) and is_null(right, b)
    if is_nested(left.kind):
        return equal_nested(left, a, right, b, is_exact)
    if has_bytes(left.kind):
        size = left.offsets[a + 1] - left.offsets[a]
        return (size == right.offsets[b + 1] - right.offsets[b]
                and same_bytes(left.data + left.offsets[a], right.data + right.offsets[b], size))
    width = width_of(left.kind)
    if is_exact and width:
        return memcmp(left.values + a * width, right.values + b * width, <size_t>width) == 0
    if width == 16:
        return pair_of(left, a) == pair_of(right, b)
    return word_of(left, a) == word_of(right, b)


cdef inline bint equal_rows(
    const ColumnView* const* left, Py_ssize_t a, const ColumnView* const* right, Py_ssize_t b, int columns,
    bint is_exact
) noexcept nogil:
    cdef int column
    for column in range(columns):
        if not equal_values(left[column], a, right[column], b, is_exact):
            return False
    return True
