"""A session whose clock the test moves, over stores in memory; compaction runs when the test says so."""

from __future__ import annotations

import os
from typing import Any

from hummock.meta.store.memory import MemoryMetaStore
from hummock.object_store.base import ObjectStore, mint_sstable_name
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import CompactionOptions, StorageOptions
from stream.options import StreamOptions
from stream.playground import Playground, PlaygroundOptions
from stream.session.session import Session
from tests.support.drivers.compaction_files import run_ranges

NEVER_MS = 3_600_000
START_MS = 1_700_000_000_000


class TimedSession:
    """`now_ms` is the clock. `session` is open; `restart` opens another one over the same stores."""

    def __init__(self, objects: ObjectStore | None = None, *, storage: StorageOptions | None = None,
                 history_ms: int = 0, **stream: Any) -> None:
        self.now_ms = START_MS
        self._objects, self._meta = objects or MemoryObjectStore(), MemoryMetaStore()
        self._options = PlaygroundOptions(
            StreamOptions(barrier_interval_ms=NEVER_MS, **stream), storage or StorageOptions(),
            CompactionOptions(history_ms=history_ms, l0_runs=2, sstable_bytes=4_000, block_bytes=400), False)
        self.session = self._opened()

    def restart(self) -> None:
        """What is not committed is lost."""
        self.session.abandon()
        self.session = self._opened()

    def compact(self, tasks: int = 100) -> int:
        """Runs tasks until there is none; their number. Pins are as after a renewal of the lease."""
        manager = self.session._playground.manager
        manager.renew_lease(self.session._playground.node_name)
        for done in range(tasks):
            given = manager.get_compact_task("test")
            if given is None:
                return done
            task, token = given
            results = run_ranges(task, self._objects, lambda token=token: mint_sstable_name(os.urandom, token[:16]),
                                 threads=1, memory_bytes=1 << 20)
            manager.report_compact_task(task.id, token, results)
        return tasks

    @property
    def version(self):
        return self.session._playground.storage.version

    def table(self, name: str):
        """The catalog entry of a table, or of a state table."""
        known = self.session._playground.catalog.snapshot.tables.values()
        return next(table for table in known if table.name == name)

    def close(self) -> None:
        self.session.abandon()

    def _opened(self) -> Session:
        return Session(Playground(self._objects, self._meta, self._options, clock=lambda: self.now_ms))
