"""PrefixExtractor: how many leading bytes of a user key are filtered beside the whole."""

cimport cython
from libc.stdint cimport uint8_t, uint64_t

from hummock.base.key cimport Slice


cdef struct PrefixColumn:
    Py_ssize_t width                    # bytes of a payload; 0: a string, which says itself where it ends
    uint8_t null_tag                    # as it stands in the key
    uint8_t flip                        # 0xFF where every byte of the column is complemented, else 0


@cython.final
cdef class PrefixExtractor:
    cdef readonly object rule           # PrefixRule
    cdef Py_ssize_t fixed_bytes         # 0: by columns
    cdef Py_ssize_t count
    cdef PrefixColumn* columns          # count of them; owned

    cdef Py_ssize_t length_of(self, Slice user_key) noexcept nogil      # 0: the key has no such prefix
    cdef Py_ssize_t columns_end(self, Slice user_key) noexcept nogil
    cdef object hash_around(self, bytes start, bytes end)
    # hash of the prefix that all keys of [start, end) have, or None where they do not share one
