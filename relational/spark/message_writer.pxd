"""Batches of rows in transit to partitions, many rows in one message.

    message    u32 rows, u32 1 where rows have ranks else 0, then by row: u32 ends of keys, u32 ends of values,
               i64 ranks if there are; then the keys and the values. All in this machine's byte order.
    account    u32 0xFFFFFFFF, u32 0, u64 rows, u64 content: what a sender has sent to the partition in total
    refusal    u32 0xFFFFFFFE, u32 0, UTF-8 text: why a sender stopped
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from hummock.base.checksum cimport hash64
from hummock.base.key cimport Slice

cdef enum:
    HEAD_BYTES = 8
    ACCOUNT_BYTES = 24

cdef uint32_t ACCOUNT, REFUSAL
cdef uint64_t SPREAD


cdef inline uint64_t content_of(Slice key, Slice value) noexcept nogil:
    """A hash of the row that changes if bytes move between key and value."""
    return hash64(key.data, key.size) * SPREAD + hash64(value.data, value.size)


cdef struct Message:            # to one partition, under construction
    uint32_t rows
    Py_ssize_t key_bytes
    Py_ssize_t value_bytes
    uint8_t* key_ends           # position of the next one
    uint8_t* value_ends
    uint8_t* ranks
    uint8_t* keys
    uint8_t* values
    uint32_t key_end
    uint32_t value_end


cdef class MessageWriter:
    cdef readonly Py_ssize_t nbytes     # of the buffered rows
    cdef Message* messages
    cdef uint64_t* sent                 # rows and content by partition
    cdef int partitions
    cdef bint has_ranks
    cdef list waiting                   # (keys, values, partitions, ranks) of each batch

    cdef int measure(self, object batch) except -1
    cdef list allocate(self)
    cdef int fill(self, object batch) except -1
