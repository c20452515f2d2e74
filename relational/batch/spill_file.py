"""SpillFile: chunks of rows for which a query has no memory, in a temporary file.

    file     chunks, one after the other
    chunk    an Arrow IPC stream of one record batch, whose buffers are compressed by LZ4; its columns are named 0, 1, …

The positions, sizes, row counts and checksums (CRC-32C) of the chunks are in memory: no other process reads the file.
It has no name, so it is gone with the process, however that ends.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO

import pyarrow as pa

from hummock.base.checksum import crc32c_of
from hummock.errors import Corruption
from relational.chunk import Column, DataChunk
from relational.errors import QueryTooLarge, SpillFailed
from relational.types import DataType, Schema
from relational.types.schema import Field

DISK_OPTION = "query_disk_bytes"
FREE_SHARE = 2
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


class SpillSpace:
    """The temporary files of the queries of a session, in `directory` ("": where the system has such files), with
    `limit_bytes` in all of them together; 0: half of what is free there when the first one is written. Thread safe."""

    def __init__(self, limit_bytes: int, directory: str = "") -> None:
        self._limit_bytes = limit_bytes
        self._directory = directory
        self._lock = threading.Lock()
        self.used_bytes = 0
        """Of all files that exist."""
        self.written_bytes = 0
        """Of all files that ever were."""

    @property
    def directory(self) -> str:
        """Where the files are."""
        return self._directory or tempfile.gettempdir()

    def file(self, types: Sequence[DataType]) -> SpillFile:
        """A new, empty one for rows of these types. SpillFailed."""
        return SpillFile(self, types)

    def take(self, size: int) -> None:
        """`size` bytes are about to be written. QueryTooLarge."""
        with self._lock:
            self._limit_bytes = self._limit_bytes or max(shutil.disk_usage(self.directory).free // FREE_SHARE, 1)
            if self.used_bytes + size > self._limit_bytes:
                raise QueryTooLarge("bytes of rows on disk", DISK_OPTION, self._limit_bytes)
            self.used_bytes += size
            self.written_bytes += size

    def give_back(self, sizes: list[int]) -> None:
        """A file of chunks of these sizes is gone."""
        with self._lock:
            self.used_bytes -= sum(sizes)


@dataclass(frozen=True, slots=True)
class _Stored:
    start: int
    size: int
    checksum: int
    rows: int


class SpillFile:
    """Chunks without hidden rows, in the order in which they were appended. It is closed when nobody refers to it. One
    thread at a time."""

    def __init__(self, space: SpillSpace, types: Sequence[DataType]) -> None:
        self.types = tuple(types)
        self._space = space
        self._schema = Schema([Field(str(number), each) for number, each in enumerate(self.types)])
        self._chunks: list[_Stored] = []
        self._end = 0
        self._sizes: list[int] = []  # of what was taken of the space
        try:
            file = TemporaryFile(dir=space.directory, buffering=0)  # noqa: SIM115 closed with this object
        except OSError as error:
            raise SpillFailed(space.directory, str(error)) from error
        self._descriptor = file.fileno()
        weakref.finalize(self, _close, file, space, self._sizes)

    def __len__(self) -> int:
        """The number of chunks."""
        return len(self._chunks)

    def __repr__(self) -> str:
        return f"SpillFile({len(self)} chunks, {self.rows} rows, {self.size_bytes} bytes)"

    @property
    def rows(self) -> int:
        """Of all chunks."""
        return sum(each.rows for each in self._chunks)

    @property
    def size_bytes(self) -> int:
        """On disk."""
        return self._end

    def append(self, chunk: DataChunk) -> None:
        """QueryTooLarge if the disk space of the session's queries is used up, SpillFailed if nothing can be written.
        """
        data = memoryview(self._encoded(chunk) if self.types else b"").cast("B")
        self._space.take(len(data))
        self._sizes.append(len(data))
        try:
            _write(self._descriptor, data, self._end)
        except OSError as error:
            raise SpillFailed(self._space.directory, str(error)) from error
        self._chunks.append(_Stored(self._end, len(data), crc32c_of(data), chunk.capacity))
        self._end += len(data)

    def chunk(self, number: int) -> DataChunk:
        """SpillFailed; Corruption if the bytes are not those that were written."""
        stored = self._chunks[number]
        if not self.types:
            return DataChunk([], capacity=stored.rows)
        try:
            data = os.pread(self._descriptor, stored.size, stored.start)
        except OSError as error:
            raise SpillFailed(self._space.directory, str(error)) from error
        if len(data) != stored.size or crc32c_of(data) != stored.checksum:
            raise Corruption(f"a temporary file of a query in {self._space.directory}", f"offset {stored.start}")
        with pa.ipc.open_stream(data) as stream:
            batch = stream.read_next_batch()
        columns = [Column(array, kind) for array, kind in zip(batch.columns, self.types, strict=True)]
        return DataChunk(columns, capacity=stored.rows)

    def __iter__(self) -> Iterator[DataChunk]:
        return map(self.chunk, range(len(self)))

    def _encoded(self, chunk: DataChunk) -> pa.Buffer:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema.arrow, options=_COMPRESSED) as stream:
            stream.write_batch(chunk.to_arrow(self._schema))
        return sink.getvalue()


def _close(file: IO[bytes], space: SpillSpace, sizes: list[int]) -> None:
    file.close()
    space.give_back(sizes)


def _write(descriptor: int, data: memoryview, start: int) -> None:
    """All of it. OSError."""
    while data:
        written = os.pwrite(descriptor, data, start)
        data, start = data[written:], start + written
