"""Key slices of level 0: if all of it is too much for one task, the densest key range is compacted first.

A slice takes, from the oldest run up, the files that lie entirely between two keys. A file that sticks out stays, and
so does everything newer that it overlaps: the range for newer files becomes narrower by it. So nothing older than what
moves down stays above it, and a slice never grows beyond its bounds.
"""

from __future__ import annotations

from collections.abc import Iterator

from hummock.compaction.picker.candidate import CompactionCandidate, input_bytes, key_bounds
from hummock.compaction.picker.context import PickerContext
from hummock.compaction.task import TaskInput, TaskKind
from hummock.sstable.info import SstableInfo

CANDIDATES = 32         # evenly spread candidates for the start of a slice


def pick_slice(context: PickerContext) -> tuple[CompactionCandidate | None, CompactionCandidate | None]:
    """The slice within `task_bytes` that rewrites the least of the base level in proportion to what moves down; and the
    smallest slice beyond `task_bytes`.
    """
    most_bytes = context.options.task_bytes
    slices = [(input_bytes(pick), pick) for pick in _slices(context)]
    within = [(_upper_bytes(pick) / size, pick) for size, pick in slices if size <= most_bytes]
    beyond = [(size, pick) for size, pick in slices if size > most_bytes]
    return (max(within, key=lambda one: one[0])[1] if within else None,
            min(beyond, key=lambda one: one[0])[1] if beyond else None)


def _slices(context: PickerContext) -> Iterator[CompactionCandidate]:
    """For each start, the longest slice that fits into one task, or else the shortest; starts are files of the run with
    the most files.
    """
    guide = max(context.version.levels[0].runs, key=lambda run: (len(run.sstables), run.data_bytes))
    files = (None, *guide.sstables, None)
    for first in range(1, len(files) - 1, max(1, len(guide.sstables) // CANDIDATES)):
        longest = None
        for last in range(first, len(files) - 1):
            pick = _between(context, files[first - 1], files[last + 1])
            if pick is None:
                continue
            if longest is not None and input_bytes(pick) > context.options.task_bytes:
                break
            longest = pick
        if longest is not None:
            yield longest


def _between(context: PickerContext, left: SstableInfo | None, right: SstableInfo | None) -> CompactionCandidate | None:
    """What lies entirely between two files (None: no bound) and may move down to the base level."""
    runs, parts = context.version.levels[0].runs, []
    smallest, largest = key_bounds(info for run in runs for info in (run.sstables[0], run.sstables[-1]))
    after = None if left is None else left.largest
    before = largest + b"\0" if right is None else right.smallest
    for run in reversed(runs):
        chosen = []
        for info in run.covering(smallest if after is None else after, before):
            if (after is None or info.smallest > after) and info.largest < before and context.are_free((info,)):
                chosen.append(info)
            elif after is None or info.smallest > after:
                before = min(before, info.smallest)
            else:
                after = max(after, info.largest)
        if chosen:
            parts.append(TaskInput(0, run.id, tuple(chosen)))
        if len(parts) == context.options.task_runs:
            break
    return into_base(context, parts[::-1]) if parts else None


def into_base(context: PickerContext, parts: list[TaskInput]) -> CompactionCandidate | None:
    """Files of level 0, newest run first, with what they overlap in the base level.

    REQUIRES that no older file of level 0 that overlaps one of these stays there.
    """
    base = context.base_level
    below = context.run(base).covering(*key_bounds(info for part in parts for info in part.sstables))
    return context.finished(TaskKind.L0_TO_BASE, [*parts, TaskInput(base, 0, below)] if below else parts, base)


def _upper_bytes(pick: CompactionCandidate) -> int:
    return sum(info.data_bytes for part in pick.inputs if part.level == 0 for info in part.sstables)
