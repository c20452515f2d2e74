"""Levels below 0: a level above its target size compacts the files with the least overlap into the next."""

from __future__ import annotations

from collections.abc import Iterator

from hummock.compaction.picker.candidate import CompactionCandidate, VersionEdit, key_bounds
from hummock.compaction.picker.context import PickerContext
from hummock.compaction.task import TaskInput, TaskKind
from hummock.sstable.info import SstableInfo
from hummock.version import Run, RunAddition

CANDIDATES = 256        # files of a level that are examined, evenly spread
TASK_SHARE = 4          # files of the upper level are at most that part of a task


def pick_level(context: PickerContext) -> CompactionCandidate | VersionEdit | None:
    """Compacts from the level with the highest score into the next."""
    levels = range(1, context.options.last_level)
    full = [(score, number) for number in levels if (score := context.level_score(number)) > 1]
    for _, number in sorted(full, reverse=True):
        if work := push_down(context, number):
            return work
    return None


def push_down(context: PickerContext, number: int) -> CompactionCandidate | VersionEdit | None:
    """The free files of the level with the least overlap in the next, by the ratio of bytes; without overlap they are
    moved.
    """
    upper, lower = context.run(number), context.run(number + 1)
    positions = range(0, len(upper.sstables), max(1, len(upper.sstables) // CANDIDATES))
    ranked = sorted((_overlap_ratio(upper.sstables[position], lower), position) for position in positions)
    for ratio, position in ranked:
        chosen = tuple(_widened(context, number, position))
        if not chosen:
            continue
        pick = with_next(context, TaskKind.LEVEL, number, chosen)
        if pick is not None and ratio == 0 and len(pick.inputs) == 1:
            return VersionEdit(TaskKind.LEVEL, tuple(info.id for info in chosen), (RunAddition(number + 1, 0, chosen),))
        if pick is not None:
            return pick
    return None


def with_next(context: PickerContext, kind: TaskKind, number: int,
              chosen: tuple[SstableInfo, ...]) -> CompactionCandidate | None:
    """Candidate of files of level `number` and those that they overlap in the next one, into that."""
    below = context.run(number + 1).covering(*key_bounds(chosen))
    parts = [TaskInput(number, 0, chosen)]
    return context.finished(kind, [*parts, TaskInput(number + 1, 0, below)] if below else parts, number + 1)


def _widened(context: PickerContext, number: int, position: int) -> Iterator[SstableInfo]:
    """The file at `position` and its free successors, while their number and size stay within bounds."""
    upper, lower = context.run(number), context.run(number + 1)
    options, total, total_below, last = context.options, 0, 0, b""
    excess = context.staying_bytes(number) - context.target_bytes(number)
    for count, info in enumerate(upper.sstables[position:]):
        below = lower.covering(max(info.smallest, last), info.largest)
        below_bytes = sum(other.data_bytes for other in below)
        is_worth = below_bytes <= options.level_multiplier * info.data_bytes
        if not context.are_free((info, *below)) or (count and (
                not is_worth or count == options.task_files
                or total + info.data_bytes > min(excess, options.task_bytes // TASK_SHARE)
                or total + total_below + info.data_bytes + below_bytes > options.task_bytes)):
            return
        total, total_below = total + info.data_bytes, total_below + below_bytes
        last = below[-1].largest if below else last
        yield info


def _overlap_ratio(info: SstableInfo, lower: Run) -> float:
    return sum(other.data_bytes for other in lower.covering(info.smallest, info.largest)) / info.data_bytes

