"""Shuffle files: the exchange of rows between two fragments, as objects beside the files of the store.

A task partitions the changes that it emits by the vnode of a key and writes one object of shuffle blocks, for all of
its receivers on all edges:

    object     blocks, edge by edge, on each edge receiver by receiver
    block      messages of one receiver, about BLOCK_BYTES at most unless one is larger; with a checksum
    message    its size, 8 bytes little-endian, and an Arrow record batch: the columns, and last the ops of the changes

The driver passes each receiver the positions of its blocks, in the order of the senders. So the result of a receiver
depends only on what was sent, independent of the order and the repetition of tasks, and no row passes through the
driver. The objects are scratch: a lost one fails the job. They are deleted as soon as all receivers are done; those of
an attempt that does not count are left to vacuum.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from tempfile import TemporaryFile
from threading import Lock
from typing import IO, Any

import numpy as np
import pyarrow as pa

from hummock.base.checksum import crc32c_of
from hummock.errors import Corruption
from hummock.object_store.base import ObjectStore, sstable_data_path
from relational.chunk import Op, StreamChunk
from relational.chunk.vnode_map import VnodeMap
from relational.types import Schema, VnodeRule

OPS = "\x1fop"  # the name of the last column of a block
SIZE_BYTES = 8
BLOCK_BYTES = 8 << 20
MEMORY_BYTES = 64 << 20  # of messages that wait for the end of a task
WINDOW_ROWS, WINDOW_BYTES = 131_072, 16 << 20  # buffered before they are partitioned, whichever is reached first
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
    """What one task sent on one edge: (receiver, start, size, checksum) of each block of the object `name`, those of a
    receiver in the order of its rows, and the number of rows."""

    name: str = ""
    blocks: tuple[tuple[int, int, int, int], ...] = ()
    rows: int = 0

    def by_receiver(self, receivers: int) -> list[list[ShuffleBlock]]:
        """The blocks of each receiver, in the order of its rows."""
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
    """The object of `objects`, named by `mint_name`, with all that a task sends; there is none if that is nothing.

    Messages wait until the end, up to `memory_bytes` in memory, the rest in a file below `directory`. So those for one
    receiver are together, and a receiver needs one request for what it gets from a sender, or for each BLOCK_BYTES of
    it. Thread safe. As a context manager it leaves nothing behind when its body raises."""

    def __init__(self, objects: ObjectStore, mint_name: Callable[[], str], directory: str | None = None,
                 memory_bytes: int = MEMORY_BYTES) -> None:
        self.name = ""
        """Empty if nothing was sent."""
        self._objects, self._mint_name = objects, mint_name
        self._directory, self._memory_bytes = directory, memory_bytes
        self._lock = Lock()
        self._messages: list[memoryview | tuple[int, int]] = []  # in memory, or offset and size in the local file
        self._in_memory: list[int] = []  # indices of those that are
        self._waiting_bytes = self._spilled_bytes = 0
        self._undo = ExitStack()
        self._spill: IO[bytes] | None = None

    def __enter__(self) -> ShuffleFile:
        return self

    def __exit__(self, *caught: object) -> None:
        self._undo.close()
        self._messages = []

    def add(self, message: memoryview) -> int:
        """Keeps a message; returns its number."""
        with self._lock:
            self._messages.append(message)
            self._in_memory.append(len(self._messages) - 1)
            self._waiting_bytes += len(message)
            if self._waiting_bytes > self._memory_bytes:
                self._spill_messages()
            return len(self._messages) - 1

    def write(self, sent: Sequence[tuple[int, Sequence[int]]]) -> list[list[tuple[int, int, int, int]]]:
        """Writes the object: for each of `sent`, a receiver and the numbers of its messages, blocks one after the
        other; returns (receiver, start, size, checksum) of each. REQUIRES one call."""
        if not self._messages:
            return [[] for _ in sent]
        self.name = self._mint_name()
        writer = self._objects.create_scratch(sstable_data_path(self.name))
        try:
            found, start = [], 0
            for receiver, numbers in sent:
                blocks = []
                for body in self._bodies(numbers):
                    writer.write(body)
                    blocks.append((receiver, start, len(body), crc32c_of(body)))
                    start += len(body)
                found.append(blocks)
        except BaseException:
            writer.abort()
            raise
        writer.close()
        return found

    def _bodies(self, numbers: Sequence[int]) -> Iterator[bytes]:
        """The messages as blocks of about BLOCK_BYTES; each message follows its size."""
        pieces: list[bytes | memoryview] = []
        size = 0
        for number in numbers:
            message = self._message(number)
            pieces += (len(message).to_bytes(SIZE_BYTES, "little"), message)
            size += SIZE_BYTES + len(message)
            if size >= BLOCK_BYTES:
                yield b"".join(pieces)
                pieces, size = [], 0
        if pieces:
            yield b"".join(pieces)

    def _message(self, number: int) -> bytes | memoryview:
        found = self._messages[number]
        if isinstance(found, memoryview):
            return found
        assert self._spill is not None
        self._spill.seek(found[0])
        return self._spill.read(found[1])

    def _spill_messages(self) -> None:
        if self._spill is None:
            self._spill = TemporaryFile(prefix="hummock-", dir=self._directory)  # noqa: SIM115  closed in `__exit__`
            self._undo.callback(self._spill.close)
        for number in self._in_memory:
            message = self._messages[number]
            assert isinstance(message, memoryview)
            self._spill.write(message)
            self._messages[number] = self._spilled_bytes, len(message)
            self._spilled_bytes += len(message)
        self._in_memory, self._waiting_bytes = [], 0


class ShuffleWriter:
    """Partitions the changes of one edge, with the columns of `schema`, into messages of `file`. Used by one thread."""

    def __init__(self, file: ShuffleFile, schema: Schema, partitioning: Partitioning) -> None:
        self.rows = 0
        """Rows written so far."""
        self._file = file
        self._schema = with_ops(schema)
        self._partitioning = partitioning
        self._waiting: list[StreamChunk] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._sent: dict[int, list[int]] = {}  # receiver -> numbers of its messages

    def add(self, chunk: StreamChunk) -> None:
        """Adds changes."""
        dense = chunk.compact()
        self._waiting.append(dense)
        self._waiting_rows += dense.capacity
        self._waiting_bytes += dense.nbytes
        if self._waiting_rows >= WINDOW_ROWS or self._waiting_bytes >= WINDOW_BYTES:
            self._partition()

    def finish(self) -> list[tuple[int, list[int]]]:
        """Each receiver, ascending, with the numbers of its messages."""
        if self._waiting_rows:
            self._partition()
        return sorted(self._sent.items())

    def _partition(self) -> None:
        changes = StreamChunk.concat(self._waiting)
        target = self._partitioning.target
        if target is None and self._partitioning.receivers > 1:
            self._add_partitions(changes)
        else:
            self._add_message(target or 0, self._batch_of(changes))
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        self.rows += changes.capacity

    def _add_partitions(self, changes: StreamChunk) -> None:
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
                self._add_message(receiver, batch.slice(start, end - start))

    def _batch_of(self, changes: StreamChunk) -> pa.RecordBatch:
        ops = pa.array(np.asarray(changes.ops))
        return pa.RecordBatch.from_arrays([*changes.arrays, ops], schema=self._schema)

    def _add_message(self, receiver: int, batch: pa.RecordBatch) -> None:
        number = self._file.add(memoryview(batch.serialize()).cast("B"))
        self._sent.setdefault(receiver, []).append(number)


def write_parts(file: ShuffleFile, writers: Sequence[ShuffleWriter]) -> list[ShufflePart]:
    """What the writers of `file` have sent, readable."""
    sent = [writer.finish() for writer in writers]
    blocks = iter(file.write([each for of_writer in sent for each in of_writer]))
    parts = []
    for writer, of_writer in zip(writers, sent, strict=True):
        found = tuple(block for _ in of_writer for block in next(blocks))
        parts.append(ShufflePart(file.name if found else "", found, writer.rows))
    return parts


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
        for message in (message for body in bodies for message in _messages_in(body)):
            waiting.append(pa.ipc.read_record_batch(message, columns))
            rows += waiting[-1].num_rows
            if rows >= CHUNK_ROWS:
                yield _changes(waiting)
                waiting, rows = [], 0
    if waiting:
        yield _changes(waiting)


def _messages_in(body: pa.Buffer) -> Iterator[pa.Buffer]:
    """The messages of a block. REQUIRES that its checksum is right."""
    at = 0
    while at < body.size:
        size = int.from_bytes(body[at : at + SIZE_BYTES].to_pybytes(), "little")
        yield body.slice(at + SIZE_BYTES, size)
        at += SIZE_BYTES + size


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
