"""Dense tombstones: key ranges of level 0 in which reads skip more than they find are merged into the last level.

A deleted range costs every scan that passes it, for each of its tombstones and the rows beneath, long before level 0 is
due by its size. So ranges with many tombstones whose merge drops a good part of what it reads are merged early, as
RocksDB does with files that its deletion collector marks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hummock.compaction.picker.candidate import CompactionCandidate, files_of, input_bytes, key_bounds
from hummock.compaction.picker.context import PickerContext
from hummock.compaction.task import TaskInput, TaskKind
from hummock.epoch import pure_epoch
from hummock.sstable.info import SstableInfo
from hummock.version import HummockVersion

DENSE_ROWS = 10_000     # fewer cost a scan less than a millisecond
RANGES = 8              # files whose ranges are examined, after the range of all


def pick_tombstones(context: PickerContext) -> CompactionCandidate | None:
    """The range of all dense files of level 0, or else that of one of them."""
    dense = sorted(_dense(context), key=_garbage, reverse=True)
    if _total(dense) < DENSE_ROWS:
        return None
    for files in (dense, *([info] for info in dense[:RANGES])):
        smallest, largest = key_bounds(files)
        inputs = inputs_of_range(context.version, smallest, largest + b"\0")
        pick = context.finished(TaskKind.TOMBSTONE, inputs, context.options.last_level)
        if pick is not None and pick.drop_tombstones and _is_worth(context, pick):
            return pick
    return None


def inputs_of_range(version: HummockVersion, start: bytes, end: bytes | None) -> list[TaskInput]:
    """All files that may hold keys of [start, end), each joined by the older files that it overlaps; newest first."""
    parts: list[TaskInput] = []
    for level in version.levels:
        for run in level.runs:
            files = run.overlapping(start, end)
            if parts:                   # and what overlaps the files above, which may extend beyond the range
                beneath = run.covering(*key_bounds(info for part in parts for info in part.sstables))
                files = tuple(info for info in run.sstables if info in files or info in beneath)
            if files:
                parts.append(TaskInput(level.number, run.id, files))
    return parts


def _dense(context: PickerContext) -> Iterator[SstableInfo]:
    for run in context.version.levels[0].runs:
        for info in run.stale_files:
            if _garbage(info) * 100 < info.rows * context.options.stale_percent:
                break
            if _may_go(context, info) and info.id not in context.busy:
                yield info


def _is_worth(context: PickerContext, pick: CompactionCandidate) -> bool:
    """Whether the task is of one task's size and drops enough of what it reads."""
    files = tuple(files_of(pick))
    gone = _total(info for info in files if _may_go(context, info))
    return (input_bytes(pick) <= context.options.task_bytes and gone >= DENSE_ROWS
            and gone * 100 >= sum(info.rows for info in files) * context.options.stale_percent)


def _may_go(context: PickerContext, info: SstableInfo) -> bool:
    """Whether no reader needs an epoch at which the file's tombstones and stale rows count."""
    return pure_epoch(info.newest_epoch) <= context.watermark


def _total(files: Iterable[SstableInfo]) -> int:
    return sum(map(_garbage, files))


def _garbage(info: SstableInfo) -> int:
    return info.tombstones + info.stale_rows
