"""PrefixExtractor: a table's prefix rule, compiled; shared by writers and readers.

Prefixes are self-delimiting, so every key that begins with the prefix of some key has that same prefix.
"""

from functools import lru_cache

from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport calloc, free

from hummock.base.checksum cimport hash64
from hummock.base.key cimport TABLE_ID_BYTES, Slice, slice_of

from hummock.base.key import USER_KEY_PREFIX_BYTES, successor_of_prefix

cdef enum:
    GROUP_BYTES = 8                     # of a string; a marker byte follows each group
    MORE_FOLLOWS = 9                    # the marker, unless the group is the last
    KEPT_RULES = 1024

cdef Py_ssize_t COLUMNS_AT = USER_KEY_PREFIX_BYTES


cdef class PrefixExtractor:
    """`rule` is a PrefixRule. Immutable; safe from any thread."""

    def __cinit__(self, rule not None):
        cdef Py_ssize_t position
        self.rule, self.fixed_bytes, self.count = rule, rule.fixed_bytes, len(rule.columns)
        self.columns = <PrefixColumn*>calloc(<size_t>self.count + 1, sizeof(PrefixColumn))
        if self.columns == NULL:
            raise MemoryError
        for position in range(self.count):
            column = rule.columns[position]
            self.columns[position].width = column.width
            self.columns[position].null_tag = column.null_tag
            self.columns[position].flip = 0xFF if column.inverted else 0

    def __dealloc__(self):
        free(self.columns)

    cdef Py_ssize_t length_of(self, Slice user_key) noexcept nogil:
        if self.count > 0:
            return self.columns_end(user_key)
        return self.fixed_bytes if self.fixed_bytes <= user_key.size else 0

    cdef Py_ssize_t columns_end(self, Slice user_key) noexcept nogil:
        cdef Py_ssize_t at = COLUMNS_AT, position
        cdef PrefixColumn* column
        cdef uint8_t tag
        for position in range(self.count):
            column = &self.columns[position]
            if at >= user_key.size:
                return 0
            tag = user_key.data[at]
            at += 1
            if tag == column.null_tag:
                continue
            if column.width > 0:
                at += column.width
                continue
            if at >= user_key.size or user_key.data[at] ^ column.flip > 1:
                return 0
            at += 1
            if user_key.data[at - 1] ^ column.flip == 0:
                continue
            while True:
                at += GROUP_BYTES + 1
                if at > user_key.size:
                    return 0
                if user_key.data[at - 1] ^ column.flip != MORE_FOLLOWS:
                    break
        return at if at <= user_key.size else 0

    cdef object hash_around(self, bytes start, bytes end):
        cdef Slice first = slice_of(start)
        cdef Py_ssize_t size = self.length_of(first)
        if size < TABLE_ID_BYTES or end is None:
            return None
        after = successor_of_prefix(start[:size])
        if after is not None and end > after:
            return None
        return hash64(first.data, size)

    def length(self, bytes user_key not None) -> int:
        """Size of the key's prefix in bytes; 0: none."""
        return self.length_of(slice_of(user_key))


@lru_cache(KEPT_RULES)
def key_prefix(rule) -> PrefixExtractor:
    """The compiled form of a PrefixRule; equal rules share one."""
    return PrefixExtractor(rule)
