"""The driver of a bulk backfill: plan, pin, let Spark compute, hand in, catch up.

Nothing is changed before all of it is computed: what a plan cannot, what Spark lacks and what fails in a task is told
while there is nothing to undo. The upstream goes on throughout; the epoch that the tasks read stays readable until the
view has seen what came after it (CHECKPOINT.md, [C14]).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from hummock.key import KeyRange
from hummock.load import LoadedFiles
from relational.spark.read_spec import ReadSpec
from relational.table.storage_table import StorageTable
from stream.plan.stream_plan import StreamScanNode
from stream.spark.fragments import Fragment, fragments_of
from stream.spark.spec import BackfillSpec
from stream.spark.tasks import TaskReport, checked

if TYPE_CHECKING:
    from hummock.epoch import Epoch
    from hummock.version import HummockVersion
    from relational.catalog.objects import TableCatalog
    from stream.playground import Playground

TASK_ROWS = 500_000
"""Rows that come into one task, about; a vnode with more has a task of its own."""
TASK_BYTES = 128 << 20


def scan_specs(url: str, version: HummockVersion, leaf: StreamScanNode, parts: Sequence[KeyRange],
               epoch: Epoch) -> list[bytes]:
    """What each task of the first fragment reads: a part of the upstream at `epoch`, in those files of `version` at
    `url` that it touches."""
    return [ReadSpec(url, version.narrowed([part]), leaf.table, leaf.columns, (part,), epoch).to_bytes()
            for part in parts]


class Tasks(Protocol):
    """Who runs the tasks of a backfill: `SparkTasks`."""

    @property
    def slots(self) -> int:
        """How many run at once."""
        ...

    def check(self, view: str, url: str) -> None:
        """Raises where they cannot be run for `view` over the store at `url`."""
        ...

    def run(self, spec: BackfillSpec, scans: Sequence[bytes]) -> list[TaskReport]:
        """What each task reports. `scans`: what those of the first fragment read."""
        ...


@dataclass(frozen=True, slots=True)
class BulkBackfill:
    """How a view gets its history in bulk. A task gets about `task_rows`, and holds at most `task_bytes` of what
    arrives in memory, and as much of what it writes."""

    tasks: Tasks
    task_rows: int = TASK_ROWS
    task_bytes: int = TASK_BYTES

    def create(self, playground: Playground, draft: TableCatalog) -> TableCatalog:
        """The materialized view, with all rows, running. Raises what creating it in the stream raises, what `tasks`
        raises, BackfillRefused, Fenced, SnapshotExpired: then nothing of it is left."""
        playground.check_serves()
        view, plan = playground.meta.ddl.plan_history(draft)
        fragments = fragments_of(plan)
        self.tasks.check(view.name, playground.url)
        storage = playground.storage
        leaf = fragments[0].leaf
        assert isinstance(leaf, StreamScanNode)
        with storage.snapshot() as epoch, storage.pinned_version() as pinned, storage.upload_prefix() as prefix:
            first, *others = self._counts(pinned.version, leaf.table, fragments)
            parts = StorageTable(leaf.table, storage, leaf.columns).partitions(first)
            scans = scan_specs(playground.url, pinned.version, leaf, parts, epoch)
            spec = BackfillSpec(
                view=view,
                tables=(leaf.table,),
                state_ids={state.name: state.id for state in plan.state_tables},
                epoch=epoch,
                tasks=(len(scans), *others),
                url=playground.url,
                prefix=prefix,
                storage=storage.options,
                memory_bytes=self.task_bytes,
            )
            reports = checked(self.tasks.run(spec, scans), spec)
            files = sorted((info for each in reports for info in each.sstables), key=lambda info: info.smallest)
            pinned.check()
            load = LoadedFiles(f"backfill-{view.id}-{os.urandom(8).hex()}", tuple(files))
            return playground.meta.ddl.create_with_history(view, spec.state_ids, load, epoch)

    def _counts(self, version: HummockVersion, table: TableCatalog, fragments: tuple[Fragment, ...]) -> list[int]:
        """How many tasks each fragment gets: all slots have one, and none much more than its share of rows."""
        whole = KeyRange.table(table.id)
        rows = sum(info.rows for run in version.overlapping(whole) for info in run)
        many = min(max(self.tasks.slots, -(-rows // self.task_rows)), table.vnode_count)
        return [many, *(many if fragment.key else 1 for fragment in fragments[1:])]
