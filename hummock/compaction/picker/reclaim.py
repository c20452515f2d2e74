"""Space reclamation: rewrites files for their garbage, when nothing else is due.

Every rewrite removes what it was picked for, so no file is picked twice for it: rows of a dropped table, all stale rows
and tombstones of a file that the watermark has passed, rows past their time to live or a key watermark.
"""

from __future__ import annotations

from collections.abc import Iterator

from hummock.compaction.picker.candidate import CompactionCandidate
from hummock.compaction.picker.context import PickerContext
from hummock.compaction.picker.expiry import dead_share
from hummock.compaction.picker.levels import with_next
from hummock.compaction.task import TaskInput, TaskKind
from hummock.epoch import pure_epoch
from hummock.sstable.info import SstableInfo
from hummock.version import Run


def pick_reclaim(context: PickerContext) -> CompactionCandidate | None:
    """Rewrites one file at its position, or moves a mostly stale one into the next level; the deepest first."""
    for kind, wasteful in ((TaskKind.SPACE_RECLAIM, _with_dropped_tables), (TaskKind.TOMBSTONE, _stale),
                           (TaskKind.TTL, _aged)):
        for level in reversed(context.version.levels):
            for run in level.runs:
                for info in wasteful(context, run):
                    if info.id not in context.busy and (
                            pick := _rewrite(context, kind, level.number, run.id, info)):
                        return pick
    return None


def _rewrite(context: PickerContext, kind: TaskKind, level: int, run_id: int,
             info: SstableInfo) -> CompactionCandidate | None:
    if kind is TaskKind.TOMBSTONE and 0 < level < context.options.last_level:
        return with_next(context, kind, level, (info,))
    if kind is TaskKind.TTL and not any(context.version.tables[table_id].ttl_ms for table_id in info.table_ids
                                        if table_id in context.version.tables):
        kind = TaskKind.WATERMARK
    pick = context.finished(kind, [TaskInput(level, run_id, (info,))], level, run_id)
    if pick is not None and kind is TaskKind.TOMBSTONE and not pick.drop_tombstones:
        return None             # older rows are below level 0: its next merge takes the tombstones down
    return pick


def _with_dropped_tables(context: PickerContext, run: Run) -> Iterator[SstableInfo]:
    dropped = context.version.dropped_tables
    if not dropped.isdisjoint(run.table_ids):
        yield from (info for info in run.sstables if not dropped.isdisjoint(info.table_ids))


def _stale(context: PickerContext, run: Run) -> Iterator[SstableInfo]:
    """Files with enough stale rows and tombstones, all of which the rewrite will drop or move down."""
    for info in run.stale_files:
        if (info.stale_rows + info.tombstones) * 100 < info.rows * context.options.stale_percent:
            return
        if pure_epoch(info.global_epoch or info.max_epoch) <= context.watermark:
            yield info


def _aged(context: PickerContext, run: Run) -> Iterator[SstableInfo]:
    """Files of which readers see few enough rows, because of age or a key watermark."""
    tables, options = context.version.tables, context.options
    if context.aging_tables.isdisjoint(run.table_ids):
        return
    for info in run.sstables:
        if dead_share(info, tables, context.watermark) * 100 >= options.stale_percent:
            yield info


def has_garbage(context: PickerContext, info: SstableInfo) -> bool:
    """Whether a rewrite of the file, which no older file overlaps, may drop a row."""
    tables = context.version.tables
    return (not context.version.dropped_tables.isdisjoint(info.table_ids)
            or (info.stale_rows + info.tombstones > 0 and pure_epoch(info.oldest_epoch) <= context.watermark)
            or (not context.aging_tables.isdisjoint(info.table_ids)
                and dead_share(info, tables, context.watermark) > 0))
