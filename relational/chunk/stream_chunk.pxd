"""StreamChunk: a DataChunk whose rows are changes."""

from libc.stdint cimport uint8_t

from relational.chunk.data_chunk cimport DataChunk

cdef enum:                              # bit 0: the row is deleted; bit 1: half of an update
    INSERT = 0
    DELETE = 1
    UPDATE_INSERT = 2
    UPDATE_DELETE = 3


cdef class StreamChunk(DataChunk):
    cdef readonly object ops            # np.uint8[capacity]
    cdef uint8_t absent                 # bits that no op has; 0: not looked for yet
    cdef tuple known_parts              # the last split: (key columns, rule, partition), ops, masks, visible rows

    cdef uint8_t bits_of_ops(self) except? 0xFF

    cdef inline const uint8_t* op_pointer(self):
        cdef const uint8_t[::1] view = self.ops
        return &view[0] if self.capacity > 0 else NULL
