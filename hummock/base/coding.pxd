"""Fixed-width little-endian integers in raw bytes, at any alignment. The caller checks bounds."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

cdef extern from * nogil:
    """
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error "the file format's numbers are read as they lie in memory: a little-endian machine is needed"
    #endif
    """


cdef inline uint16_t get_u16(const uint8_t* at) noexcept nogil:
    cdef uint16_t number
    memcpy(&number, at, 2)
    return number


cdef inline uint32_t get_u32(const uint8_t* at) noexcept nogil:
    cdef uint32_t number
    memcpy(&number, at, 4)
    return number


cdef inline uint8_t* put_u32(uint8_t* at, uint32_t number) noexcept nogil:
    memcpy(at, &number, 4)
    return at + 4
