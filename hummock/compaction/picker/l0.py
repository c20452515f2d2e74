"""Level 0: runs of similar size are merged into one, and all of it moves down when it justifies rewriting the base
level.

A run's tier is the logarithm of its bytes to the base of `l0_runs`. So many adjacent runs of one tier or below it
become one run of the next, so a row is rewritten once per tier. Level 0 is merged into the base level when it is as
large as that, within bounds: then rows that move down rewrite about as many that are there. That counts uncompressed
bytes, since the files of commits are not compressed and those of the base level are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from hummock.compaction.picker.candidate import CompactionCandidate, input_bytes
from hummock.compaction.picker.context import PickerContext
from hummock.compaction.picker.key_slices import into_base, pick_slice
from hummock.compaction.task import TaskInput, TaskKind
from hummock.options import MIB, CompactionOptions
from hummock.version import Run

SMALLEST_TIER_BYTES = MIB       # smaller runs are all in one tier
INLINE_TIER = -1                # but those of inline files, which are merged in the version as long as they can be
OVERFULL = 1.5                  # a base level above that multiple of its target accepts nothing
MERGED_SHARE = 4                # a merge within level 0 writes at most that part of what may move down, ...
CROWD = 2                       # ... twice that if that multiple of `l0_runs` could be merged: they soon move down


def pick_to_base(context: PickerContext, trigger_bytes: int | None = None) -> CompactionCandidate | None:
    """Merges the oldest free runs of level 0 into the base level, if that is not too large and they have at least
    `trigger_bytes`, uncompressed, by default those of `base_trigger_bytes`.

    What exceeds one task moves down by key slices. If no slice is small enough, because the files of the runs are too
    wide, the oldest runs are merged into one first, whose files are narrower.
    """
    if context.level_score(context.base_level) > OVERFULL:
        return None
    runs = tuple(_oldest_free(context))
    least = base_trigger_bytes(context) if trigger_bytes is None else trigger_bytes
    if sum(run.uncompressed_bytes for run in runs) < least:
        return None
    whole = into_base(context, [TaskInput(0, run.id, run.sstables) for run in runs])
    if whole is not None and input_bytes(whole) <= context.options.task_bytes:
        return whole
    within, beyond = pick_slice(context)
    return within or _part_oldest(context) or beyond or whole


def pick_like_sizes(context: PickerContext) -> CompactionCandidate | None:
    """Merges adjacent free runs of level 0 of one tier or below it, in the lowest tier with enough of them. Inline runs
    go along with stored ones but do not count as such: each few of them would rewrite a stored one.
    """
    options = context.options
    runs = context.version.levels[0].runs
    most_bytes = max(base_trigger_bytes(context), options.l0_base_bytes) // MERGED_SHARE
    for tier in sorted({tier_of(run, options) for run in runs}):
        low = {run.id for run in runs if tier_of(run, options) <= tier and context.are_free(run.sstables)}
        for window in _windows(runs, lambda run, low=low: run.id in low):       # type: ignore[misc]
            crowd = len(window) >= CROWD * options.l0_runs
            chosen = _bounded(window, options, min(2 * most_bytes if crowd else most_bytes, options.task_bytes))
            counted = sum(tier == INLINE_TIER or tier_of(run, options) > INLINE_TIER for run in chosen)
            if counted >= options.l0_runs and (pick := merged(context, TaskKind.INTRA_L0, chosen)):
                return pick
    return None


def pick_emergency(context: PickerContext) -> CompactionCandidate | None:
    """Where writers are delayed and nothing else can be picked: merges any adjacent free runs, as many as possible."""
    options, runs = context.options, context.version.levels[0].runs
    if len(runs) < options.l0_runs_slowdown:
        return None
    windows = [_bounded(window, options, options.task_bytes) for window in
               _windows(runs, lambda run: context.are_free(run.sstables))]
    best = max(windows, key=len, default=())
    return merged(context, TaskKind.EMERGENCY, best) if len(best) > 1 else None


def merged(context: PickerContext, kind: TaskKind, runs: Sequence[Run]) -> CompactionCandidate | None:
    """Merges adjacent runs into one, at the position of the newest."""
    parts = (TaskInput(0, run.id, run.sstables) for run in runs)
    return context.finished(kind, parts, 0, runs[0].id)


def base_trigger_bytes(context: PickerContext) -> int:
    """Uncompressed size from which on level 0 is merged into the base level."""
    options = context.options
    return min(max(context.run(context.base_level).uncompressed_bytes, options.l0_base_bytes), options.l0_most_bytes)


def tier_of(run: Run, options: CompactionOptions) -> int:
    if all(info.inline_data for info in run.sstables):
        return INLINE_TIER
    tier, limit = 0, SMALLEST_TIER_BYTES
    while run.data_bytes > limit:
        tier, limit = tier + 1, limit * options.l0_runs
    return tier


def _part_oldest(context: PickerContext) -> CompactionCandidate | None:
    """Merges the oldest runs into one, as large as a task may be."""
    options, runs = context.options, context.version.levels[0].runs
    for window in _windows(runs[::-1], lambda run: context.are_free(run.sstables)):
        if window[0] is runs[-1]:
            oldest = _bounded(window[::-1], options, options.task_bytes)
            return merged(context, TaskKind.INTRA_L0, oldest) if len(oldest) > 1 else None
    return None


def _oldest_free(context: PickerContext) -> list[Run]:
    """The free runs of level 0 from the oldest up, less those that overlap an older one that stays; newest first."""
    runs: list[Run] = []
    staying: list[tuple[bytes, bytes]] = []
    for run in reversed(context.version.levels[0].runs):
        low, high = run.sstables[0].smallest, run.sstables[-1].largest
        if not context.are_free(run.sstables) or any(low <= last and first <= high for first, last in staying):
            staying.append((low, high))
        elif len(runs) < context.options.task_runs:
            runs.append(run)
        else:
            break
    return runs[::-1]


def _windows(runs: Sequence[Run], belongs: Callable[[Run], bool]) -> Iterator[list[Run]]:
    """Longest sequences of adjacent runs for which `belongs` is true, newest first."""
    window: list[Run] = []
    for run in runs:
        if belongs(run):
            window.append(run)
        elif window:
            yield window
            window = []
    if window:
        yield window


def _bounded(window: Sequence[Run], options: CompactionOptions, most_bytes: int) -> list[Run]:
    """The oldest runs of the window, at most as many and as large as one task takes; newest first."""
    chosen: list[Run] = []
    total = 0
    for run in reversed(window):
        total += run.data_bytes
        if len(chosen) == options.task_runs or (chosen and total > most_bytes):
            break
        chosen.append(run)
    return chosen[::-1]
