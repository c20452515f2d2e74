"""Bulk-loaded files in a commit: their target level, and the rows by which a repeated load is recognised.

    hummock/load/<id>       the epoch that a load got, its files, and its target level

They enter the last level if no file above it can overlap them, else level 0: a point read ends at the first run that
answers, and a load is newer than everything in the tree. So a load may be below other files only if none of those holds
a key of its tables in its range. A level is one run, so in the last level no file, and no output of a task with that
target, may overlap the load, whatever it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hummock.compaction.picker.candidate import Compaction, files_of, key_bounds
from hummock.epoch import Epoch
from hummock.errors import LoadRefused
from hummock.loaded_files import LoadAnswer, LoadedFiles, epoch_of_load
from hummock.meta.compaction.records import TaskBoard, read_board
from hummock.meta.records import LOADS, TASKS, decode, encode, load_key, names_digest
from hummock.meta.store.base import NONE, MetaOperations, MetaStore
from hummock.sstable.info import SstableInfo
from hummock.version import HummockVersion, RunAddition


def read_load(meta_store: MetaStore, load_id: str) -> LoadAnswer | None:
    """The result of a load; None: it never entered, or was forgotten."""
    row = meta_store.get(load_key(load_id))
    return None if row is None else decode(LoadAnswer, load_key(load_id), row)


def ingest_loads(loads: Sequence[LoadedFiles], epoch: Epoch, version: HummockVersion, entering: Sequence[SstableInfo],
                next_file_id: int, last_level: int,
                meta_store: MetaStore) -> tuple[list[RunAddition], list[LoadAnswer], MetaOperations]:
    """The runs that `loads` add, an answer for each, and the transaction's requirements that keep them valid.

    `entering` are the other files of the commit, whose runs are older. Raises `LoadRefused`.
    """
    if not loads:
        return [], [], NONE
    board = read_board(meta_store)
    added: list[RunAddition] = []
    answers: list[LoadAnswer] = []
    for at, load in enumerate(loads):
        _check(load, loads[:at], version, meta_store)
        numbered = tuple(replace(info, id=next_file_id + offset, global_epoch=epoch_of_load(epoch))
                         for offset, info in enumerate(load.sstables))
        next_file_id += len(numbered)
        level = _level_of(load, loads[:at], version, entering, board, last_level)
        if numbered:
            added.append(RunAddition(level, 0 if level else next_file_id - 1, numbered))
        answers.append(LoadAnswer(load.load_id, epoch, version.id + 1, level, len(numbered), load.rows,
                                  load.data_bytes, names_digest(load.sstables)))
    # A task that begins meanwhile changes the counter, not the head: its outputs could overlap a load in its level.
    required = {TASKS: board.counter_bytes, **{load_key(load.load_id): None for load in loads}}
    return added, answers, MetaOperations(require=required)


def remember_loads(answers: Sequence[LoadAnswer], meta_store: MetaStore, kept: int) -> MetaOperations:
    """Writes the answers; keeps the newest `kept` of the older ones."""
    if not answers:
        return NONE
    known = sorted((decode(LoadAnswer, key, row).version_id, key) for key, row in meta_store.list(LOADS))
    forgotten = tuple(key for _, key in known[:max(0, len(known) + len(answers) - kept)])
    return MetaOperations(put={load_key(answer.load_id): encode(answer) for answer in answers}, delete=forgotten)


def _check(load: LoadedFiles, earlier: Sequence[LoadedFiles], version: HummockVersion, meta_store: MetaStore) -> None:
    answer = read_load(meta_store, load.load_id)
    if answer is not None:
        raise LoadRefused(load.load_id, f"it was committed before, at epoch {answer.epoch}")
    if dropped := sorted(load.table_ids & version.dropped_tables):
        raise LoadRefused(load.load_id, f"table {dropped[0]} was dropped")
    for other in earlier:
        if other.load_id == load.load_id or not load.table_ids.isdisjoint(other.table_ids):
            raise LoadRefused(load.load_id, f"load {other.load_id} of the same commit writes to the same tables")


def _level_of(load: LoadedFiles, earlier: Sequence[LoadedFiles], version: HummockVersion,
              entering: Sequence[SstableInfo], board: TaskBoard, last_level: int) -> int:
    """The load's target level. In the last level, whose files are disjoint, it must not overlap an earlier load of its
    commit, whatever that writes.
    """
    if not load.sstables or any(
            other.sstables and other.sstables[0].smallest <= load.sstables[-1].largest
            and load.sstables[0].smallest <= other.sstables[-1].largest for other in earlier):
        return 0
    return ingest_target_level(version, [row.task for row in board.running], entering, load.sstables, last_level)


def ingest_target_level(version: HummockVersion, running: Iterable[Compaction], entering: Sequence[SstableInfo],
                  loaded: Sequence[SstableInfo], last_level: int) -> int:
    """The last level, or 0: a run of its own above all others.

    `entering` are the files that other writers add to the same version: everything from a shared buffer. `loaded` is a
    sorted run.
    """
    bottom = max(last_level, *(level.number for level in version.levels if level.runs), 0)
    written = [key_bounds(files_of(task)) for task in running if task.target_level == bottom]
    above = [run for level in version.levels if level.number < bottom for run in level.runs]
    beside = [run for level in version.levels[bottom:] for run in level.runs]
    for info in loaded:
        ends = info.smallest, info.largest
        if any(_meet(other, info) for run in above for other in run.covering(*ends)):
            return 0
        if any(_meet(other, info) for other in entering if _overlap((other.smallest, other.largest), ends)):
            return 0
        if any(run.covering(*ends) for run in beside) or any(_overlap(task, ends) for task in written):
            return 0
    return bottom


def _meet(one: SstableInfo, other: SstableInfo) -> bool:
    return not set(one.table_ids).isdisjoint(other.table_ids)


def _overlap(one: tuple[bytes, bytes], other: tuple[bytes, bytes]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]
