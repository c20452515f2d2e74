"""Shuffle files: the exchange of rows between two fragments, as objects beside the files of the store.

A task partitions the changes that it emits by the vnode of a key and writes one object of shuffle blocks, for all of
its receivers on all edges. A block is an Arrow message with a checksum: the columns, and last the ops of the changes.
The driver passes each receiver the positions of its blocks, in the order of the senders. So the result of a receiver
depends only on what was sent, independent of the order and the repetition of tasks, and no row passes through the
driver. The objects are scratch: a lost one fails the job. They are deleted as soon as all receivers are done; those of
an attempt that does not count are left to vacuum.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from hummock.base.checksum import crc32c_of
from hummock.errors import Corruption
from hummock.object_store.base import ObjectStore, ObjectWriter, sstable_data_path
from relational.chunk import Op, StreamChunk
from relational.chunk.vnode_map import VnodeMap
from relational.types import Schema, VnodeRule

OPS = "\x1fop"  # the name of the last column of a block
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
class Partitioning:
    """Which of `receivers` gets a row: the one that owns the vnode of its columns `key` by `rule`, where each owns an
    even part of `vnode_count` vnodes; or `target`, if that is not None, whatever the row."""

    receivers: int = 1
    key: tuple[int, ...] = ()
    vnode_count: int = 1
    rule: VnodeRule = VnodeRule.HASH
    target: int | None = 0


@dataclass(frozen=True, slots=True)
class ShufflePart:
    """What one task sent on one edge: (receiver, start, size, checksum) of each block of the object `name`, in the
    order written, and the number of rows."""

    name: str = ""
    blocks: tuple[tuple[int, int, int, int], ...] = ()
    rows: int = 0

    def by_receiver(self, receivers: int) -> list[list[ShuffleBlock]]:
        """The blocks of each receiver, in the order written."""
        found: list[list[ShuffleBlock]] = [[] for _ in range(receivers)]
        for receiver, start, size, checksum in self.blocks:
            found[receiver].append(ShuffleBlock(self.name, start, size, checksum))
        return found


EMPTY_PART = ShufflePart()


def part_to_json(part: ShufflePart) -> list[Any]:
    """As JSON values."""
    return [part.name, part.blocks, part.rows]


def part_from_json(record: Sequence[Any]) -> ShufflePart:
    """The inverse of `part_to_json`."""
    name, blocks, rows = record
    return ShufflePart(name, tuple(map(tuple, blocks)), rows)


class ShuffleFile:
    """The object of `objects`, named by `mint_name`, with all blocks that a task sends; it is created with the first.
    Thread safe. As a context manager it leaves no object behind when its body raises."""

    def __init__(self, objects: ObjectStore, mint_name: Callable[[], str]) -> None:
        self.name = ""
        """Empty before the first block."""
        self._objects, self._mint_name = objects, mint_name
        self._lock = Lock()
        self._writer: ObjectWriter | None = None
        self._size = 0

    def __enter__(self) -> ShuffleFile:
        return self

    def __exit__(self, *caught: object) -> None:
        if self._writer is not None:
            self._writer.abort()

    def append(self, body: memoryview) -> int:
        """Appends a block; returns its offset."""
        with self._lock:
            if self._writer is None:
                self.name = self._mint_name()
                self._writer = self._objects.create_scratch(sstable_data_path(self.name))
            self._writer.write(body)
            start, self._size = self._size, self._size + len(body)
            return start

    def finish(self) -> None:
        """Makes all blocks readable."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class ShuffleWriter:
    """Partitions the changes of one edge, with the columns of `schema`, into blocks of `file`. Used by one thread."""

    def __init__(self, file: ShuffleFile, schema: Schema, partitioning: Partitioning) -> None:
        self.rows = 0
        """Rows written so far."""
        self._file = file
        self._schema = with_ops(schema)
        self._partitioning = partitioning
        self._waiting: list[StreamChunk] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._blocks: list[tuple[int, int, int, int]] = []

    def add(self, chunk: StreamChunk) -> None:
        """Adds changes."""
        dense = chunk.compact()
        self._waiting.append(dense)
        self._waiting_rows += dense.capacity
        self._waiting_bytes += dense.nbytes
        if self._waiting_rows >= WINDOW_ROWS or self._waiting_bytes >= WINDOW_BYTES:
            self._write_window()

    def finish(self) -> ShufflePart:
        """What was written, readable once the file is finished."""
        if self._waiting_rows:
            self._write_window()
        return ShufflePart(self._file.name, tuple(self._blocks), self.rows)

    def _write_window(self) -> None:
        changes = StreamChunk.concat(self._waiting)
        target = self._partitioning.target
        if target is None and self._partitioning.receivers > 1:
            self._write_partitions(changes)
        else:
            self._write_block(target or 0, self._batch_of(changes))
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        self.rows += changes.capacity

    def _write_partitions(self, changes: StreamChunk) -> None:
        key = [changes.columns[column] for column in self._partitioning.key]
        owners = VnodeMap.even(range(self._partitioning.receivers), self._partitioning.vnode_count)
        targets = owners.targets_of(key, rows=changes.capacity, rule=self._partitioning.rule)
        if changes.op_bits & Op.UPDATE_INSERT:
            changes = changes.with_ops(_ops_of_parted(changes.ops, targets))
        order = np.argsort(targets.astype(np.int16), kind="stable").astype(np.int32)
        batch = self._batch_of(changes.take(order))
        ends = np.cumsum(np.bincount(targets, minlength=self._partitioning.receivers)).tolist()
        for receiver, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            if end > start:
                self._write_block(receiver, batch.slice(start, end - start))

    def _batch_of(self, changes: StreamChunk) -> pa.RecordBatch:
        ops = pa.array(np.asarray(changes.ops))
        return pa.RecordBatch.from_arrays([*changes.arrays, ops], schema=self._schema)

    def _write_block(self, receiver: int, batch: pa.RecordBatch) -> None:
        body = memoryview(batch.serialize()).cast("B")
        self._blocks.append((receiver, self._file.append(body), len(body), crc32c_of(body)))


def with_ops(schema: Schema) -> pa.Schema:
    """The columns of a block."""
    return schema.arrow.append(pa.field(OPS, pa.uint8(), nullable=False))


def _ops_of_parted(ops: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The ops of changes that go to `targets`: an update whose halves go to two is a delete and an insert [R7]."""
    parted = np.flatnonzero((ops[:-1] == Op.UPDATE_DELETE) & (ops[1:] == Op.UPDATE_INSERT)
                            & (targets[:-1] != targets[1:]))
    ops = np.array(ops)
    ops[parted], ops[parted + 1] = Op.DELETE, Op.INSERT
    return ops


def read_blocks(blocks: Sequence[ShuffleBlock], schema: Schema, objects: ObjectStore) -> Iterator[StreamChunk]:
    """The changes of `blocks`, in that order. Corruption, ObjectNotFound."""
    waiting: list[pa.RecordBatch] = []
    rows, columns = 0, with_ops(schema)
    with closing(_read_ahead(blocks, objects)) as bodies:
        for body in bodies:
            waiting.append(pa.ipc.read_record_batch(body, columns))
            rows += waiting[-1].num_rows
            if rows >= CHUNK_ROWS:
                yield _changes(waiting)
                waiting, rows = [], 0
    if waiting:
        yield _changes(waiting)


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


def _changes(batches: Sequence[pa.RecordBatch]) -> StreamChunk:
    whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    *columns, ops = whole.columns
    return StreamChunk(columns, ops.to_numpy())
