"""Maintenance: compaction and vacuum in the background of a process.

The default for a process that writes. Standalone compactors do the same work on the same store: the manager assigns
each task to one of them.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from hummock.base.foreground import ForegroundWork
from hummock.base.key import KeyRange
from hummock.compactor import CompactionWatch, Compactor
from hummock.errors import without_frames
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.store.base import MetaStore
from hummock.meta.vacuum.loop import VacuumLoop
from hummock.meta.vacuum.vacuum import Vacuum, VacuumReport
from hummock.object_store.base import ObjectStore
from hummock.options import VacuumOptions
from hummock.version import HummockVersion


class Maintenance:
    """Runs from `start` to `close`; `error` is the error of the last round, None if it had none. Merges pause for
    `foreground` work."""

    def __init__(self, manager: HummockManager, meta_store: MetaStore, object_store: ObjectStore, *,
                 tasks_at_once: int = 2, vacuum: VacuumOptions | None = None,
                 foreground: ForegroundWork | None = None):
        self._manager, self._meta_store, self._object_store = manager, meta_store, object_store
        self._vacuum_options = vacuum or VacuumOptions()
        self.compactor = Compactor(manager, object_store, manager.compaction_options, tasks_at_once=tasks_at_once,
                                   metrics=manager.metrics, foreground=foreground)
        self.vacuum_loop = VacuumLoop(self._new_vacuum())
        self._left_at = manager.left_at
        self._subscription = manager.subscribe(self._on_version)

    def start(self) -> Self:
        self.compactor.start()
        self.vacuum_loop.start()
        return self

    @property
    def error(self) -> Exception | None:
        return self.compactor.error or self.vacuum_loop.error

    def wait_compacted(self, timeout: float | None = None, watch: CompactionWatch | None = None) -> bool:
        """Waits until nothing is left to compact; False after `timeout` seconds. Raises the Corruption that leaves
        something; with a `watch`, of its range.
        """
        return self.compactor.wait_idle(timeout, watch)

    def compact(self, key_range: KeyRange | None = None, timeout: float | None = None) -> bool:
        """Compacts the range (None: everything) into the last level, unless all of it is there, without rows that may
        go; False after `timeout` seconds. Raises why the tasks of the range were given up, as a Corruption.
        """
        wanted = KeyRange() if key_range is None else key_range
        with self.compactor.watch(wanted) as watch:
            if not self._manager.is_compacted(wanted):
                self._manager.compact_range(wanted)
            is_idle = self.wait_compacted(timeout, watch)
            if is_idle and watch.error is not None and not self._manager.is_compacted(wanted):
                raise without_frames(watch.error)
        return is_idle

    def vacuum(self, *, dry_run: bool = False) -> VacuumReport:
        """Runs vacuum once and reports what it found and removed; with `dry_run` what it would remove."""
        return self._new_vacuum().run(dry_run=dry_run)

    def close(self) -> None:
        """Abandons the running tasks, which others may take at once. Idempotent."""
        self._subscription.close()
        self.vacuum_loop.close()
        self.compactor.close(drain=False)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def _on_version(self, version: HummockVersion) -> None:
        """Notifies vacuum if files left with this version."""
        if self._manager.left_at > self._left_at:
            self._left_at = self._manager.left_at
            self.vacuum_loop.notify()

    def _new_vacuum(self) -> Vacuum:
        return Vacuum(self._meta_store, self._object_store, options=self._vacuum_options,
                      metrics=self._manager.metrics, lift=self._manager.lift_leases)
