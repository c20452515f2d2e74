"""PrefixExtractor: the length of the prefix of a user key that enters the filter besides the whole key."""

cimport cython
from libc.stdint cimport uint8_t, uint64_t

from hummock.base.key cimport Slice


cdef struct PrefixColumn:
    Py_ssize_t width                    # bytes of a payload; 0: a string, which is self-delimiting
    uint8_t null_tag                    # as stored in the key
    uint8_t flip                        # 0xFF if every byte of the column is complemented, else 0


@cython.final
cdef class PrefixExtractor:
    cdef readonly object rule           # PrefixRule
    cdef Py_ssize_t fixed_bytes         # 0: uses columns
    cdef Py_ssize_t count
    cdef PrefixColumn* columns          # `count` of them; owned

    cdef Py_ssize_t length_of(self, Slice user_key) noexcept nogil      # 0: the key has no such prefix
    cdef Py_ssize_t columns_end(self, Slice user_key) noexcept nogil
    cdef object hash_around(self, bytes start, bytes end)
    # hash of the common prefix of all keys of [start, end), or None if they do not share one
