"""DataChunk: columns of equal length, and a mask of visible rows."""

from libc.stdint cimport uint8_t


cdef class DataChunk:
    cdef readonly tuple columns         # of Column, each `capacity` rows
    cdef readonly object visibility     # np.uint8[capacity], 1 = visible; None: every row is
    cdef readonly Py_ssize_t capacity   # rows, visible or not
    cdef Py_ssize_t counted             # visible rows, -1 until computed
    cdef dict known_vnodes              # (key columns, vnode count, rule) -> vnodes; None: not asked for yet

    cdef int setup(self, columns, visibility, capacity) except -1
    cdef DataChunk rebuilt(self, tuple columns, object visibility)      # same rows (and ops), other columns
    cdef DataChunk picked(self, object indices)                         # rows at int32 indices, all visible


cdef const uint8_t* mask_pointer(object mask) except? NULL  # REQUIRES a checked mask; NULL for None
cdef object shown_rows(DataChunk chunk)                     # int32[visible rows]: the positions of the visible rows
cdef object as_mask(object keep, Py_ssize_t rows)           # uint8[rows] of a BOOLEAN column, a bool or uint8 array
