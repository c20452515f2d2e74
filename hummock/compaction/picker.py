"""pick_compaction: what a version needs next, as a pure function of it, of the running tasks and of the options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hummock.compaction.pick import Pick, Placed, Shift, busy_ids, can_drop_tombstones, conflicts, files_of, hull
from hummock.compaction.task import TaskInput, TaskKind
from hummock.key import KeyRange
from hummock.options import CompactionOptions
from hummock.version import HummockVersion, Run


def pick_compaction(version: HummockVersion, running: Sequence[Placed],
                    options: CompactionOptions) -> Pick | Shift | None:
    """The next work, which conflicts with no running task; None: nothing is due, or all of it must wait."""
    if len(version.levels[0].runs) < options.l0_runs:
        return None
    pick = _everything(version, TaskKind.L0_TO_BASE, version.levels[0].runs, options)
    return pick if is_free(pick, running) else None


def pick_range(version: HummockVersion, key_range: KeyRange, options: CompactionOptions) -> Pick | None:
    """All files that may hold keys of the range, into the last level; None where there are none."""
    parts: list[TaskInput] = []
    smallest, largest = key_range.start, None
    for level in version.levels:
        for run in level.runs:
            if largest is None:
                files = run.overlapping(key_range.start, key_range.end)
            else:
                files = run.covering(smallest, largest)
            if files:
                parts.append(TaskInput(level.number, run.id, files))
                smallest, largest = hull(files + tuple(info for part in parts for info in part.sstables))
    if not parts:
        return None
    return finished(version, Pick(TaskKind.MANUAL, tuple(parts), options.last_level))


def is_free(pick: Pick, running: Sequence[Placed]) -> bool:
    """Whether the pick may start beside the running tasks."""
    busy = busy_ids(running)
    return not any(info.id in busy for info in files_of(pick)) and not any(
        conflicts(pick, task) for task in running)


def finished(version: HummockVersion, pick: Pick) -> Pick:
    """The pick with its tombstones decided."""
    return replace(pick, drop_tombstones=can_drop_tombstones(version, pick))


def _everything(version: HummockVersion, kind: TaskKind, runs: Sequence[Run], options: CompactionOptions) -> Pick:
    parts = [TaskInput(0, run.id, run.sstables) for run in runs]
    smallest, largest = hull(info for run in runs for info in run.sstables)
    for level in version.levels[1:]:
        for run in level.runs:
            if files := run.covering(smallest, largest):
                parts.append(TaskInput(level.number, run.id, files))
                smallest, largest = min(smallest, files[0].smallest), max(largest, files[-1].largest)
    return finished(version, Pick(kind, tuple(parts), options.last_level))
