"""HummockIterator: the contract of every iterator over full keys.

An iterator has one fixed direction. Forward it yields user keys ascending and, within one, epochs descending; in
reverse exactly the opposite order. In that direction, `next` moves one entry and `seek` moves to the first entry at or
beyond the target. The GIL is acquired only to fetch a block or to raise.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from hummock.base.key cimport Slice, compare_bytes, same_bytes

cpdef enum Direction:
    FORWARD = 1
    REVERSE = -1


cdef struct Span:                       # adjacent entries as columns; valid until the iterator's next move
    Slice prefix                        # common to all user keys of the span
    const uint32_t* key_offsets         # positions in `key_data`, by row
    const uint8_t* key_data             # user keys less `prefix`; 8 readable bytes follow the last if there is a prefix
    const uint32_t* value_offsets       # positions in `value_data`, by row
    const uint8_t* value_data
    uint64_t max_epoch                  # bounds of all epochs of the span
    uint64_t min_epoch
    const uint64_t* epochs              # by row, or one for all
    bint one_epoch
    const uint8_t* marks                # bitmap of tombstones; NULL: none
    Py_ssize_t marks_at                 # bit of row 0
    bint marks_puts                     # set bits mean puts instead
    Py_ssize_t row                      # the current entry
    Py_ssize_t end                      # one past the last entry of the span; more than `row`
    Py_ssize_t longest_key              # upper bound of the size of user keys, if there is a prefix


cdef struct Entry:
    uint64_t high                       # head_of the user key
    uint64_t low                        # and of what follows its first 8 bytes
    Slice user_key
    uint64_t epoch
    Slice value                         # data is NULL for a tombstone


cdef class HummockIterator:
    cdef readonly Direction direction   # fixed at construction
    cdef readonly bint valid            # positioned at an entry
    cdef Slice user_key                 # of the current entry; valid until the next move of this iterator
    cdef uint64_t epoch                 # with the spill offset in its low 16 bits
    cdef Slice value                    # same lifetime; data is NULL for a tombstone, never NULL for a put
    cdef Py_ssize_t pulled              # entries returned by the last `pull`, not yet moved past

    cdef int rewind(self) except -1 nogil                                   # to the first entry in this direction
    cdef int seek(self, Slice user_key, uint64_t epoch) except -1 nogil     # to the first entry at or beyond
    cdef int next(self) except -1 nogil                                     # REQUIRES valid

    cdef bint span(self, Span* out, bint as_rows) noexcept nogil
    # REQUIRES valid. True: `out` holds the current entry and following ones, in order; `as_rows`: only if all of them
    # are puts on distinct user keys. False: use `next`. Only forward iterators return spans; without `as_rows` an
    # iterator always returns one, or never
    cdef int skip(self, Py_ssize_t rows) except -1 nogil
    # the same as `rows` calls of `next`. REQUIRES at most the length of the span just returned
    cdef Py_ssize_t pull(self, Entry* out, Py_ssize_t most) except -1 nogil
    # returns the next 1..`most` entries, or 0 at the end; valid until the next call of any method. REQUIRES FORWARD,
    # `most` > 0, and that only `pull` was called since `rewind` or `seek`


cdef extern from * nogil:
    """
    #ifndef HUMMOCK_ENTRY
    #define HUMMOCK_ENTRY
    #include <stdint.h>
    #include <string.h>
    /* Bytes 8..16 of a key as a big-endian number, a shorter one padded with zeros. */
    static inline uint64_t hummock_low_of(const uint8_t *data, int64_t size) {
        uint64_t word;
        if (size <= 8) return 0;
        if (size >= 16) { memcpy(&word, data + 8, 8); return __builtin_bswap64(word); }
        memcpy(&word, data + size - 8, 8);
        return __builtin_bswap64(word) << (8 * (16 - size));
    }
    #endif
    """
    uint64_t low_of "hummock_low_of"(const uint8_t* data, Py_ssize_t size) noexcept


cdef inline bint same_user_key(const Entry* a, const Entry* b) noexcept nogil:
    """Whether both have the same user key. Keys that follow each other mostly differ in their last bytes, which are
    compared first."""
    cdef Py_ssize_t size = a.user_key.size
    if a.high != b.high or a.low != b.low or size != b.user_key.size:
        return False
    return size <= 16 or (same_bytes(a.user_key.data + size - 8, b.user_key.data + size - 8, 8)
                          and same_bytes(a.user_key.data + 16, b.user_key.data + 16, size - 16))


cdef inline int compare_span_row(const Span* span, Py_ssize_t row, Slice key) noexcept nogil:
    """Negative, 0 or positive as the user key of `row` is before, equal to or after `key`."""
    cdef Slice suffix, rest
    cdef Py_ssize_t shared = span.prefix.size if span.prefix.size < key.size else key.size
    cdef int order = memcmp(span.prefix.data, key.data, <size_t>shared) if shared > 0 else 0
    if order != 0:
        return order
    suffix.data = span.key_data + span.key_offsets[row]
    suffix.size = span.key_offsets[row + 1] - span.key_offsets[row]
    if key.size < span.prefix.size:
        return 1
    rest.data = key.data + shared
    rest.size = key.size - shared
    return compare_bytes(suffix, rest)


cdef inline void clip_span(Span* span, Slice bound) noexcept nogil:
    """Cuts the span to the rows whose user keys are before `bound`; the result may be empty."""
    cdef Py_ssize_t low = span.row, high = span.end, middle
    if low < high and compare_span_row(span, high - 1, bound) < 0:
        return
    while low < high:
        middle = (low + high) >> 1
        if compare_span_row(span, middle, bound) < 0:
            low = middle + 1
        else:
            high = middle
    span.end = low
