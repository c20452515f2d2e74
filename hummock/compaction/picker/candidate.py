"""The results of a picker: a CompactionCandidate, whose files must be merged, or a VersionEdit, which reads no file.

The key bounds of a candidate are its least and greatest input keys: its outputs lie inside. Two candidates may run at
once unless one could put older rows above newer ones, or overlapping files into one level.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from hummock.compaction.task import TaskInput, TaskKind
from hummock.options import CompactionOptions
from hummock.sstable.info import SstableInfo
from hummock.version import HummockVersion, RunAddition


class Compaction(Protocol):
    """A candidate or a running task."""

    @property
    def inputs(self) -> tuple[TaskInput, ...]: ...

    @property
    def target_level(self) -> int: ...


@dataclass(frozen=True, slots=True)
class CompactionCandidate:
    """Merges `inputs`, newest first, into run `target_run` of `target_level`."""

    kind: TaskKind
    inputs: tuple[TaskInput, ...]
    target_level: int
    target_run: int = 0
    drop_tombstones: bool = False


@dataclass(frozen=True, slots=True)
class VersionEdit:
    """Removes files, and adds some of them unchanged elsewhere.

    `forgets`: rows leave that readers below the watermark could still request.
    """

    kind: TaskKind
    removed: tuple[int, ...]
    added: tuple[RunAddition, ...] = ()
    forgets: bool = False


def files_of(compaction: Compaction) -> Iterator[SstableInfo]:
    return (info for part in compaction.inputs for info in part.sstables)


def key_bounds(sstables: Iterable[SstableInfo]) -> tuple[bytes, bytes]:
    """The least and the greatest user key of at least one file."""
    files = tuple(sstables)
    return min(info.smallest for info in files), max(info.largest for info in files)


def input_bytes(compaction: Compaction) -> int:
    return sum(info.data_bytes for info in files_of(compaction))


def codec_for(compaction: Compaction, options: CompactionOptions) -> str:
    """How the outputs are compressed: as files of their level, but rows in the order of their keys, which are merged
    within level 0, as files of the last one, since they move down as they are."""
    if compaction.target_level:
        return options.codec_of(compaction.target_level)
    files = sorted(files_of(compaction), key=lambda info: info.smallest)
    is_ordered = all(left.largest < right.smallest for left, right in pairwise(files))
    return options.codec_of(options.last_level if is_ordered else 0)


def busy_ids(running: Iterable[Compaction]) -> frozenset[int]:
    """The files that are part of a task."""
    return frozenset(info.id for task in running for info in files_of(task))


def conflicts(first: Compaction, second: Compaction) -> bool:
    """Whether the two may not run at once. Symmetric."""
    one, other = first.target_level, second.target_level
    if one == other == 0:
        return False                    # runs keep their order in level 0
    crosses = (one == other or _source(first) < other < one or _source(second) < one < other)
    return crosses and _overlap(key_bounds(files_of(first)), key_bounds(files_of(second)))


def can_drop_tombstones(version: HummockVersion, pick: Compaction) -> bool:
    """Whether no older file outside of the inputs can hold one of their keys.

    Older files are in the level 0 runs below the oldest input, and in deeper levels. Files of running tasks remain in
    the version until their outputs replace them, so they are checked too. Files above are newer and irrelevant.
    """
    inside = {info.id for info in files_of(pick)}
    smallest, largest = key_bounds(files_of(pick))
    oldest = pick.inputs[-1]
    for level in version.levels:
        if level.number < oldest.level:
            continue
        for run in level.runs:
            if level.number == 0 and oldest.level == 0 and run.id >= oldest.run:
                continue
            if any(info.id not in inside for info in run.covering(smallest, largest)):
                return False
    return True


def _source(compaction: Compaction) -> int:
    return min(part.level for part in compaction.inputs)


def _overlap(one: tuple[bytes, bytes], other: tuple[bytes, bytes]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]
