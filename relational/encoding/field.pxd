"""Fields of rows: how one column of a row is encoded, the decoding errors, and the fields that both encoders share."""

from libc.stdint cimport uint8_t

cdef enum:
    BLOCK_ROWS = 1024                   # rows whose cursors fit the L1 cache
    SLACK = 16                          # bytes that a kernel may write beyond the last string

cdef enum Reason:                       # why bytes are not an encoding, or a value has none
    FINE = 0
    TRUNCATED = 1
    BAD_TAG = 2
    BAD_FORM = 3                        # not the canonical form of this value
    OUT_OF_RANGE = 4
    BAD_UTF8 = 5
    TRAILING = 6
    ABSENT = 7
    OLD_FORM = 8
    NO_JSON = 9

cdef struct Field:
    int kind                            # of relational.chunk.column.Kind
    int scale                           # of NUMERIC
    int precision                       # of NUMERIC
    int fixed_bytes                     # of a key: tag and payload; of a value: payload; 0: depends on the value
    uint8_t flip                        # keys; 0xFF: every byte of the column is inverted (DESC)
    uint8_t value_tag                   # keys; both tags as written, already inverted
    uint8_t null_tag
    Field* children                     # owned; of STRUCT and LIST
    int child_count
    int section                         # STRUCT: bytes of all children that have `fixed_bytes`
    int variable                        # STRUCT: number of children without `fixed_bytes`


cdef inline Py_ssize_t bitmap_bytes(Py_ssize_t count) noexcept nogil:
    return (count + 7) >> 3


cdef class RowFormat:
    """The fields of a row. Immutable, usable from several threads at once."""
    cdef readonly tuple types           # DataType of each field
    cdef Field* fields                  # owned; len(types) of them
    cdef int count

    cdef int plant(self, const int* fixed_bytes) except -1      # fills `fields`; `fixed_bytes` by kind


cdef int raise_encoding(Reason reason, Py_ssize_t row, Py_ssize_t column, Py_ssize_t offset) except -1 nogil
# EncodingError; column and offset -1: none
