"""Keys as borrowed bytes, and their order.

A user key is `table_id u32 BE | vnode u16 BE | table key`. A full key is a user key and an epoch. The two
are kept apart everywhere in memory: full keys order by user key bytes (a prefix before what it begins),
then newest epoch first, which no memcmp over joined bytes can do.
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

cdef extern from * nogil:
    uint64_t __builtin_bswap64(uint64_t) noexcept

cdef enum:
    SPILL_MASK = 0xFFFF         # the bits of a stored epoch that count flushes; epoch.py says how


cdef struct Slice:              # borrowed bytes; who hands one out says who owns them and until when
    const uint8_t* data
    Py_ssize_t size


cdef inline int compare_bytes(Slice a, Slice b) noexcept nogil:
    """Negative, 0 or positive as `a` is before, equal to or after `b`; a prefix is before what it begins."""
    cdef Py_ssize_t shared = a.size if a.size < b.size else b.size
    cdef int order = memcmp(a.data, b.data, <size_t>shared) if shared > 0 else 0
    if order != 0:
        return order
    return -1 if a.size < b.size else (1 if a.size > b.size else 0)


cdef inline bint begins_with(Slice key, Slice prefix) noexcept nogil:
    return key.size >= prefix.size and (
        prefix.size == 0 or memcmp(key.data, prefix.data, <size_t>prefix.size) == 0)


cdef inline int compare_full_key(Slice a, uint64_t a_epoch, Slice b, uint64_t b_epoch) noexcept nogil:
    """User key ascending, then epoch DEscending."""
    cdef int order = compare_bytes(a, b)
    if order != 0:
        return order
    return -1 if a_epoch > b_epoch else (1 if a_epoch < b_epoch else 0)


cdef inline uint64_t head_of(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """The first 8 bytes as a big-endian number, short keys padded with zeros.

    Unequal heads order as their keys do; equal heads say nothing.
    """
    cdef uint64_t head = 0
    if size >= 8:
        memcpy(&head, data, 8)
        return __builtin_bswap64(head)
    if size > 0:
        memcpy(&head, data, <size_t>size)
    return __builtin_bswap64(head)
