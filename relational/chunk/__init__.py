"""Columns and chunks: rows side by side, some hidden, some of them changes."""

from relational.chunk.column import Column, mask_of
from relational.chunk.data_chunk import DataChunk
from relational.chunk.stream_chunk import Op, StreamChunk

__all__ = ["Column", "DataChunk", "Op", "StreamChunk", "mask_of"]
