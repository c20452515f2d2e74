"""Compaction and vacuum in single steps that a test triggers."""

from __future__ import annotations

import os
from collections.abc import Callable

from hummock.meta import MetaStore, open_meta_store
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.vacuum.vacuum import Vacuum
from hummock.object_store import open_object_store
from hummock.object_store.base import ObjectStore, mint_sstable_name, sstable_data_path, sstable_meta_path
from hummock.options import CompactionOptions, VacuumOptions
from tests.support.drivers.compaction_files import run_ranges

SHAPE = CompactionOptions(
    history_ms=1, l0_runs=2, base_level_bytes=1_500, level_multiplier=2, l0_base_bytes=1_000, sstable_bytes=700,
    block_bytes=200, range_bytes=2_000, threads=1, memory_bytes=1 << 20)
AT_ONCE = VacuumOptions(grace_ms=0, tombstone_ms=0)
LATER_MS = 3_600_000        # leases of killed processes have expired by then
TASKS = 4


def compact(manager: HummockManager, objects: ObjectStore, tasks: int = TASKS) -> int:
    """Runs due tasks, at most `tasks`, and returns their number."""
    for done in range(tasks):
        given = manager.get_compact_task("compactor")
        if given is None:
            return done
        task, token = given
        results = run_ranges(task, objects, lambda token=token: mint_sstable_name(os.urandom, token[:16]), threads=1,
                             memory_bytes=SHAPE.memory_bytes)
        manager.report_compact_task(task.id, token, results)
    return tasks


def maintain(directory: str, release_old_versions: Callable[[], None]) -> None:
    """Compacts and vacuums once, as a separate process; readers release old versions in between."""

    def work(meta: MetaStore, objects: ObjectStore) -> None:
        compact(HummockManager(meta, objects, compaction=SHAPE), objects)
        release_old_versions()
        Vacuum(meta, objects, options=AT_ONCE).run()

    with_stores(directory, work)


def check_no_garbage(directory: str) -> None:
    """After all leases have expired and all tasks are done, vacuum leaves exactly the version's files."""

    def check(meta: MetaStore, objects: ObjectStore) -> None:
        manager = HummockManager(meta, objects, lambda: meta.now_ms() + LATER_MS, compaction=SHAPE)
        while compact(manager, objects):
            pass
        vacuum = Vacuum(meta, objects, lambda: meta.now_ms() + LATER_MS, options=AT_ONCE)
        for _ in range(2):              # the second deletes what leases protected in the first
            vacuum.run()
        names = [info.name for info in manager.version.stored_files]
        needed = {path(name) for name in names for path in (sstable_data_path, sstable_meta_path)}
        assert {found.path for found in objects.list("sst/")} == needed

    with_stores(directory, check)


def with_stores(directory: str, use: Callable[[MetaStore, ObjectStore], None]) -> None:
    url = f"file://{directory}"
    objects = open_object_store(url)
    try:
        meta = open_meta_store(url, object_store=objects, create=False)
        try:
            use(meta, objects)
        finally:
            meta.close()
    finally:
        objects.close()
