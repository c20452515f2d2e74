"""A bulk backfill without Spark: its tasks one after the other, some of them twice, parcels in any order."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import pyarrow as pa

from hummock.iterator.collect import BatchCollector
from hummock.key import KeyRange
from hummock.object_store.base import ObjectStore
from hummock.options import StorageOptions
from hummock.read_view import ReadView, SortedRun
from hummock.sstable.store import SstableStore
from hummock.state_store import ReadOptions
from hummock.version import HummockVersion
from relational.chunk import DataChunk
from relational.spark.read_spec import OPTIONS, ReadSpec, read_chunks
from stream.session import Session
from stream.spark.exchange import REPORT
from stream.spark.spec import BackfillSpec
from stream.spark.tasks import TaskReport, arrival_task, scan_task


class LocalTasks:
    """Tasks over the files of a session's store, as `BulkBackfill` takes them; `during` happens before they are
    done, after everything was read."""

    slots = 3

    def __init__(self, session: Session, rng: random.Random, during: Callable[[], object] = lambda: None) -> None:
        self._storage, self._rng, self._during = session._playground.storage, rng, during

    def check(self, view: str, url: str) -> None:
        """They always can."""

    def run(self, spec: BackfillSpec, scans: Sequence[bytes]) -> list[TaskReport]:
        objects = self._storage._sstable_store.object_store
        files = SstableStore(objects, OPTIONS)
        parts = [list(read_chunks(ReadSpec.from_bytes(scan), files)) for scan in scans]
        reports = run_backfill(spec, lambda place: parts[place], objects, self._rng)
        self._during()
        return reports


def run_backfill(
    spec: BackfillSpec, rows: Callable[[int], Sequence[DataChunk]], objects: ObjectStore, rng: random.Random
) -> list[TaskReport]:
    """What a driver gets. `rows(place)`: what task `place` of the first fragment reads."""
    sent: list[pa.RecordBatch] = []
    for number, tasks in enumerate(spec.tasks):
        places = rng.sample(range(tasks), tasks)
        arrived = _shuffled(sent, rng)
        sent = []
        for place in places:
            mine = [each for each in arrived if each["part"][0].as_py() == place]
            for _ in range(rng.randint(1, 2)):  # of an attempt that is repeated the last one counts
                if number == 0:
                    made = list(scan_task(spec, place, rows(place), objects))
                else:
                    made = list(arrival_task(spec, number, mine, objects))
            sent += made
    return [TaskReport.from_bytes(body) for body in _reports(sent)]


def _shuffled(sent: list[pa.RecordBatch], rng: random.Random) -> list[pa.RecordBatch]:
    """One parcel a batch, in any order."""
    single = [batch.slice(row, 1) for batch in sent for row in range(batch.num_rows)]
    return rng.sample(single, len(single))


def _reports(sent: list[pa.RecordBatch]) -> Iterator[bytes]:
    for batch in sent:
        for row in range(batch.num_rows):
            if batch["kind"][row].as_py() == REPORT:
                yield batch["body"][row].as_py()


def rows_of_files(reports: Sequence[TaskReport], objects: ObjectStore, table_id: int) -> dict[bytes, bytes]:
    """Key -> value of one table in the files that tasks reported; each key in one of them only."""
    store = SstableStore(objects, StorageOptions())
    runs = [report.sstables for report in reports if report.sstables]
    infos = sorted((info for run in runs for info in run), key=lambda info: info.smallest)
    assert all(one.largest < other.smallest for one, other in pairwise(infos))
    if not infos:
        return {}
    view = ReadView(HummockVersion(), (SortedRun(store, infos),), ())
    table = KeyRange.table(table_id)
    collector = BatchCollector(view.read(table.start, table.end, (1 << 64) - 1, False, ReadOptions()))
    found: dict[bytes, bytes] = {}
    while (batch := collector.next_batch(1 << 20, 1 << 30)) is not None:
        found.update(iter(batch))
    return found
