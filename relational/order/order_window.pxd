"""What a batch of changes does to the rows [offset, offset + limit) of an order, or of each group of it."""

from libc.stdint cimport int64_t

from hummock.base.key cimport Slice
from hummock.columnar.buffer_pool cimport ByteBuffer
from relational.order.ordered_index cimport OrderedIndex

cdef int collect(OrderedIndex index, Slice prefix, int64_t offset, int64_t limit, ByteBuffer places) except -1 nogil
# appends a KeyPlace for each copy in the window of the keys that begin with `prefix`
