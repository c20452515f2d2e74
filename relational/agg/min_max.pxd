"""ExtremeKernel: MIN and MAX."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t

from hummock.base.key cimport Slice
from hummock.columnar.binary_column cimport BinaryColumn
from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.agg.kernels cimport AggKernel

cdef enum ExtremeStatus:
    NONE = 0            # no arguments: the extreme is NULL
    KNOWN = 1
    STALE = 2           # the extreme was retracted: what is left lies at it or behind it

cdef struct Extreme:
    int64_t count       # non-NULL arguments
    uint64_t head       # first 8 bytes of the encoded extreme after its null tag
    int64_t start       # of the encoded extreme in `arena`
    int32_t size
    int32_t status      # ExtremeStatus


@cython.final
cdef class ExtremeKernel(AggKernel):
    cdef int direction          # 1: the least key is the extreme, -1: the greatest
    cdef bint is_retractable
    cdef object encoder         # KeyEncoder of the argument, ascending
    cdef ByteBuffer arena       # encoded extremes; replaced ones are left behind for the saved records
    cdef Py_ssize_t live_bytes  # of `arena` when it was last packed
    cdef BinaryColumn keys      # encoded arguments of the chunk at hand, or None

    cdef Slice key(self, const Extreme* state) noexcept nogil       # lives until the arena grows
    cdef int order(self, const Extreme* state, Slice key, uint64_t head) noexcept nogil
    # negative: `key` is more extreme than the state's; 0: equal
    cdef int put_key(self, Extreme* state, Slice key, uint64_t head) except -1 nogil
    cdef int add_key(self, Extreme* state, Slice key) except -1 nogil
    cdef int retract_key(self, Extreme* state, Slice key) noexcept nogil
