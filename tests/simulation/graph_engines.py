"""The Spark engine without Spark, for simulations: its tasks run in this process, from their serialized specs.

As Spark may, it runs a task twice, whose first report does not count, in any order, and fails one for a reason that
passes. What dies with the process are the calls of its stores, so a task dies where any other call does.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

from hummock.object_store.base import ObjectStore
from hummock.options import StorageOptions
from hummock.sstable.store import SstableStore
from relational.agg import AggGroups
from stream.spark.epoch_spec import EpochReport, EpochTask, edge_schemas
from stream.spark.epoch_task import run_actors
from stream.spark.kept_groups import KeptGroups, StateOf


class LocalTasks:
    """`EpochTasks` over the store that is open as `objects`, in so many processes, each with memory of its own for
    groups. `counts` gets how many ran, how often one twice, and how many found groups."""

    def __init__(
        self, objects: ObjectStore, seed: int, slots: int, counts: Counter[str], threads: int = 1, processes: int = 1
    ) -> None:
        self.slots, self.threads = slots, threads
        self._objects, self._counts = objects, counts
        self._rng = random.Random(seed)
        self._processes = [_Process(counts) for _ in range(processes)]

    def run(
        self, name: str, tasks: Sequence[EpochTask], near: Sequence[str], is_cancelled: Callable[[], bool]
    ) -> list[EpochReport]:
        order = list(range(len(tasks)))
        self._rng.shuffle(order)
        found: dict[int, EpochReport] = {}
        for number in order:
            if self._rng.random() < 0.1:
                self._counts["tasks run twice"] += 1
                self._answer(tasks[number])
            found[number] = self._answer(tasks[number])
            self._counts["tasks"] += 1
        return [found[number] for number in range(len(tasks))]

    def _answer(self, task: EpochTask) -> EpochReport:
        task = EpochTask.from_bytes(task.to_bytes())
        process = self._rng.choice(self._processes)
        report = run_actors(task, self._objects, SstableStore(self._objects, StorageOptions()), kept=process)
        types = edge_schemas(task.actors)
        return EpochReport.from_bytes(report.to_bytes(types), types)


class _Process(KeptGroups):
    """What a process keeps, with a count of what was found there."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__(64 << 20)
        self._counts = counts

    def take(self, state: StateOf, attempt: str) -> AggGroups | None:
        found = super().take(state, attempt)
        self._counts["groups found"] += found is not None
        return found
