"""The exchange between two fragments: rows as parcels, in objects beside the files of the store.

All state that a bulk backfill begins with is empty, so the net change of its one epoch is nothing but inserts: a row
is sent once, as it is in the end. A task parts its rows by the vnode of a key and writes one object, parcel behind
parcel, each an Arrow message with a checksum; whoever starts the receivers tells them where theirs are, in the order of
the senders. So what a receiver computes depends on what was sent alone, whatever ran first or twice, and no row passes
through what runs the tasks. The objects are scratch, as a lost one fails the job, and go as soon as all receivers are
done; those of an attempt that does not count are left to vacuum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from hummock.base.checksum import crc32c_of
from hummock.errors import Corruption
from hummock.object_store.base import ObjectStore, ObjectWriter, sstable_data_path
from relational.chunk import DataChunk, StreamChunk
from relational.chunk.vnode_map import VnodeMap
from relational.types import Schema
from stream.errors import InconsistentStream

WINDOW_ROWS, WINDOW_BYTES = 524_288, 16 << 20  # that are parted at once, as soon as either is there
CHUNK_ROWS = 32_768  # of a chunk as it is unpacked, about


@dataclass(frozen=True, slots=True)
class Parcel:
    """Rows for one receiver: `size` bytes from `start` on in the data object of the name `name`."""

    name: str
    start: int
    size: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Sent:
    """What one task sent: (receiver, size, checksum) of each parcel of the object `name`, from its first byte on."""

    name: str = ""
    parcels: tuple[tuple[int, int, int], ...] = ()

    def by_receiver(self, receivers: int) -> list[list[Parcel]]:
        """The parcels of each receiver, as they were written."""
        found: list[list[Parcel]] = [[] for _ in range(receivers)]
        start = 0
        for receiver, size, checksum in self.parcels:
            found[receiver].append(Parcel(self.name, start, size, checksum))
            start += size
        return found


NOTHING = Sent()


class Packer:
    """Parts rows among `parts` receivers by the vnode of the columns `key`, into an object of `objects` under a name
    that `mint_name` gives. As a context it leaves no object where its body raises."""

    def __init__(self, objects: ObjectStore, mint_name: Callable[[], str], schema: Schema, key: tuple[int, ...],
                 parts: int, vnode_count: int) -> None:
        self.rows = 0
        """Sent so far."""
        self._objects = objects
        self._mint_name = mint_name
        self._schema = schema.arrow
        self._key = key
        self._parts = parts
        self._vnodes = VnodeMap.even(range(parts), vnode_count)
        self._waiting: list[DataChunk] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._writer: ObjectWriter | None = None
        self._name = ""
        self._parcels: list[tuple[int, int, int]] = []

    def __enter__(self) -> Packer:
        return self

    def __exit__(self, *caught: object) -> None:
        if self._writer is not None:
            self._writer.abort()

    def add(self, chunk: StreamChunk) -> None:
        """InconsistentStream for a change that is no insert."""
        dense = chunk.compact()
        if dense.ops.any():
            raise InconsistentStream("Exchange", "the net change of an epoch that begins with nothing has a retraction")
        self._waiting.append(dense)
        self._waiting_rows += dense.capacity
        self._waiting_bytes += dense.nbytes
        if self._waiting_rows >= WINDOW_ROWS or self._waiting_bytes >= WINDOW_BYTES:
            self._pack()

    def finish(self) -> Sent:
        """All of it can be read. No object where nothing was sent."""
        if self._waiting_rows:
            self._pack()
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        return Sent(self._name, tuple(self._parcels))

    def _pack(self) -> None:
        rows = DataChunk.concat(self._waiting)
        targets = self._vnodes.targets_of([rows.columns[column] for column in self._key], rows=rows.capacity)
        order = np.argsort(targets.astype(np.int16), kind="stable").astype(np.int32)
        batch = pa.RecordBatch.from_arrays(rows.take(order).arrays, schema=self._schema)
        if self._writer is None:
            self._name = self._mint_name()
            self._writer = self._objects.create_scratch(sstable_data_path(self._name))
        ends = np.cumsum(np.bincount(targets, minlength=self._parts)).tolist()
        for part, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
            if end > start:
                body = memoryview(batch.slice(start, end - start).serialize()).cast("B")
                self._writer.write(body)
                self._parcels.append((part, len(body), crc32c_of(body)))
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        self.rows += rows.capacity


def unpacked(parcels: Sequence[Parcel], schema: Schema, objects: ObjectStore) -> Iterator[StreamChunk]:
    """The rows of `parcels`, one after the other, as inserts. Corruption, ObjectNotFound."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for parcel in parcels:
        waiting.append(pa.ipc.read_record_batch(_body(parcel, objects), schema.arrow))
        rows += waiting[-1].num_rows
        if rows >= CHUNK_ROWS:
            yield _inserts(waiting)
            waiting, rows = [], 0
    if waiting:
        yield _inserts(waiting)


def _body(parcel: Parcel, objects: ObjectStore) -> pa.Buffer:
    path = sstable_data_path(parcel.name)
    body = objects.get(path, range(parcel.start, parcel.start + parcel.size))
    if len(body) != parcel.size or crc32c_of(body) != parcel.checksum:
        raise Corruption(path, f"parcel at {parcel.start}", f"{parcel.size} bytes of checksum {parcel.checksum}",
                         f"{len(body)} of {crc32c_of(body)}")
    return pa.py_buffer(body)


def _inserts(batches: Sequence[pa.RecordBatch]) -> StreamChunk:
    whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    return StreamChunk(whole.columns, np.zeros(whole.num_rows, np.uint8))
