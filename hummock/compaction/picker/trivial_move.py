"""Work without reading a file: one that overlaps nothing just moves down, one whose rows are all dead just goes."""

from __future__ import annotations

from collections.abc import Iterator

from hummock.compaction.picker.candidate import Pick, Shift, conflicts
from hummock.compaction.picker.context import Situation
from hummock.compaction.picker.expiry import all_dead
from hummock.compaction.task import TaskInput, TaskKind
from hummock.sstable.info import SstableInfo
from hummock.version import RunAddition

SMALL_SHARE = 8         # files below that part of an output stay in level 0 to be merged into larger ones


def pick_dead_files(situation: Situation) -> Shift | None:
    """All free files that hold rows of dropped tables only, or rows that are hidden from every reader to come."""
    version, watermark = situation.version, situation.watermark
    dropped = [info.id for run in version.runs if run.table_ids & version.dropped_tables
               for info in run.sstables
               if version.dropped_tables.issuperset(info.table_ids) and info.id not in situation.busy]
    if dropped:
        return Shift(TaskKind.SPACE_RECLAIM, tuple(dropped))
    dead = [info for run in version.runs if not situation.aging_tables.isdisjoint(run.table_ids)
            for info in run.sstables
            if info.id not in situation.busy and all_dead(info, version.tables, watermark)]
    if dead:
        kind = TaskKind.TTL if version.tables[dead[0].table_ids[0]].ttl_ms else TaskKind.WATERMARK
        return Shift(kind, tuple(info.id for info in dead), forgets=True)
    return None


def pick_moves(situation: Situation) -> Shift | None:
    """Files of level 0 that overlap neither older runs nor the base level, once level 0 has runs enough."""
    if len(situation.version.levels[0].runs) < situation.options.l0_runs:
        return None
    moving = tuple(_movable(situation))[:situation.options.task_files]
    if not moving:
        return None
    return Shift(TaskKind.L0_TO_BASE, tuple(info.id for info in moving),
                 (RunAddition(situation.base_level, 0, moving),))


def _movable(situation: Situation) -> Iterator[SstableInfo]:
    options, base = situation.options, situation.base_level
    beneath = [situation.run(base)]
    for run in reversed(situation.version.levels[0].runs):
        for info in run.sstables:
            if (info.data_bytes * SMALL_SHARE >= options.sstable_bytes and info.id not in situation.busy
                    and (info.stale_rows + info.tombstones) * 100 < info.rows * options.stale_percent
                    and not any(older.covering(info.smallest, info.largest) for older in beneath)):
                pick = Pick(TaskKind.L0_TO_BASE, (TaskInput(0, run.id, (info,)),), base)
                if not any(conflicts(pick, task) for task in situation.running):
                    yield info
        beneath.append(run)
