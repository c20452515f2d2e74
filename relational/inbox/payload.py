"""Payload objects: the rows of a request as objects of the store, each an Arrow IPC stream with a checksum.

They lie among the files of tables, under registered name prefixes, so that vacuum keeps them while their request is
open and removes what is left of attempts that do not count. Whoever writes them needs the object store only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from hummock.base.checksum import crc32c_of
from hummock.base.json_fields import natural
from hummock.errors import Corruption, InvalidOption, ObjectStoreError
from hummock.object_store.base import ObjectStore, is_sstable_name, sstable_data_path

OBJECT_BYTES = 32 << 20     # of rows in memory, approximately, from which on the next object is begun
MOST_OBJECTS = 4_096        # of one request, whose row names them all
IPC = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True)
class PayloadObject:
    """An object: its stored bytes and their CRC-32C, its rows, and the bytes that these take in memory."""

    name: str
    size: int
    checksum: int
    rows: int
    row_bytes: int

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> PayloadObject:
        """ValueError, KeyError or TypeError for a malformed record."""
        if not is_sstable_name(record["name"]):
            raise ValueError(f"{str(record['name'])[:80]!r} is no name of an object")
        return cls(record["name"], *(natural(record[name]) for name in ("size", "checksum", "rows", "row_bytes")))


def write_payload(batches: Iterable[pa.RecordBatch], objects: ObjectStore,
                  mint_name: Callable[[], str]) -> tuple[PayloadObject, ...]:
    """Writes the rows of `batches`, which have one schema, as durable objects named by `mint_name`; none for no rows.
    """
    written: list[PayloadObject] = []
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        size += batch.nbytes
        if size >= OBJECT_BYTES:
            written.append(_written(waiting, objects, mint_name()))
            waiting, size = [], 0
    if waiting:
        written.append(_written(waiting, objects, mint_name()))
    return tuple(written)


def read_payload(payload: Sequence[PayloadObject], objects: ObjectStore) -> pa.Table | None:
    """The rows, None for no object. Corruption, ObjectNotFound."""
    tables = [_read(each, objects) for each in payload]
    return pa.concat_tables(tables) if tables else None


def remove_payload(payload: Sequence[PayloadObject], objects: ObjectStore) -> None:
    """Deletes the objects of answered requests; what cannot be deleted is left to vacuum."""
    if payload:
        with suppress(ObjectStoreError):
            objects.delete([sstable_data_path(each.name) for each in payload])


def check_count(payload: Sequence[PayloadObject]) -> None:
    """InvalidOption for more objects than a request may name."""
    if len(payload) > MOST_OBJECTS:
        raise InvalidOption("partitions", len(payload), f"at most {MOST_OBJECTS} with rows: coalesce the frame, whose "
                                                        "partitions are an object each")


def _written(batches: Sequence[pa.RecordBatch], objects: ObjectStore, name: str) -> PayloadObject:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=IPC) as writer:
        for batch in batches:
            writer.write_batch(batch)
    body = memoryview(sink.getvalue()).cast("B")
    objects.put(sstable_data_path(name), body, if_absent=True)
    return PayloadObject(name, len(body), crc32c_of(body), sum(batch.num_rows for batch in batches),
                         sum(batch.nbytes for batch in batches))


def _read(payload: PayloadObject, objects: ObjectStore) -> pa.Table:
    path = sstable_data_path(payload.name)
    body = objects.get(path)
    if len(body) != payload.size or crc32c_of(body) != payload.checksum:
        raise Corruption(path, "rows of a request", f"{payload.size} bytes of checksum {payload.checksum}",
                         f"{len(body)} of {crc32c_of(body)}")
    return pa.ipc.open_stream(pa.py_buffer(body)).read_all()
