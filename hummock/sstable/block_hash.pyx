"""The content hash of a decoded block's rows."""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from hummock.base.key cimport Slice
from hummock.base.row_digest cimport row_hash
from hummock.columnar.buffer_pool cimport ByteBuffer
from hummock.sstable.block cimport Block


cdef uint64_t block_hash(Block block, Py_ssize_t first, Py_ssize_t end, uint8_t* key) noexcept nogil:
    cdef Py_ssize_t row, prefix = block.prefix.size
    cdef Slice suffix, value
    cdef uint64_t total = 0
    for row in range(first, end):
        suffix, value = block.suffix_at(row), block.value_at(row)
        memcpy(key + prefix, suffix.data, <size_t>suffix.size)
        total += row_hash(key, prefix + suffix.size, value.data, value.size, block.epoch_at(row))
    return total


def content_hash_of(Block block not None) -> int:
    """The content hash of all rows of a block."""
    cdef ByteBuffer key = ByteBuffer(block.prefix.size + <Py_ssize_t>block.longest_suffix)
    key.append(block.prefix.data, block.prefix.size)
    return block_hash(block, 0, block.rows, key.data)
