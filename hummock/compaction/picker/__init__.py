"""pick_compaction: the next work for a version, a pure function of it, of the running tasks and of the options.

The order is: work that reads nothing, then work that keeps level 0 small, then ranges full of tombstones, then the
levels' sizes, then space. Nothing
is picked that conflicts with a running task, and nothing that would lead to the same pick again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hummock.base.key import KeyRange
from hummock.compaction.picker.candidate import Compaction, CompactionCandidate, VersionEdit, input_bytes
from hummock.compaction.picker.context import PickerContext
from hummock.compaction.picker.early import pick_early
from hummock.compaction.picker.l0 import pick_emergency, pick_like_sizes, pick_to_base
from hummock.compaction.picker.levels import pick_level
from hummock.compaction.picker.reclaim import has_garbage, pick_reclaim
from hummock.compaction.picker.tombstones import inputs_of_range, pick_tombstones
from hummock.compaction.picker.trivial_move import pick_dead_files, pick_moves
from hummock.compaction.task import TaskKind
from hummock.epoch import Epoch
from hummock.options import CompactionOptions
from hummock.version import HummockVersion

PICKERS = (pick_dead_files, pick_moves, pick_to_base, pick_like_sizes, pick_tombstones, pick_level, pick_emergency,
           pick_reclaim)


def pick_compaction(version: HummockVersion, running: Sequence[Compaction], options: CompactionOptions,
                    watermark: Epoch, *, early_bytes: int = 0) -> CompactionCandidate | VersionEdit | None:
    """The next work; None: nothing is due, or all of it must wait for running tasks.

    `watermark`: the watermark of a task that starts now. `early_bytes`: where nothing is due, that much may be merged
    nevertheless.
    """
    context = PickerContext(version, running, options, watermark)
    for pick in PICKERS:
        if (work := pick(context)) is not None:
            return work
    return pick_early(context, early_bytes) if early_bytes else None


def early_bytes_of(version: HummockVersion, running: Sequence[Compaction], options: CompactionOptions) -> int:
    """Bytes of the next merge that is not due yet, 0: there is none. More than EARLY_BYTES should wait for rest."""
    pick = pick_early(PickerContext(version, running, options, version.safe_epoch), sys.maxsize)
    return 0 if pick is None else input_bytes(pick)


def pick_range(version: HummockVersion, running: Sequence[Compaction], options: CompactionOptions,
               key_range: KeyRange) -> tuple[bool, CompactionCandidate | None]:
    """Whether any file may hold keys of the range; and a candidate that merges them all into the last level, if they
    are free.
    """
    parts = inputs_of_range(version, key_range.start, key_range.end)
    if not parts:
        return False, None
    context = PickerContext(version, running, options, version.safe_epoch)
    return True, context.finished(TaskKind.MANUAL, parts, options.last_level)



def is_compacted(version: HummockVersion, options: CompactionOptions, key_range: KeyRange, watermark: Epoch) -> bool:
    """Whether a merge of the range into the last level would write what is there already: all of its files are in that
    level, compressed as that level is, and none has a row that may go.
    """
    context = PickerContext(version, (), options, watermark)
    return all(part.level == options.last_level and all(
        info.codec == options.codec_of(part.level) and not has_garbage(context, info) for info in part.sstables)
        for part in inputs_of_range(version, key_range.start, key_range.end))
