"""The driver of a bulk backfill: plans the view, pins an epoch, runs the Spark jobs, commits the files, catches up.

Nothing is changed before everything is computed: errors of the plan, of Spark and of the tasks are raised while there
is nothing to undo. The upstream continues meanwhile; the epoch that the tasks read stays readable until the view has
read the changes after it (CHECKPOINT.md, [C14]).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from hummock.base.key import KeyRange
from hummock.epoch import NEVER, SPILL_BITS, Epoch, EpochPair
from hummock.errors import ObjectStoreError
from hummock.loaded_files import LoadedFiles
from hummock.object_store.base import name_minter, sstable_data_path
from hummock.store.bulk_store import BulkStore
from relational.expr import ErrorCounts
from relational.spark.read_spec import ReadSpec
from relational.table.state_table import StateTable
from relational.table.storage_table import StorageTable
from stream.error_counts import StoredErrorCounts
from stream.options import NAME_PREFIXES
from stream.plan.fragments import Fragment
from stream.plan.serialize import stream_plan_to_text
from stream.plan.stream_plan import StreamScanNode
from stream.spark.fragments import backfill_fragments
from stream.spark.shuffle_files import ShufflePart
from stream.spark.spec import BackfillSpec, TaskSpec
from stream.spark.tasks import TaskReport, checked

if TYPE_CHECKING:
    from hummock.object_store.base import ObjectStore
    from hummock.sstable.info import SstableInfo
    from hummock.version import HummockVersion
    from relational.catalog.objects import TableCatalog
    from stream.plan.stream_plan import StreamPlan
    from stream.playground import Playground

TASK_ROWS = 500_000
"""Approximate input rows of one task; a vnode with more rows has a task of its own."""
TASK_BYTES = 128 << 20


class Tasks(Protocol):
    """Runs the tasks of a backfill; implemented by `SparkTasks`."""

    @property
    def slots(self) -> int:
        """How many tasks run at once."""
        ...

    def check(self, view: str, url: str) -> None:
        """Raises if tasks cannot be run for `view` over the store at `url`."""
        ...

    def run(self, view: str, specs: Sequence[TaskSpec]) -> list[TaskReport]:
        """Runs the tasks of one fragment; their reports, in the order of `specs`."""
        ...

    def delete(self, url: str, paths: Sequence[str]) -> None:
        """Deletes objects of the store at `url` that no task needs any more."""
        ...


@dataclass(frozen=True, slots=True)
class BulkBackfill:
    """Creates a view whose history is computed in bulk. A task reads about `task_rows`, and buffers at most
    `task_bytes` of its output in memory."""

    tasks: Tasks
    task_rows: int = TASK_ROWS
    task_bytes: int = TASK_BYTES

    def create(self, playground: Playground, draft: TableCatalog) -> TableCatalog:
        """The materialized view, with all rows, running. Raises the errors of creating it in the stream and of `tasks`,
        BackfillRefused, Fenced, SnapshotExpired, LoadRefused: then nothing of it is left."""
        playground.check_serves()
        view, plan = playground.meta.ddl.plan_history(draft)
        fragments = backfill_fragments(plan)
        self.tasks.check(view.name, playground.url)
        storage = playground.storage
        leaf = fragments[0].leaf
        assert isinstance(leaf, StreamScanNode)
        with (
            storage.snapshot() as epoch,
            storage.pinned_version() as pinned,
            storage.upload_prefixes(NAME_PREFIXES) as prefixes,
        ):
            first, *others = self._counts(pinned.version, leaf.table, fragments, view.vnode_count)
            parts = StorageTable(leaf.table, storage, leaf.columns).partitions(first)
            spec = BackfillSpec(
                view=view,
                tables=(leaf.table,),
                states=plan.state_tables,
                plan=stream_plan_to_text(plan),
                epoch=epoch,
                tasks=(len(parts), *others),
                url=playground.url,
                prefixes=prefixes,
                storage=storage.options,
                memory_bytes=self.task_bytes,
            )
            files, errors = self._run(spec, scans_of(spec, pinned.version, leaf, parts))
            files += error_files(plan, spec, errors, playground.object_store)
            pinned.check()
            files = tuple(sorted(files, key=lambda info: info.smallest))
            load = LoadedFiles(f"backfill-{view.id}-{os.urandom(8).hex()}", files)
            return playground.meta.ddl.create_with_history(view, plan, load, epoch)

    def _run(
        self, spec: BackfillSpec, scans: Sequence[TaskSpec]
    ) -> tuple[tuple[SstableInfo, ...], Mapping[str, int]]:
        """The files that the tasks of all fragments wrote, and their rows without a value. Shuffle files are deleted as
        soon as their receivers are done."""
        files: list[SstableInfo] = []
        errors: Counter[str] = Counter()
        specs, reports = scans, list[TaskReport]()
        for number in range(len(spec.tasks)):
            if number > 0:
                specs = arrivals_of(spec, number, [report.sent for report in reports])
            try:
                received = checked(self.tasks.run(spec.view.name, specs), reports)
            finally:
                self._delete(spec.url, reports)
            reports = received
            files += [info for report in reports for info in report.sstables]
            for report in reports:
                errors.update(report.errors)
        return tuple(files), errors

    def _delete(self, url: str, reports: Sequence[TaskReport]) -> None:
        """Delete the shuffle files that the tasks wrote. Vacuum deletes the rest."""
        with suppress(ObjectStoreError):
            self.tasks.delete(url, [sstable_data_path(report.sent.name) for report in reports if report.sent.name])

    def _counts(
        self, version: HummockVersion, table: TableCatalog, fragments: tuple[Fragment, ...], vnode_count: int
    ) -> list[int]:
        """The number of tasks of each fragment: enough to use all slots, and for about `task_rows` per task. The view's
        tables have `vnode_count` vnodes, each of which is written by one task."""
        whole = KeyRange.table(table.id)
        rows = sum(info.rows for run in version.overlapping(whole) for info in run)
        many = max(self.tasks.slots, -(-rows // self.task_rows))
        later = (min(many, vnode_count) if fragment.key else 1 for fragment in fragments[1:])
        return [min(many, table.vnode_count), *later]


def scans_of(spec: BackfillSpec, version: HummockVersion, leaf: StreamScanNode,
             parts: Sequence[KeyRange]) -> list[TaskSpec]:
    """The tasks of the first fragment: each reads one of `parts` of the upstream, in the files of `version` there."""
    reads = [ReadSpec(spec.url, version.narrowed([part]), leaf.table, leaf.columns, (part,), spec.epoch)
             for part in parts]
    return [TaskSpec(spec, 0, scan=read.to_bytes()) for read in reads]


def arrivals_of(spec: BackfillSpec, fragment: int, sent: Sequence[ShufflePart]) -> list[TaskSpec]:
    """The tasks of a later fragment: each receives the blocks that the tasks of the previous fragment `sent` to it, in
    the order of the senders."""
    tasks = spec.tasks[fragment]
    by_sender = [each.by_receiver(tasks) for each in sent]
    return [TaskSpec(spec, fragment, blocks=tuple(block for received in by_sender for block in received[receiver]))
            for receiver in range(tasks)]


def error_files(
    plan: StreamPlan, spec: BackfillSpec, errors: Mapping[str, int], objects: ObjectStore
) -> tuple[SstableInfo, ...]:
    """The files of the view's error table, if any: `errors`, the sums over all tasks, as of `spec.epoch`."""
    table = plan.error_table
    if table is None or not any(errors.values()):
        return ()
    counts = ErrorCounts()
    with BulkStore(spec.storage) as store:
        stored = StoredErrorCounts(counts, StateTable(table, store, row_cache_bytes=0))
        stored.init_epoch(EpochPair(spec.epoch, NEVER))
        for reason, rows in errors.items():
            counts.add(reason, rows)
        stored.commit(EpochPair(Epoch(spec.epoch + (1 << SPILL_BITS)), spec.epoch))
        return store.write_out(objects, name_minter(os.urandom, spec.prefixes), (table.id,))
