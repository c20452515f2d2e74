"""Merges before they are due: small ones while writes go on, large ones once nothing was written for a while.

Reads look into every run, so few runs are worth some work that nothing forces yet. The newest runs are merged as they
come, up to EARLY_BYTES. What is larger waits until the store has rested as long as the merge would take and longer, as
in the ski rental problem: so a merge that the next writes make useless never costs more than the rest before it. Both
keep write amplification low: a run is only merged with others that are about as large together, a base level only with
a REST_SHARE of its size.
"""

from __future__ import annotations

from collections.abc import Sequence

from hummock.compaction.picker.candidate import CompactionCandidate, input_bytes
from hummock.compaction.picker.context import PickerContext
from hummock.compaction.picker.l0 import merged, pick_to_base
from hummock.compaction.task import TaskKind
from hummock.options import MIB
from hummock.version import Run

EARLY_BYTES = 16 * MIB          # what is larger waits for rest
EARLY_RATIO = 1.25              # a run is at most so large in proportion to all newer ones together, ...
REST_SHARE = 8                  # ... and at rest so; level 0 is then at least that part of the base level, uncompressed


def pick_early(context: PickerContext, most_bytes: int) -> CompactionCandidate | None:
    """The next merge that is not due yet, if it reads at most `most_bytes`."""
    pick = _pick_newest(context) or _pick_at_rest(context)
    return pick if pick is not None and input_bytes(pick) <= most_bytes else None


def _pick_newest(context: PickerContext) -> CompactionCandidate | None:
    """Merges the newest runs of level 0, so that few and growing runs are left to look into."""
    runs = _growing(context, EARLY_RATIO, EARLY_BYTES)
    return merged(context, TaskKind.INTRA_L0, runs) if runs else None


def _pick_at_rest(context: PickerContext) -> CompactionCandidate | None:
    """Merges level 0 into the base level, or else its runs into one, where that is more than EARLY_BYTES and no more
    than a task takes.
    """
    runs, base = context.version.levels[0].runs, context.run(context.base_level)
    total = sum(run.uncompressed_bytes for run in runs)
    if not runs or not all(context.are_free(run.sstables) for run in runs):
        return None
    pick = None
    if total * REST_SHARE >= base.uncompressed_bytes and (len(runs) > 1 or base.sstables):
        pick = pick_to_base(context, trigger_bytes=0)
    elif chosen := _growing(context, REST_SHARE, context.options.task_bytes):
        pick = merged(context, TaskKind.INTRA_L0, chosen)
    return pick if pick is not None and EARLY_BYTES < input_bytes(pick) <= context.options.task_bytes else None


def _growing(context: PickerContext, ratio: float, most_bytes: int) -> Sequence[Run]:
    """The newest runs of level 0, as many as are each at most `ratio` times as large as all newer ones together; none
    if that is one.
    """
    total = count = 0
    newest = context.version.levels[0].runs[:context.options.task_runs]
    for position, run in enumerate(newest):
        if not context.are_free(run.sstables) or total + run.data_bytes > most_bytes:
            break
        if position and run.data_bytes <= ratio * total:
            count = position + 1
        total += run.data_bytes
    return newest[:count]
