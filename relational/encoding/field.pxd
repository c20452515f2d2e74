"""How one column of a row is written, and what can be wrong with what is read.

Both encodings write a row as its columns one after the other, each a tag byte and, unless NULL, a payload.
They differ in their kernels, which work on a block of rows of one column at a time: `cursors[i]` is where row
i of the block continues, and every kernel leaves it behind its column.
"""

from libc.stdint cimport int32_t, uint8_t

from relational.chunk.column cimport ColumnView
from relational.chunk.column_builder cimport ColumnBuilder

cdef enum:
    BLOCK_ROWS = 1024                   # rows whose cursors fit the first-level cache
    DECIMAL_SLOT = 24                   # scratch bytes per row of a NUMERIC key: size, then the payload

cdef enum Reason:                       # why bytes are no encoding, or a value has none
    FINE = 0
    TRUNCATED = 1
    BAD_TAG = 2
    BAD_FORM = 3                        # not the one form in which this value is written
    OUT_OF_RANGE = 4
    BAD_UTF8 = 5
    TRAILING = 6
    ABSENT = 7

cdef struct Field:
    int kind                            # of relational.chunk.column.Kind
    int scale                           # of NUMERIC
    int precision                       # of NUMERIC
    int fixed_bytes                     # tag and payload; 0 where the size depends on the value
    uint8_t flip                        # 0xFF: every byte of the column is inverted (DESC)
    uint8_t value_tag                   # both tags as they are written, already inverted
    uint8_t null_tag

# adds the bytes of each row to `sizes`; for kinds without `fixed_bytes`
ctypedef void (*SizeKernel)(
    const Field*, const ColumnView*, Py_ssize_t start, Py_ssize_t count, int32_t* sizes, uint8_t* scratch
) noexcept nogil

# returns -1, or the row of the block whose value cannot be written
ctypedef Py_ssize_t (*WriteKernel)(
    const Field*, const ColumnView*, Py_ssize_t start, Py_ssize_t count, uint8_t** cursors, const uint8_t* scratch
) noexcept nogil

# appends to the builder, which has room; a NULL cursor is a NULL row. Returns -1, or the row where `reason` arose
ctypedef Py_ssize_t (*ReadKernel)(
    const Field*, ColumnBuilder, Py_ssize_t count, const uint8_t** cursors, const uint8_t** limits, Reason* reason
) noexcept nogil
