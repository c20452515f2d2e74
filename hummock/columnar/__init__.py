"""Arrow memory: binary columns, write batches, pooled buffers, slabs."""
