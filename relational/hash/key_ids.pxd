"""KeyInterner: assigns dense ids to the key columns of rows."""

cimport cython
from libc.stdint cimport int32_t, uint8_t

from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.chunk.column cimport Column, ColumnView
from relational.encoding.key.encoder cimport KeyEncoder
from relational.hash.bytes_interner cimport BytesInterner
from relational.hash.u64_interner cimport U64Interner


@cython.final
cdef class KeyInterner:
    cdef readonly tuple types           # DataType of each key column
    cdef KeyEncoder encoder
    cdef BytesInterner encoded          # keys of any shape, as their encoding; or None
    cdef U64Interner words              # keys of one column of at most 8 bytes, in canonical form; or None
    cdef ByteBuffer scratch             # words and presence of a slice of rows whose words are computed

    cdef int find_words(self, Column column, const uint8_t* visible, int32_t* out, bint is_adding) except -1
    cdef object column_of_words(self, const int32_t* ids, Py_ssize_t rows)      # pa.Array
