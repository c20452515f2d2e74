"""Digest of a change stream: equal for streams that leave the same multiset of rows, whatever their order and chunks.

    row digest = fold of all columns' canonical values, as `add_hashes` of canonical.pyx, from 0 on
    digest     = sum of the digests of inserted rows less those of deleted ones, modulo 2**64

Stored by digest sinks, so the digest of a value never changes; test_change_digest.py has examples.
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport free, malloc

from relational.chunk.canonical cimport add_hashes
from relational.chunk.column cimport Column, ColumnView
from relational.chunk.data_chunk cimport mask_pointer
from relational.chunk.stream_chunk cimport DELETE, StreamChunk

cdef enum:
    BLOCK_ROWS = 1024           # their digests fit the L1 cache


def change_digest(StreamChunk chunk not None) -> tuple:
    """(inserted rows, deleted rows, digest) of the visible changes of a chunk."""
    cdef Py_ssize_t rows = chunk.capacity, count = len(chunk.columns), at, deleted = 0, visible = 0
    cdef const uint8_t* ops = chunk.op_pointer()
    cdef const uint8_t* mask = mask_pointer(chunk.visibility)
    cdef const ColumnView** views = <const ColumnView**>malloc(sizeof(ColumnView*) * <size_t>(count + 1))
    cdef uint64_t digest
    if views == NULL:
        raise MemoryError
    for at in range(count):
        views[at] = &(<Column>chunk.columns[at]).view
    with nogil:
        digest = digest_of(views, count, rows, ops, mask)
        for at in range(rows):
            if mask == NULL or mask[at]:
                visible += 1
                deleted += ops[at] & DELETE
    free(views)
    return visible - deleted, deleted, digest


cdef uint64_t digest_of(
    const ColumnView** views, Py_ssize_t count, Py_ssize_t rows, const uint8_t* ops, const uint8_t* mask
) noexcept nogil:
    cdef uint64_t hashes[BLOCK_ROWS]
    cdef uint64_t digest = 0
    cdef Py_ssize_t first = 0, size, row, column
    while first < rows:
        size = min(rows - first, <Py_ssize_t>BLOCK_ROWS)
        for row in range(size):
            hashes[row] = 0
        for column in range(count):
            add_hashes(views[column], first, size, hashes)
        for row in range(size):
            if mask == NULL or mask[first + row]:
                digest += <uint64_t>0 - hashes[row] if ops[first + row] & DELETE else hashes[row]
        first += size
    return digest
