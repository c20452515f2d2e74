"""The key form of NUMERIC: a header byte, then base-100 digits. See FORMAT.md, "NUMERIC keys"."""

from libc.stdint cimport uint8_t

from relational.encoding.field cimport Reason

cdef int encode_decimal(const uint8_t* value, int scale, uint8_t flip, uint8_t* out) noexcept nogil
# writes the payload of a decimal128 (at most 22 bytes), returns its size

cdef const uint8_t* decode_decimal(
    const uint8_t* at, const uint8_t* limit, uint8_t flip, int precision, int scale, uint8_t* value, Reason* reason
) noexcept nogil
# reads a payload into a decimal128 and returns its end; NULL with a `reason` if it is malformed
