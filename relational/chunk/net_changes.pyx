"""What a chunk does to each key in the end, when what happened in between does not matter."""

import numpy as np

from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport free, malloc

from relational.chunk.canonical cimport equal_rows
from relational.chunk.column cimport Column, ColumnView
from relational.chunk.stream_chunk cimport StreamChunk

from relational.chunk.grouping import group_rows


def net_changes(StreamChunk chunk, key_columns) -> StreamChunk:
    """The chunk with at most one retraction and one insertion left visible per key, the rest hidden.

    Of each key stay its first change, if that takes a row away, and its last one, if that puts a row there;
    neither, if they hold the same row. REQUIRES that the changes of a key alternate. An update pair of which
    both halves stay is still a pair, every other change becomes plain.
    """
    cdef int count = len(chunk.columns), i
    cdef const ColumnView** views
    ids, firsts = group_rows(chunk, key_columns)
    if len(firsts) == 0 or len(firsts) == chunk.visible_rows:
        return chunk
    keep = np.zeros(chunk.capacity, dtype=np.uint8)
    lasts = np.zeros(len(firsts), dtype=np.int32)
    views = <const ColumnView**>malloc((count + 1) * sizeof(ColumnView*))
    if views == NULL:
        raise MemoryError("no memory to compare the rows of a chunk")
    for i in range(count):
        views[i] = &(<Column>chunk.columns[i]).view
    mark_net(views, count, chunk.op_pointer(), ids, firsts, lasts, keep)
    free(views)
    return chunk.filter(keep)


cdef void mark_net(
    const ColumnView** views, int count, const uint8_t* ops, const int32_t[::1] ids, const int32_t[::1] firsts,
    int32_t[::1] lasts, uint8_t[::1] keep
) noexcept:
    """Sets `keep` for the changes that stay; `lasts` is scratch, one per group."""
    cdef Py_ssize_t row, group
    for row in range(ids.shape[0]):
        if ids[row] >= 0:
            lasts[ids[row]] = <int32_t>row
    for group in range(firsts.shape[0]):
        keep[firsts[group]] = ops[firsts[group]] & 1
        if not ops[lasts[group]] & 1:
            keep[lasts[group]] = 1
        if firsts[group] != lasts[group] and keep[firsts[group]] and keep[lasts[group]]:
            if equal_rows(views, firsts[group], views, lasts[group], count, True):
                keep[firsts[group]] = keep[lasts[group]] = 0
