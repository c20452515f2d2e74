"""The tasks of a bulk backfill: a spec in, files and parcels out, a report back.

What is known of a task is its report alone, whichever attempt at it that came from: files and parcels that no report
names are nothing. The last fragment sends no parcels.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from hummock.object_store.base import ObjectStore, mint_sstable_name
from hummock.spark.worker import local_directory, task_store
from hummock.sstable.info import SstableInfo
from hummock.store.bulk_store import TaskStore
from relational.catalog.objects import DEFAULT_VNODE_COUNT
from relational.chunk import DataChunk, StreamChunk
from relational.expr import ErrorCounts
from relational.spark.read_spec import ReadSpec, files_of, read_chunks
from stream.errors import InconsistentStream
from stream.options import StreamOptions
from stream.spark.fragment_run import run_fragment
from stream.spark.shuffle_files import NOTHING, Packer, Sent, unpacked
from stream.spark.spec import BackfillSpec, TaskSpec

CHUNK_ROWS = 16_384


@dataclass(frozen=True, slots=True)
class TaskReport:
    """A task: rows that came in and went out, its files, ascending and disjoint, its parcels, and how many of its rows
    have no value, by reason."""

    rows_in: int
    rows_out: int
    sstables: tuple[SstableInfo, ...]
    sent: Sent = NOTHING
    errors: Mapping[str, int] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        record = {
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "sstables": [info.to_json() for info in self.sstables],
            "sent": [self.sent.name, self.sent.parcels],
            "errors": dict(self.errors),
        }
        return json.dumps(record).encode()

    @classmethod
    def from_bytes(cls, text: bytes) -> TaskReport:
        record = json.loads(text)
        files = tuple(map(SstableInfo.from_json, record["sstables"]))
        name, parcels = record["sent"]
        sent = Sent(name, tuple(map(tuple, parcels)))
        return cls(record["rows_in"], record["rows_out"], files, sent, record["errors"])


def checked(reports: list[TaskReport], before: Sequence[TaskReport]) -> list[TaskReport]:
    """The reports of a fragment; `before`: those of the one that sent its rows, if any. InconsistentStream unless what
    was sent came."""
    sent, came = sum(report.rows_out for report in before), sum(report.rows_in for report in reports)
    if before and sent != came:
        raise InconsistentStream("Exchange", f"{sent} rows were sent, {came} came")
    return reports


def run_task(told: bytes) -> bytes:
    """What a Spark task does with its spec: the report."""
    spec = TaskSpec.from_bytes(told)
    url = spec.backfill.url

    def scan(told: bytes) -> Iterable[DataChunk]:
        return read_chunks(ReadSpec.from_bytes(told), files_of(url))

    return task_report(spec, scan, task_store(url)).to_bytes()


def task_report(spec: TaskSpec, scan: Callable[[bytes], Iterable[DataChunk]], objects: ObjectStore) -> TaskReport:
    """Does the task; `scan` reads what its spec says of the upstream, `objects` hold parcels and what is written."""
    backfill, number = spec.backfill, spec.fragment
    fragment = backfill.fragments[number]

    def mint() -> str:
        return mint_sstable_name(os.urandom, backfill.prefix)

    def arriving() -> Iterable[StreamChunk]:
        if spec.scan:
            return map(StreamChunk.inserts, scan(spec.scan))
        return unpacked(spec.parcels, fragment.leaf.schema, objects)

    rows, errors = _Counted(arriving()), ErrorCounts()
    is_last = number == len(backfill.fragments) - 1
    storage = replace(backfill.storage, shared_buffer_bytes=backfill.memory_bytes)
    packing = nullcontext() if is_last else _packer(backfill, number + 1, objects, mint)
    with packing as packer, TaskStore(storage, local_directory()) as store:
        options = StreamOptions(chunk_rows=CHUNK_ROWS)
        for chunk in run_fragment(fragment, rows, store, options, backfill.epoch, errors):
            if packer is not None:
                packer.add(chunk)
        sent, rows_out = (NOTHING, 0) if packer is None else (packer.finish(), packer.rows)
        written = store.write_out(objects, mint, fragment.table_ids)
        if sum(info.rows for info in written) != store.puts:
            raise InconsistentStream(fragment.root.identity, f"of {store.puts} rows of a new state some have one key")
    return TaskReport(rows.count, rows_out, written, sent, errors.take())


class _Counted:
    """Chunks that are counted as they pass."""

    def __init__(self, chunks: Iterable[StreamChunk]) -> None:
        self._chunks = chunks
        self.count = 0

    def __iter__(self) -> Iterator[StreamChunk]:
        for chunk in self._chunks:
            self.count += chunk.visible_rows
            yield chunk


def _packer(backfill: BackfillSpec, number: int, objects: ObjectStore, mint: Callable[[], str]) -> Packer:
    """For the rows that fragment `number` gets."""
    after = backfill.fragments[number]
    return Packer(objects, mint, after.leaf.schema, after.key, backfill.tasks[number], DEFAULT_VNODE_COUNT)
