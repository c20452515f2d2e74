"""The exchange between two fragments: rows as parcels, shuffled by vnode.

All state that a bulk backfill begins with is empty, so the net change of its one epoch is nothing but inserts: a row
is sent once, as it is in the end. Rows travel many together, as Arrow messages that whoever shuffles them never looks
into. A parcel knows who packed it and in which place: the receiver takes parcels in that order, whatever order they
come in, so that what it computes depends on what was sent alone.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO

import numpy as np
import pyarrow as pa

from relational.chunk import DataChunk, StreamChunk
from relational.chunk.vnode_map import VnodeMap
from relational.types import Schema
from stream.errors import InconsistentStream

ROWS, REPORT, GREETING = 0, 1, 2
"""What a parcel holds: rows; what a task says of itself; nothing, so that its receiver runs without rows too."""
WINDOW_ROWS, WINDOW_BYTES = 262_144, 16 << 20  # that are parted at once, as soon as either is there
CHUNK_ROWS = 32_768  # of a chunk as it is unpacked, about
PARCELS = pa.schema(
    [("part", pa.int32()), ("kind", pa.int8()), ("sender", pa.int32()), ("number", pa.int32()), ("body", pa.binary())]
)
"""`part`: the receiver; `number`: of a parcel among those of its sender."""


class Packer:
    """Parts the rows of task `sender` among `parts` receivers by the vnode of the columns `key`."""

    def __init__(self, sender: int, schema: Schema, key: tuple[int, ...], parts: int, vnode_count: int) -> None:
        self.rows = 0
        """Sent so far."""
        self._sender = sender
        self._schema = schema.arrow
        self._key = key
        self._parts = parts
        self._vnodes = VnodeMap.even(range(parts), vnode_count)
        self._waiting: list[DataChunk] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._number = 0

    def greetings(self) -> pa.RecordBatch:
        """One parcel for each receiver."""
        return parcels(GREETING, self._sender, [(part, -1, b"") for part in range(self._parts)])

    def add(self, chunk: StreamChunk) -> Iterator[pa.RecordBatch]:
        """The parcels that are full now. InconsistentStream for a change that is no insert."""
        dense = chunk.compact()
        if dense.ops.any():
            raise InconsistentStream("Exchange", "the net change of an epoch that begins with nothing has a retraction")
        self._waiting.append(dense)
        self._waiting_rows += dense.capacity
        self._waiting_bytes += dense.nbytes
        if self._waiting_rows >= WINDOW_ROWS or self._waiting_bytes >= WINDOW_BYTES:
            yield self._packed()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What is left at the end."""
        if self._waiting_rows:
            yield self._packed()

    def _packed(self) -> pa.RecordBatch:
        rows = DataChunk.concat(self._waiting)
        targets = self._vnodes.targets_of([rows.columns[column] for column in self._key], rows=rows.capacity)
        order = np.argsort(targets.astype(np.int16), kind="stable").astype(np.int32)
        batch = pa.RecordBatch.from_arrays(rows.take(order).arrays, schema=self._schema)
        ends = np.cumsum(np.bincount(targets, minlength=self._parts)).tolist()
        packed = []
        for part, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            if end > start:
                packed.append((part, self._number, batch.slice(start, end - start).serialize()))
                self._number += 1
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        self.rows += rows.capacity
        return parcels(ROWS, self._sender, packed)


def parcels(kind: int, sender: int, bodies: list[tuple[int, int, bytes | pa.Buffer]]) -> pa.RecordBatch:
    """Parcels of one kind as a batch of PARCELS; `bodies` are (part, number, body)."""
    count = len(bodies)
    ends = np.cumsum([0, *(len(body) for _, _, body in bodies)]).astype(np.int32)
    data = pa.BufferOutputStream()
    for _, _, body in bodies:
        data.write(body)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([part for part, _, _ in bodies], pa.int32()),
            pa.array([kind] * count, pa.int8()),
            pa.array([sender] * count, pa.int32()),
            pa.array([number for _, number, _ in bodies], pa.int32()),
            pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), data.getvalue()]),
        ],
        schema=PARCELS,
    )


@dataclass(frozen=True, slots=True)
class _Kept:
    """A body in memory, or where it stands in the file."""

    order: tuple[int, int]
    body: pa.Buffer | None
    start: int
    size: int


class Unpacker:
    """Takes in all parcels of one task, then gives their rows in the order of their senders.

    Beyond `memory_bytes` bodies go to a file in `directory`. Reports are kept, to be passed on."""

    def __init__(self, schema: Schema, memory_bytes: int, directory: str | None = None) -> None:
        self.part: int | None = None
        """Whose parcels these are; None before the first one."""
        self.reports: list[bytes] = []
        self.rows = 0
        self._schema = schema.arrow
        self._left = memory_bytes
        self._directory = directory
        self._kept: list[_Kept] = []
        self._file: IO[bytes] | None = None
        self._undo = ExitStack()
        self._written = 0

    def take(self, batches: Iterable[pa.RecordBatch]) -> None:
        """All parcels that there are."""
        for batch in batches:
            columns = (batch.column(place).to_pylist() for place in range(4))
            for row, (part, kind, sender, number) in enumerate(zip(*columns, strict=True)):
                self.part = part
                if kind == REPORT:
                    self.reports.append(batch.column(4)[row].as_py())
                elif kind == ROWS:
                    self._keep((sender, number), batch.column(4)[row].as_buffer())

    def chunks(self) -> Iterator[StreamChunk]:
        """The rows of all parcels as inserts."""
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for kept in sorted(self._kept, key=lambda each: each.order):
            waiting.append(pa.ipc.read_record_batch(self._body(kept), self._schema))
            rows += waiting[-1].num_rows
            if rows >= CHUNK_ROWS:
                yield self._chunk(waiting)
                waiting, rows = [], 0
        if waiting:
            yield self._chunk(waiting)

    def close(self) -> None:
        self._undo.close()

    def _chunk(self, batches: list[pa.RecordBatch]) -> StreamChunk:
        whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        self.rows += whole.num_rows
        return StreamChunk(whole.columns, np.zeros(whole.num_rows, np.uint8))

    def _keep(self, order: tuple[int, int], body: pa.Buffer) -> None:
        if body.size <= self._left:
            self._left -= body.size
            self._kept.append(_Kept(order, body, 0, body.size))
            return
        if self._file is None:
            file = tempfile.TemporaryFile(prefix="hummock-", dir=self._directory)  # noqa: SIM115  close() ends it
            self._file = self._undo.enter_context(file)
        self._file.write(body)
        self._kept.append(_Kept(order, None, self._written, body.size))
        self._written += body.size

    def _body(self, kept: _Kept) -> pa.Buffer:
        if kept.body is not None:
            return kept.body
        assert self._file is not None
        self._file.flush()
        return pa.py_buffer(os.pread(self._file.fileno(), kept.size, kept.start))
