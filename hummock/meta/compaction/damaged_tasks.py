"""DamagedTasks: tasks that this process found damaged input in, so that it does not pick them again at once.

Damage stays, so a further attempt would only read up to it again. The memory of it is short, and is of one process: a
file may be put back from a copy, and other processes read it by other ways.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from hummock.base.key import KeyRange
from hummock.compaction.task import CompactTask
from hummock.errors import Corruption
from hummock.version import HummockVersion

REMEMBERED_MS = 600_000     # after so long an attempt is made again


@dataclass(frozen=True, slots=True)
class _Damaged:
    task: CompactTask
    error: Corruption
    until_ms: int


class DamagedTasks:
    """Thread safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[int, _Damaged] = {}      # by id of the task

    def add(self, task: CompactTask, error: Corruption, now_ms: int) -> None:
        """An attempt at `task` ended with `error`."""
        with self._lock:
            self._known[task.id] = _Damaged(task, error, now_ms + REMEMBERED_MS)

    def tasks(self, version: HummockVersion, now_ms: int) -> list[CompactTask]:
        """Those that are not to be picked again for now; forgets those with a file that left the version."""
        return [damaged.task for damaged in self._current(version, now_ms)]

    def error_in(self, key_range: KeyRange, version: HummockVersion, now_ms: int) -> Corruption | None:
        """The error of one of them that may hold keys of the range."""
        return next((damaged.error for damaged in self._current(version, now_ms)
                     if damaged.task.touches(key_range)), None)

    def _current(self, version: HummockVersion, now_ms: int) -> list[_Damaged]:
        with self._lock:
            if self._known:
                self._known = {
                    task_id: damaged for task_id, damaged in self._known.items()
                    if now_ms < damaged.until_ms
                    and _names(damaged.task) == version.held_names(_names(damaged.task))}
            return list(self._known.values())


def _names(task: CompactTask) -> set[str]:
    return {info.name for info in task.input_files}
