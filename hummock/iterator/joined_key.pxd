"""User keys in two parts, as spans hold them: a prefix that all rows of a span have in common, and the rest."""

from libc.stdint cimport uint64_t

from hummock.base.key cimport Slice, compare_bytes, head_of, shared_size
from hummock.iterator.base cimport Span
from hummock.iterator.key_prefix128 cimport big_endian, suffix_of, word_of


cdef struct JoinedKey:
    Slice prefix
    Slice suffix


cdef inline JoinedKey joined_key_of(const Span* span, Py_ssize_t row) noexcept nogil:
    cdef JoinedKey out
    out.prefix, out.suffix = span.prefix, suffix_of(span, row)
    return out


cdef inline Py_ssize_t size_of(const JoinedKey* key) noexcept nogil:
    return key.prefix.size + key.suffix.size


cdef inline uint64_t suffix_head(const JoinedKey* key, Py_ssize_t offset) noexcept nogil:
    """As head_of the suffix's bytes from `offset` on; quicker where there is a prefix, since 8 bytes can be read."""
    if key.prefix.size > 0:
        return word_of(key.suffix.data + offset, key.suffix.size - offset)
    return head_of(key.suffix.data + offset, key.suffix.size - offset)


cdef inline uint64_t joined_head(const JoinedKey* key, Py_ssize_t offset) noexcept nogil:
    """As head_of the key's bytes from `offset` on."""
    cdef Py_ssize_t left = key.prefix.size - offset
    cdef uint64_t head
    if left <= 0:
        return suffix_head(key, -left)
    if left >= 8:
        return big_endian(key.prefix.data + offset)
    if key.prefix.size >= 8:
        head = big_endian(key.prefix.data + key.prefix.size - 8) << (8 * (8 - left))
    else:
        head = head_of(key.prefix.data + offset, left)
    return head | suffix_head(key, 0) >> (8 * left)


cdef inline Py_ssize_t joined_shared_size(const JoinedKey* a, const JoinedKey* b) noexcept nogil:
    """The number of bytes with which both begin."""
    cdef const JoinedKey* short_one = a if a.prefix.size <= b.prefix.size else b
    cdef const JoinedKey* long_one = b if a.prefix.size <= b.prefix.size else a
    cdef Py_ssize_t size = short_one.prefix.size, gap = long_one.prefix.size - size, part
    cdef Py_ssize_t shared = shared_size(short_one.prefix.data, long_one.prefix.data, size)
    if shared < size:
        return shared
    part = min(gap, short_one.suffix.size)
    shared = shared_size(short_one.suffix.data, long_one.prefix.data + size, part)
    if shared < gap:
        return size + shared
    return size + gap + shared_size(
        short_one.suffix.data + gap, long_one.suffix.data, min(short_one.suffix.size - gap, long_one.suffix.size))


cdef inline int compare_joined(const JoinedKey* a, const JoinedKey* b) noexcept nogil:
    """As compare_bytes of both keys."""
    cdef Py_ssize_t shared
    cdef uint64_t ours, theirs
    if a.prefix.size == 0 and b.prefix.size == 0:
        return compare_bytes(a.suffix, b.suffix)
    shared = joined_shared_size(a, b)
    ours, theirs = joined_head(a, shared), joined_head(b, shared)
    if ours == theirs:                  # one ends here, or goes on with zeros that the other lacks
        return -1 if size_of(a) < size_of(b) else (1 if size_of(a) > size_of(b) else 0)
    return -1 if ours < theirs else 1
