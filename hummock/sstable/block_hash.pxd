"""The content hash of a decoded block's rows."""

from libc.stdint cimport uint8_t, uint64_t

from hummock.sstable.block cimport Block

cdef uint64_t block_hash(Block block, Py_ssize_t first, Py_ssize_t end, uint8_t* key) noexcept nogil
# of rows [first, end), under the epochs that the block has for a reader. REQUIRES that the block's prefix stands at
# `key`, and room for its longest suffix behind
