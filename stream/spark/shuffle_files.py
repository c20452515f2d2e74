"""Shuffle files: the exchange of rows between two fragments, as objects beside the files of the store.

All state of a bulk backfill is empty at its beginning, so the net change of its one epoch consists of inserts only: a
row is sent once, in its final form. A task partitions its rows by the vnode of a key and writes one object of
consecutive shuffle blocks, each an Arrow message with a checksum. The driver passes each receiver the positions of its
blocks, in the order of the senders. So the result of a receiver depends only on what was sent, independent of the
order and the repetition of tasks, and no row passes through the driver. The objects are scratch: a lost one fails the
job. They are deleted as soon as all receivers are done; those of an attempt that does not count are left to vacuum.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from hummock.base.checksum import crc32c_of
from hummock.errors import Corruption
from hummock.object_store.base import ObjectStore, ObjectWriter, sstable_data_path
from relational.chunk import DataChunk, StreamChunk
from relational.chunk.vnode_map import VnodeMap
from relational.types import Schema, VnodeRule
from stream.errors import InconsistentStream

WINDOW_ROWS, WINDOW_BYTES = 524_288, 16 << 20  # buffered before they are partitioned, whichever is reached first
CHUNK_ROWS = 32_768  # approximate rows of a chunk that is read back
AHEAD_BLOCKS, AHEAD_BYTES = 16, 32 << 20  # read while the blocks before them are processed


@dataclass(frozen=True, slots=True)
class ShuffleBlock:
    """Rows for one receiver: `size` bytes at offset `start` of the data object named `name`."""

    name: str
    start: int
    size: int
    checksum: int


@dataclass(frozen=True, slots=True)
class ShufflePart:
    """The output of one task: (receiver, size, checksum) of each block of the object `name`, in file order."""

    name: str = ""
    blocks: tuple[tuple[int, int, int], ...] = ()

    def by_receiver(self, receivers: int) -> list[list[ShuffleBlock]]:
        """The blocks of each receiver, in the order written."""
        found: list[list[ShuffleBlock]] = [[] for _ in range(receivers)]
        start = 0
        for receiver, size, checksum in self.blocks:
            found[receiver].append(ShuffleBlock(self.name, start, size, checksum))
            start += size
        return found


EMPTY_PART = ShufflePart()


class ShuffleWriter:
    """Partitions rows among `receivers` by the vnode of the columns `key`, by `rule`, into an object of `objects` named
    by `mint_name`. As a context manager it leaves no object behind when its body raises."""

    def __init__(self, objects: ObjectStore, mint_name: Callable[[], str], schema: Schema, key: tuple[int, ...],
                 receivers: int, vnode_count: int, rule: VnodeRule = VnodeRule.HASH) -> None:
        self.rows = 0
        """Rows written so far."""
        self._objects = objects
        self._mint_name = mint_name
        self._schema = schema.arrow
        self._key = key
        self._receivers = receivers
        self._vnodes = VnodeMap.even(range(receivers), vnode_count)
        self._rule = rule
        self._waiting: list[DataChunk] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._writer: ObjectWriter | None = None
        self._name = ""
        self._blocks: list[tuple[int, int, int]] = []

    def __enter__(self) -> ShuffleWriter:
        return self

    def __exit__(self, *caught: object) -> None:
        if self._writer is not None:
            self._writer.abort()

    def add(self, chunk: StreamChunk) -> None:
        """Adds rows; InconsistentStream for a change that is no insert."""
        dense = chunk.compact()
        if dense.ops.any():
            raise InconsistentStream("Exchange", "the net change of an epoch that begins with nothing has a retraction")
        self._waiting.append(dense)
        self._waiting_rows += dense.capacity
        self._waiting_bytes += dense.nbytes
        if self._waiting_rows >= WINDOW_ROWS or self._waiting_bytes >= WINDOW_BYTES:
            self._write_window()

    def finish(self) -> ShufflePart:
        """Makes all rows readable. No object is created if no row was added."""
        if self._waiting_rows:
            self._write_window()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        return ShufflePart(self._name, tuple(self._blocks))

    def _write_window(self) -> None:
        rows = DataChunk.concat(self._waiting)
        key = [rows.columns[column] for column in self._key]
        targets = self._vnodes.targets_of(key, rows=rows.capacity, rule=self._rule)
        order = np.argsort(targets.astype(np.int16), kind="stable").astype(np.int32)
        batch = pa.RecordBatch.from_arrays(rows.take(order).arrays, schema=self._schema)
        if self._writer is None:
            self._name = self._mint_name()
            self._writer = self._objects.create_scratch(sstable_data_path(self._name))
        ends = np.cumsum(np.bincount(targets, minlength=self._receivers)).tolist()
        for receiver, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            if end > start:
                body = memoryview(batch.slice(start, end - start).serialize()).cast("B")
                self._writer.write(body)
                self._blocks.append((receiver, len(body), crc32c_of(body)))
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        self.rows += rows.capacity


def read_blocks(blocks: Sequence[ShuffleBlock], schema: Schema, objects: ObjectStore) -> Iterator[StreamChunk]:
    """The rows of `blocks`, in that order, as inserts. Corruption, ObjectNotFound."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    with closing(_read_ahead(blocks, objects)) as bodies:
        for body in bodies:
            waiting.append(pa.ipc.read_record_batch(body, schema.arrow))
            rows += waiting[-1].num_rows
            if rows >= CHUNK_ROWS:
                yield _inserts(waiting)
                waiting, rows = [], 0
    if waiting:
        yield _inserts(waiting)


def _read_ahead(blocks: Sequence[ShuffleBlock], objects: ObjectStore) -> Generator[pa.Buffer, None, None]:
    """The bodies of `blocks`, in that order. A block is a request, each of which takes its time at a remote store: up
    to AHEAD_BLOCKS are under way at once, and up to AHEAD_BYTES of blocks are under way or waiting."""
    under_way: deque[tuple[Future[pa.Buffer], int]] = deque()
    ahead = 0
    with ThreadPoolExecutor(min(len(blocks), AHEAD_BLOCKS) or 1, thread_name_prefix="hummock-shuffle") as pool:
        try:
            for block in blocks:
                while len(under_way) >= AHEAD_BLOCKS or (under_way and ahead + block.size > AHEAD_BYTES):
                    body, size = under_way.popleft()
                    ahead -= size
                    yield body.result()
                under_way.append((pool.submit(_body, block, objects), block.size))
                ahead += block.size
            while under_way:
                yield under_way.popleft()[0].result()
        finally:
            for body, _ in under_way:
                body.cancel()


def _body(block: ShuffleBlock, objects: ObjectStore) -> pa.Buffer:
    path = sstable_data_path(block.name)
    body = objects.get(path, range(block.start, block.start + block.size))
    if len(body) != block.size or crc32c_of(body) != block.checksum:
        raise Corruption(path, f"shuffle block at {block.start}", f"{block.size} bytes of checksum {block.checksum}",
                         f"{len(body)} of {crc32c_of(body)}")
    return pa.py_buffer(body)


def _inserts(batches: Sequence[pa.RecordBatch]) -> StreamChunk:
    whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    return StreamChunk(whole.columns, np.zeros(whole.num_rows, np.uint8))
