"""Columns and chunks: batches of rows, some hidden, some of them changes."""

from relational.chunk.column import Column, mask_of
from relational.chunk.data_chunk import DataChunk
from relational.chunk.row_ids import RowIdGenerator
from relational.chunk.stream_chunk import Op, StreamChunk
from relational.chunk.vnode import vnodes_of
from relational.chunk.vnode_map import VnodeMap, vnode_ranges

__all__ = [
    "Column",
    "DataChunk",
    "Op",
    "RowIdGenerator",
    "StreamChunk",
    "VnodeMap",
    "mask_of",
    "vnode_ranges",
    "vnodes_of",
]
