"""Changes of a store as rows that go and come: what a table decodes into a StreamChunk."""

from libc.stdint cimport uint8_t

import numpy as np

from hummock.columnar.binary_column cimport BinaryColumn, BinaryColumnBuilder
from relational.chunk.stream_chunk cimport DELETE, INSERT, UPDATE_DELETE, UPDATE_INSERT


def rows_of_changes(BinaryColumn keys not None, BinaryColumn old not None, BinaryColumn new not None) -> tuple:
    """(keys, values, ops: uint8[rows]): of each change the row that goes, then the one that comes."""
    cdef BinaryColumnBuilder out_keys = BinaryColumnBuilder(), values = BinaryColumnBuilder()
    cdef uint8_t[::1] ops = np.empty(2 * keys.rows, np.uint8)
    cdef Py_ssize_t row, rows = 0
    cdef bint goes, comes
    with nogil:
        for row in range(keys.rows):
            goes, comes = not old.is_null(row), not new.is_null(row)
            if goes:
                ops[rows] = UPDATE_DELETE if comes else DELETE
                out_keys.append(keys.at(row))
                values.append(old.at(row))
                rows += 1
            if comes:
                ops[rows] = UPDATE_INSERT if goes else INSERT
                out_keys.append(keys.at(row))
                values.append(new.at(row))
                rows += 1
    return out_keys.finish(), values.finish(), np.asarray(ops)[:rows]
