"""pick_compaction: the next work for a version, a pure function of it, of the running tasks and of the options.

The order is: work that reads nothing, then work that keeps level 0 small, then the levels' sizes, then space. Nothing
is picked that conflicts with a running task, and nothing that would lead to the same pick again.
"""

from __future__ import annotations

from collections.abc import Sequence

from hummock.base.key import KeyRange
from hummock.compaction.picker.candidate import Compaction, CompactionCandidate, VersionEdit, key_bounds
from hummock.compaction.picker.context import PickerContext
from hummock.compaction.picker.l0 import pick_emergency, pick_like_sizes, pick_to_base
from hummock.compaction.picker.levels import pick_level
from hummock.compaction.picker.reclaim import pick_reclaim
from hummock.compaction.picker.trivial_move import pick_dead_files, pick_moves
from hummock.compaction.task import TaskInput, TaskKind
from hummock.epoch import Epoch
from hummock.options import CompactionOptions
from hummock.version import HummockVersion

PICKERS = (pick_dead_files, pick_moves, pick_to_base, pick_like_sizes, pick_level, pick_emergency, pick_reclaim)


def pick_compaction(version: HummockVersion, running: Sequence[Compaction], options: CompactionOptions,
                    watermark: Epoch) -> CompactionCandidate | VersionEdit | None:
    """The next work; None: nothing is due, or all of it must wait for running tasks.

    `watermark`: the watermark of a task that starts now.
    """
    context = PickerContext(version, running, options, watermark)
    for pick in PICKERS:
        if (work := pick(context)) is not None:
            return work
    return None


def pick_range(version: HummockVersion, running: Sequence[Compaction], options: CompactionOptions,
               key_range: KeyRange) -> tuple[bool, CompactionCandidate | None]:
    """Whether any file may hold keys of the range; and a candidate that merges them all into the last level, if they
    are free.

    Each file is joined by the older files that it overlaps.
    """
    parts: list[TaskInput] = []
    for level in version.levels:
        for run in level.runs:
            files = run.overlapping(key_range.start, key_range.end)
            if parts:                   # and what overlaps the files above, which may extend beyond the range
                beneath = run.covering(*key_bounds(info for part in parts for info in part.sstables))
                files = tuple(info for info in run.sstables if info in files or info in beneath)
            if files:
                parts.append(TaskInput(level.number, run.id, files))
    if not parts:
        return False, None
    context = PickerContext(version, running, options, version.safe_epoch)
    return True, context.finished(TaskKind.MANUAL, parts, options.last_level)

