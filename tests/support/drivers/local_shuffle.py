"""A bulk backfill without Spark: its tasks run one by one in random order, some of them twice."""

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
    """Runs the tasks of a `BulkBackfill` over the files of a session's store; `during` is called after the tasks of the
    first fragment have read everything, before they are reported."""

    slots = 3

    def __init__(self, session: Session, rng: random.Random, during: Callable[[], object] = lambda: None) -> None:
        self._storage, self._rng, self._during = session._playground.storage, rng, during

    def check(self, view: str, url: str) -> None:
        """Local tasks can always access the store."""

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
    """The reports that a driver receives, through serialized specs and reports. `upstream` has the source table."""
    files = SstableStore(upstream, OPTIONS)

    def scan(serialized: bytes) -> Iterable[DataChunk]:
        return read_chunks(ReadSpec.from_bytes(serialized), files)

    reports: dict[int, TaskReport] = {}
    for index in rng.sample(range(len(specs)), len(specs)):
        for _ in range(rng.randint(1, 2)):  # of a repeated attempt either may count
            spec = TaskSpec.from_bytes(specs[index].to_bytes())
            made = TaskReport.from_bytes(task_report(spec, scan, objects).to_bytes())
            if index not in reports or rng.random() < 0.5:
                reports[index] = made
    return [reports[index] for index in range(len(specs))]


def rows_of_files(reports: Sequence[TaskReport], objects: ObjectStore, table_id: int) -> dict[bytes, bytes]:
    """Key -> value of one table in the files that tasks reported; asserts that files are disjoint."""
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
