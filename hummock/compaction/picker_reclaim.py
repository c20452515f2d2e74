"""Space: files are rewritten for what they hold in vain, when nothing else is due.

Every rewrite gets rid of what it was picked for, so none is picked twice for it: rows of a dropped table, all
covered rows and tombstones of a file that the watermark has passed, rows that are too old or beyond a key watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hummock.compaction.pick import Pick
from hummock.compaction.picker_levels import with_next
from hummock.compaction.row_life import dead_share
from hummock.compaction.situation import Situation
from hummock.compaction.task import TaskInput, TaskKind
from hummock.epoch import pure_epoch
from hummock.sstable.info import SstableInfo

IsWasteful = Callable[[Situation, SstableInfo], bool]


def pick_reclaim(situation: Situation) -> Pick | None:
    """One file in its place, or a mostly stale one into the next level."""
    for kind, is_wasteful in RECLAIMS.items():
        if kind is TaskKind.SPACE_RECLAIM and not situation.version.dropped_tables:
            continue
        for level, run_id, info in _files(situation):
            if is_wasteful(situation, info) and (pick := _rewrite(situation, kind, level, run_id, info)):
                return pick
    return None


def _rewrite(situation: Situation, kind: TaskKind, level: int, run_id: int, info: SstableInfo) -> Pick | None:
    if kind is TaskKind.TOMBSTONE and 0 < level < situation.options.last_level:
        return with_next(situation, kind, level, (info,))
    if kind is TaskKind.TTL and not any(situation.version.tables[table_id].ttl_ms for table_id in info.table_ids
                                        if table_id in situation.version.tables):
        kind = TaskKind.WATERMARK
    pick = situation.finished(kind, [TaskInput(level, run_id, (info,))], level, run_id)
    if pick is not None and kind is TaskKind.TOMBSTONE and not pick.drop_tombstones:
        return None             # older rows lie below level 0: the tombstones go down with its next merge
    return pick


def _files(situation: Situation) -> Iterator[tuple[int, int, SstableInfo]]:
    """The free files, deepest level first."""
    for level in reversed(situation.version.levels):
        for run in level.runs:
            for info in run.sstables:
                if info.id not in situation.busy:
                    yield level.number, run.id, info


def _holds_dropped(situation: Situation, info: SstableInfo) -> bool:
    return not situation.version.dropped_tables.isdisjoint(info.table_ids)


def _is_stale(situation: Situation, info: SstableInfo) -> bool:
    """Whether enough of its rows are covered or tombstones, all of which the rewrite will drop or bring down."""
    return ((info.stale_rows + info.tombstones) * 100 >= info.rows * situation.options.stale_percent
            and pure_epoch(info.global_epoch or info.max_epoch) <= situation.watermark)


def _is_aged(situation: Situation, info: SstableInfo) -> bool:
    tables = situation.version.tables
    return (any(table_id in tables for table_id in info.table_ids)
            and dead_share(info, tables, situation.watermark) * 100 >= situation.options.stale_percent)


RECLAIMS: dict[TaskKind, IsWasteful] = {
    TaskKind.SPACE_RECLAIM: _holds_dropped, TaskKind.TOMBSTONE: _is_stale, TaskKind.TTL: _is_aged}
