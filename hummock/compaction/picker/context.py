"""PickerContext: a version, its running tasks and the options; and checks of what may start beside them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hummock.compaction.picker.candidate import (
    Compaction,
    CompactionCandidate,
    busy_ids,
    can_drop_tombstones,
    conflicts,
)
from hummock.compaction.task import TaskInput, TaskKind
from hummock.epoch import Epoch
from hummock.options import CompactionOptions
from hummock.sstable.info import SstableInfo
from hummock.version import HummockVersion, Level, Run


@dataclass(frozen=True)
class PickerContext:
    """`watermark`: the watermark of a task that starts now."""

    version: HummockVersion
    running: Sequence[Compaction]
    options: CompactionOptions
    watermark: Epoch

    @cached_property
    def busy(self) -> frozenset[int]:
        """The files that are part of a task."""
        return busy_ids(self.running)

    @cached_property
    def aging_tables(self) -> frozenset[int]:
        """Tables whose rows expire or are passed by a key watermark."""
        return frozenset(table_id for table_id, rules in self.version.tables.items()
                         if rules.ttl_ms or rules.watermarks)

    @cached_property
    def base_level(self) -> int:
        """The level that level 0 is merged into: no data, and no task's target, is between them.

        The last level, or one above it whose share of the data still justifies a level.
        """
        base, target = self.options.last_level, self._largest_bytes // self.options.level_multiplier
        while base > 1 and target >= self.options.base_level_bytes:
            base, target = base - 1, target // self.options.level_multiplier
        filled = (level.number for level in self.version.levels[1:] if level.runs)
        written = (task.target_level for task in self.running if task.target_level)
        return min((base, *filled, *written))

    def target_bytes(self, number: int) -> int:
        """Target size of level `number`; 0 if it should be empty. REQUIRES a level above the last one."""
        target = self._largest_bytes // self.options.level_multiplier ** (self.options.last_level - number)
        return target if target >= self.options.base_level_bytes else 0

    def level_score(self, number: int) -> float:
        """`staying_bytes` divided by the target size; 0 for the last level, which has none."""
        held, target = self.staying_bytes(number), self.target_bytes(number)
        if number >= self.options.last_level or not held:
            return 0.0
        return held / target if target else math.inf

    def staying_bytes(self, number: int) -> int:
        """Size of the level without the files that tasks are moving down."""
        leaving = sum(info.data_bytes for task in self.running if task.target_level > number
                      for part in task.inputs if part.level == number for info in part.sstables)
        return self.level(number).data_bytes - leaving

    def level(self, number: int) -> Level:
        levels = self.version.levels
        return levels[number] if number < len(levels) else Level(number)

    def run(self, number: int) -> Run:
        """The run of a level other than 0, which may be empty."""
        runs = self.level(number).runs
        return runs[0] if runs else Run(0, ())

    def are_free(self, sstables: Iterable[SstableInfo]) -> bool:
        """Whether none of the files is part of a task."""
        return self.busy.isdisjoint(info.id for info in sstables)

    def finished(self, kind: TaskKind, inputs: Iterable[TaskInput], target_level: int,
                 target_run: int = 0) -> CompactionCandidate | None:
        """The candidate with `drop_tombstones` decided, or None if it may not start yet."""
        pick = CompactionCandidate(kind, tuple(inputs), target_level, target_run)
        if not all(self.are_free(part.sstables) for part in pick.inputs):
            return None
        if any(conflicts(pick, task) for task in self.running):
            return None
        return replace(pick, drop_tombstones=can_drop_tombstones(self.version, pick))

    @cached_property
    def _largest_bytes(self) -> int:
        return max(level.data_bytes for level in self.version.levels[1:]) if len(self.version.levels) > 1 else 0
