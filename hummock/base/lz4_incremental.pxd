"""Incremental decoding of an lz4 block, from its beginning up to a requested position."""

from libc.stdint cimport uint8_t

cdef enum:
    LZ4_SLACK = 64          # bytes that may be read behind the source, and written behind the target


cdef extern from * nogil:
    """
    #ifndef HUMMOCK_LZ4_CURSOR
    #define HUMMOCK_LZ4_CURSOR
    #include <stdint.h>
    typedef struct {
        const uint8_t *from, *from_end;     /* what is not decoded yet */
        uint8_t *begin, *at, *end;          /* where it goes: whole, next byte, end */
    } Lz4Cursor;
    #endif
    """
    ctypedef struct Lz4Cursor:
        const uint8_t* from_end
        uint8_t* at                         # end of the decoded bytes

cdef void lz4_begin(
    Lz4Cursor* cursor, const uint8_t* source, Py_ssize_t size, uint8_t* target, Py_ssize_t raw_size) noexcept nogil
# REQUIRES that LZ4_SLACK bytes behind `size` are readable, and behind `raw_size` writable

cdef bint lz4_until(Lz4Cursor* cursor, Py_ssize_t wanted) noexcept nogil
# decodes at least the first `wanted` bytes. False: malformed, or not `raw_size` bytes
