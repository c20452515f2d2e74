"""Values as numbers that are equal exactly where SQL calls the values equal (R4).

-0.0 is 0.0, every NaN is one, and intervals are their length. For hashing and comparing, never for storing.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from relational.chunk.column cimport (
    BOOLEAN, ColumnView, DATE, DOUBLE, INT, INTERVAL, NUMERIC, REAL, SMALLINT, bit_at, has_bytes, is_nested, is_null,
)
from relational.chunk.scalar cimport (
    ArrowInterval, double_of_ordered64, length_of_interval, load16, load32, load64, ordered64_of_double, uint128_t,
)


cdef bint equal_nested(const ColumnView* view, Py_ssize_t a, Py_ssize_t b) noexcept nogil
# two rows of a STRUCT or a LIST, neither NULL, have equal parts, NULL being equal to NULL
cdef uint64_t hash_of(const ColumnView* view, Py_ssize_t row, uint64_t hash) noexcept nogil
# folds the value of a row of any kind into a hash; equal values give equal hashes


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


cdef inline bint equal_rows(const ColumnView* view, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    """Two rows of one column are equal, or both NULL."""
    cdef Py_ssize_t size
    if view.validity != NULL and (is_null(view, a) or is_null(view, b)):
        return is_null(view, a) and is_null(view, b)
    if is_nested(view.kind):
        return equal_nested(view, a, b)
    if has_bytes(view.kind):
        size = view.offsets[a + 1] - view.offsets[a]
        return (size == view.offsets[b + 1] - view.offsets[b]
                and memcmp(view.data + view.offsets[a], view.data + view.offsets[b], <size_t>size) == 0)
    if view.kind == NUMERIC or view.kind == INTERVAL:
        return pair_of(view, a) == pair_of(view, b)
    return word_of(view, a) == word_of(view, b)
