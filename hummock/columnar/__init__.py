"""Arrow memory: columns of bytes, batches of writes, pooled buffers, slabs."""
