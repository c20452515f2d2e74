"""A bulk backfill without Spark: its tasks one after the other in any order, some of them twice."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from hummock.base.key import KeyRange
from hummock.iterator.batch_collector import BatchCollector
from hummock.object_store.base import ObjectStore
from hummock.options import StorageOptions
from hummock.read.sorted_run import SortedRun
from hummock.read.view import ReadView
from hummock.sstable.store import SstableStore
from hummock.state_store import ReadOptions
from hummock.version import HummockVersion
from relational.chunk import DataChunk
from relational.spark.read_spec import OPTIONS, ReadSpec, read_chunks
from stream.session.session import Session
from stream.spark.spec import TaskSpec
from stream.spark.tasks import TaskReport, task_report


class LocalTasks:
    """Tasks over the files of a session's store, as `BulkBackfill` takes them; `during` happens before those of the
    first fragment are done, after everything was read."""

    slots = 3

    def __init__(self, session: Session, rng: random.Random, during: Callable[[], object] = lambda: None) -> None:
        self._storage, self._rng, self._during = session._playground.storage, rng, during

    def check(self, view: str, url: str) -> None:
        """They always can."""

    def run(self, view: str, specs: Sequence[TaskSpec]) -> list[TaskReport]:
        objects = self._storage._sstable_store.object_store
        reports = run_tasks(specs, objects, objects, self._rng)
        if specs[0].fragment == 0:
            self._during()
        return reports

    def delete(self, url: str, paths: Sequence[str]) -> None:
        self._storage._sstable_store.object_store.delete(paths)


def run_tasks(
    specs: Sequence[TaskSpec], upstream: ObjectStore, objects: ObjectStore, rng: random.Random
) -> list[TaskReport]:
    """What a driver gets, through the records that travel. The table that is read is in `upstream`."""
    files = SstableStore(upstream, OPTIONS)

    def scan(told: bytes) -> Iterable[DataChunk]:
        return read_chunks(ReadSpec.from_bytes(told), files)

    reports: dict[int, TaskReport] = {}
    for place in rng.sample(range(len(specs)), len(specs)):
        for _ in range(rng.randint(1, 2)):  # of an attempt that is repeated either may count
            told = TaskSpec.from_bytes(specs[place].to_bytes())
            made = TaskReport.from_bytes(task_report(told, scan, objects).to_bytes())
            if place not in reports or rng.random() < 0.5:
                reports[place] = made
    return [reports[place] for place in range(len(specs))]


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
