"""JSONB in key form."""

from libc.stdint cimport uint8_t

from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.chunk.json cimport JsonText

cdef int append_json(const uint8_t* text, const uint8_t* stop, ByteBuffer out) except -1 nogil
# appends the payload of canonical text, not inverted

cdef int read_json(
    const uint8_t** cursor, const uint8_t* limit, uint8_t flip, JsonText json, int depth
) except -1 nogil
# a Reason; appends to json.out the canonical text of the value at the cursor, and advances the cursor
