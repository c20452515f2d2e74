"""Where ready-made files land in the tree: at the bottom where nothing can lie over them, else on top.

A point read ends at the first run that answers, and what is loaded is newer than all that stands in the tree: so a
load lies below other files only where none of those holds a key of its tables in its range. A level is one run, so at
the bottom no file, and no output of a task on its way there, may reach into it whatever it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hummock.compaction.picker.candidate import Placed, files_of, hull
from hummock.sstable.info import SstableInfo
from hummock.version import HummockVersion


def landing_level(version: HummockVersion, running: Iterable[Placed], entering: Sequence[SstableInfo],
                  loaded: Sequence[SstableInfo], last_level: int) -> int:
    """The bottom level, or 0: a run of its own above all others.

    `entering` are the files that other writers put into the same version: all that stood in a shared buffer, was
    staged or was on its way. `loaded` is a sorted run.
    """
    bottom = max(last_level, *(level.number for level in version.levels if level.runs), 0)
    written = [hull(files_of(task)) for task in running if task.target_level == bottom]
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
