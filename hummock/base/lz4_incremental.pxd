"""An lz4 block, decoded from its beginning as far as is wanted, and then further."""

from libc.stdint cimport uint8_t

cdef enum:
    LZ4_SLACK = 64          # bytes behind source and target that may be read, and written, beyond their ends


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
        uint8_t* at                         # behind what is decoded

cdef void lz4_begin(
    Lz4Cursor* cursor, const uint8_t* source, Py_ssize_t size, uint8_t* target, Py_ssize_t raw_size) noexcept nogil
# REQUIRES that LZ4_SLACK bytes behind `size` can be read, and behind `raw_size` written

cdef bint lz4_until(Lz4Cursor* cursor, Py_ssize_t wanted) noexcept nogil
# whether the first `wanted` bytes now stand in the target. False: these are not `raw_size` bytes as lz4 packs them
