"""Canonical forms of values that do not fit an integer: equality of nested values, and hashes of any value."""

from libc.stdint cimport uint8_t, uint64_t

from hummock.base.checksum cimport hash64
from relational.chunk.column cimport ColumnView, DOUBLE, INTERVAL, LIST, NUMERIC, STRUCT, has_bytes, is_null
from relational.chunk.scalar cimport double_of_ordered64, load32, load64, ordered64_of_double, uint128_t

cdef uint64_t SPREAD = <uint64_t>0x9E3779B97F4A7C15
cdef uint64_t WORD_SPREAD = <uint64_t>0xE7037ED1A0B428DB
cdef uint64_t NULL_HASH = <uint64_t>0xD1B54A32D192ED03


cdef bint equal_nested(
    const ColumnView* left, Py_ssize_t a, const ColumnView* right, Py_ssize_t b, bint is_exact
) noexcept nogil:
    cdef Py_ssize_t i, count
    if left.kind == STRUCT:
        return equal_rows(left.children, a, right.children, b, left.child_count, is_exact)
    count = left.offsets[a + 1] - left.offsets[a]
    if count != right.offsets[b + 1] - right.offsets[b]:
        return False
    for i in range(count):
        if not equal_values(left.children[0], left.offsets[a] + i, right.children[0], right.offsets[b] + i, is_exact):
            return False
    return True


cdef inline uint64_t mixed(uint64_t hash, uint64_t word) noexcept nogil:
    """Folds a word into a hash by one full multiplication, as wyhash does. Each operand is mixed with its own constant:
    zeros, and words that equal the hash, are common.
    """
    cdef uint128_t product = <uint128_t>(hash ^ SPREAD) * (word ^ WORD_SPREAD)
    return <uint64_t>product ^ <uint64_t>(product >> 64)


cdef inline uint64_t hash_of_bytes(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Hashes short values, the common case, without a call: both ends, which overlap."""
    cdef uint64_t head = 0, tail = 0
    if size > 16:
        return hash64(data, size)
    if size >= 8:
        head, tail = load64(data), load64(data + size - 8)
    elif size >= 4:
        head, tail = load32(data), load32(data + size - 4)
    elif size > 0:
        head = data[0] | (<uint64_t>data[size >> 1] << 8) | (<uint64_t>data[size - 1] << 16)
    return mixed(mixed(<uint64_t>size, head), tail)


cdef uint64_t hash_of(const ColumnView* view, Py_ssize_t row, uint64_t hash) noexcept nogil:
    cdef uint128_t pair
    cdef Py_ssize_t i
    if is_null(view, row):
        return mixed(hash, NULL_HASH)
    if has_bytes(view.kind):
        return mixed(hash, hash_of_bytes(view.data + view.offsets[row], view.offsets[row + 1] - view.offsets[row]))
    if view.kind == NUMERIC or view.kind == INTERVAL:
        pair = pair_of(view, row)
        return mixed(mixed(hash, <uint64_t>pair), <uint64_t>(pair >> 64))
    if view.kind == STRUCT:
        for i in range(view.child_count):
            hash = hash_of(view.children[i], row, hash)
        return hash
    if view.kind == LIST:
        for i in range(view.offsets[row], view.offsets[row + 1]):
            hash = hash_of(view.children[0], i, hash)
        return mixed(hash, <uint64_t>(view.offsets[row + 1] - view.offsets[row]))
    return mixed(hash, word_of(view, row))


cdef void add_hashes(const ColumnView* view, Py_ssize_t first, Py_ssize_t rows, uint64_t* hashes) noexcept nogil:
    cdef Py_ssize_t row
    cdef uint64_t word
    if view.validity == NULL and is_plain_word(view.kind):
        for row in range(rows):
            hashes[row] = mixed(hashes[row], load64(view.values + 8 * (first + row)))
        return
    if view.validity == NULL and view.kind == DOUBLE:
        for row in range(rows):
            word = load64(view.values + 8 * (first + row))
            hashes[row] = mixed(hashes[row], double_of_ordered64(ordered64_of_double(word)))
        return
    if view.validity == NULL and has_bytes(view.kind):
        for row in range(first, first + rows):
            word = hash_of_bytes(view.data + view.offsets[row], view.offsets[row + 1] - view.offsets[row])
            hashes[row - first] = mixed(hashes[row - first], word)
        return
    for row in range(rows):
        hashes[row] = hash_of(view, first + row, hashes[row])
