"""The tasks of a bulk backfill: rows in, parcels and files out. What a Spark stage calls for each of its partitions.

A task reports the files that it wrote, and how many rows came and went, in a parcel of its own: so what is known of a
task comes from the attempt whose rows were used, however often it ran. The last fragment's parcels are all reports.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from hummock.object_store.base import ObjectStore, mint_sstable_name
from hummock.sstable.info import SstableInfo
from hummock.task_store import TaskStore
from relational.catalog.objects import DEFAULT_VNODE_COUNT
from relational.chunk import DataChunk, StreamChunk
from stream.errors import InconsistentStream
from stream.options import StreamOptions
from stream.spark.exchange import REPORT, Packer, Unpacker, parcels
from stream.spark.fragment_run import run_fragment
from stream.spark.spec import BackfillSpec

CHUNK_ROWS = 16_384


@dataclass(frozen=True, slots=True)
class TaskReport:
    """Task `place` of a fragment: rows that came in and went out, and its files, ascending and disjoint."""

    fragment: int
    place: int
    rows_in: int
    rows_out: int
    sstables: tuple[SstableInfo, ...]

    def to_bytes(self) -> bytes:
        record = {
            "fragment": self.fragment,
            "place": self.place,
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "sstables": [info.to_json() for info in self.sstables],
        }
        return json.dumps(record).encode()

    @classmethod
    def from_bytes(cls, text: bytes) -> TaskReport:
        record = json.loads(text)
        files = tuple(map(SstableInfo.from_json, record["sstables"]))
        return cls(record["fragment"], record["place"], record["rows_in"], record["rows_out"], files)


def checked(reports: Sequence[TaskReport], spec: BackfillSpec) -> list[TaskReport]:
    """The reports in order. InconsistentStream unless every task reported once and what was sent came."""
    ordered = sorted(reports, key=lambda report: (report.fragment, report.place))
    expected = [(fragment, place) for fragment, tasks in enumerate(spec.tasks) for place in range(tasks)]
    found = [(report.fragment, report.place) for report in ordered]
    if found != expected:
        raise InconsistentStream("Exchange", f"reports of the tasks {found}, expected {expected}")
    for fragment in range(1, len(spec.tasks)):
        sent = sum(report.rows_out for report in ordered if report.fragment == fragment - 1)
        came = sum(report.rows_in for report in ordered if report.fragment == fragment)
        if sent != came:
            raise InconsistentStream("Exchange", f"{sent} rows were sent to fragment {fragment}, {came} came")
    return ordered


def scan_task(
    spec: BackfillSpec, place: int, rows: Iterable[DataChunk], objects: ObjectStore
) -> Iterator[pa.RecordBatch]:
    """Task `place` of the first fragment over the rows of its part of the table."""
    read = 0

    def chunks() -> Iterator[StreamChunk]:
        nonlocal read
        for each in rows:
            read += each.visible_rows
            yield StreamChunk.inserts(each)

    yield from _run(spec, 0, place, chunks(), lambda: read, objects)


def arrival_task(
    spec: BackfillSpec, fragment: int, batches: Iterable[pa.RecordBatch], objects: ObjectStore
) -> Iterator[pa.RecordBatch]:
    """A task of a later fragment over all parcels that were sent to it."""
    unpacker = Unpacker(spec.fragments[fragment].leaf.schema, spec.memory_bytes)
    try:
        unpacker.take(batches)
        if unpacker.part is None:
            return
        yield from _run(spec, fragment, unpacker.part, unpacker.chunks(), lambda: unpacker.rows, objects)
        if unpacker.reports:
            yield parcels(REPORT, unpacker.part, [(0, -1, report) for report in unpacker.reports])
    finally:
        unpacker.close()


def _run(
    spec: BackfillSpec,
    number: int,
    place: int,
    chunks: Iterable[StreamChunk],
    rows_in: Callable[[], int],
    objects: ObjectStore,
) -> Iterator[pa.RecordBatch]:
    fragment, is_last = spec.fragments[number], number == len(spec.fragments) - 1
    packer = None
    if not is_last:
        after = spec.fragments[number + 1]
        packer = Packer(place, after.leaf.schema, after.key, spec.tasks[number + 1], DEFAULT_VNODE_COUNT)
        if place == 0:
            yield packer.greetings()
    storage = replace(spec.storage, shared_buffer_bytes=spec.memory_bytes)
    with TaskStore(storage) as store:
        for chunk in run_fragment(fragment, chunks, store, StreamOptions(chunk_rows=CHUNK_ROWS), spec.epoch):
            if packer is not None:
                yield from packer.add(chunk)
        if packer is not None:
            yield from packer.rest()
        files = store.write_out(objects, lambda: mint_sstable_name(os.urandom, spec.prefix), fragment.table_ids)
    rows_out = 0 if packer is None else packer.rows
    report = TaskReport(number, place, rows_in(), rows_out, files)
    yield parcels(REPORT, place, [(0, -1, report.to_bytes())])
