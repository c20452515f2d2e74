"""Trivial moves and file drops: files that overlap nothing move down, files whose rows are all dead are dropped; none
is read.
"""

from __future__ import annotations

from collections.abc import Iterator

from hummock.compaction.picker.candidate import CompactionCandidate, VersionEdit, conflicts
from hummock.compaction.picker.context import PickerContext
from hummock.compaction.picker.expiry import all_dead
from hummock.compaction.task import TaskInput, TaskKind
from hummock.sstable.info import SstableInfo
from hummock.version import RunAddition

SMALL_SHARE = 8         # files smaller than that part of an output stay in level 0 to be merged


def pick_dead_files(context: PickerContext) -> VersionEdit | None:
    """All free files with rows of dropped tables only, or with rows that are hidden from every future reader."""
    version, watermark = context.version, context.watermark
    dropped = [info.id for run in version.runs if run.table_ids & version.dropped_tables
               for info in run.sstables
               if version.dropped_tables.issuperset(info.table_ids) and info.id not in context.busy]
    if dropped:
        return VersionEdit(TaskKind.SPACE_RECLAIM, tuple(dropped))
    dead = [info for run in version.runs if not context.aging_tables.isdisjoint(run.table_ids)
            for info in run.sstables
            if info.id not in context.busy and all_dead(info, version.tables, watermark)]
    if dead:
        kind = TaskKind.TTL if version.tables[dead[0].table_ids[0]].ttl_ms else TaskKind.WATERMARK
        return VersionEdit(kind, tuple(info.id for info in dead), forgets=True)
    return None


def pick_moves(context: PickerContext) -> VersionEdit | None:
    """Files of level 0 that overlap neither older runs nor the base level, once level 0 has enough runs. What is
    compressed in another way than compaction does for the base level is rewritten instead."""
    if len(context.version.levels[0].runs) < context.options.l0_runs:
        return None
    moving = tuple(_movable(context))[:context.options.task_files]
    if not moving:
        return None
    return VersionEdit(TaskKind.L0_TO_BASE, tuple(info.id for info in moving),
                 (RunAddition(context.base_level, 0, moving),))


def _movable(context: PickerContext) -> Iterator[SstableInfo]:
    options, base = context.options, context.base_level
    beneath = [context.run(base)]
    for run in reversed(context.version.levels[0].runs):
        for info in run.sstables:
            if (info.data_bytes * SMALL_SHARE >= options.sstable_bytes and info.id not in context.busy
                    and info.codec == options.codec_of(base)
                    and (info.stale_rows + info.tombstones) * 100 < info.rows * options.stale_percent
                    and not any(older.covering(info.smallest, info.largest) for older in beneath)):
                pick = CompactionCandidate(TaskKind.L0_TO_BASE, (TaskInput(0, run.id, (info,)),), base)
                if not any(conflicts(pick, task) for task in context.running):
                    yield info
        beneath.append(run)
