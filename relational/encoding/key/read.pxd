"""The kernel that reads one column of a block of rows in key form."""

from libc.stdint cimport uint8_t, uint64_t

from relational.chunk.column_builder cimport ColumnBuilder
from relational.chunk.scalar cimport load64, store64
from relational.encoding.field cimport BAD_FORM, Field, Reason, TRUNCATED

cdef Py_ssize_t read_keys(
    const Field* field, ColumnBuilder sink, Py_ssize_t count, const uint8_t** cursors, const uint8_t** limits,
    Reason* reason
) noexcept nogil


cdef inline const uint8_t* read_groups(
    const uint8_t* at, const uint8_t* limit, uint64_t flip, uint8_t** out, Reason* reason
) noexcept nogil:
    """Copies the bytes of a non-empty string to `out`, which has 8 spare bytes; returns the end of the payload."""
    cdef uint64_t group
    cdef uint8_t marker = 9
    while marker == 9:
        if limit - at < 9:
            reason[0] = TRUNCATED
            return NULL
        group = load64(at) ^ flip
        marker = <uint8_t>(at[8] ^ flip)
        store64(out[0], group)
        out[0] += 8
        at += 9
    out[0] -= 8
    if marker == 0 or marker > 9 or (marker < 8 and group >> (8 * marker) != 0):
        reason[0] = BAD_FORM
        return NULL
    out[0] += marker
    return at
