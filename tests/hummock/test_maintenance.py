"""Maintenance: compaction and vacuum leave only live files on disk."""

import gc
import random
import time

import pytest

import hummock
from hummock.base.key import KeyRange, user_key
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch
from hummock.errors import Corruption, InvalidOption, ObjectStoreError
from hummock.object_store.base import SSTABLE_PREFIX, sstable_data_path, sstable_name_of
from hummock.options import CompactionOptions, VacuumOptions
from tests.support.drivers.waiting import eventually

SMALL = CompactionOptions(history_ms=0, l0_runs=3, l0_base_bytes=1 << 12, sstable_bytes=1 << 12)
NEVER = VacuumOptions(interval_ms=1 << 40, pause_ms=1 << 40)


def opened(vacuum=NEVER, **options):
    return hummock.open("memory://", compaction=SMALL, vacuum=vacuum, refresh_ms=1 << 40, inline_bytes=0, **options)


def write(store, first, last, seed=0):
    """Commits epochs `first` to `last`."""
    rng = random.Random(seed)
    for number in range(first, last + 1):
        rows = [(user_key(1, 0, b"%04d" % key), rng.randbytes(30)) for key in sorted(rng.sample(range(2_000), 100))]
        store.ingest_batch(WriteBatch(rows), Epoch(number << 16))
        store.commit(Epoch(number << 16))


def stored(store):
    objects = store._sstable_store.object_store
    return {sstable_name_of(found.path) for found in objects.list(SSTABLE_PREFIX)}


def live(store):
    return {info.name for info in store.version.sstables}


@pytest.mark.parametrize("seed", range(5))
def test_after_compaction_and_vacuum_the_live_files_are_left(seed):
    with opened() as store:
        for cycle in range(3):
            write(store, 6 * cycle + 1, 6 * cycle + 6, seed)
            assert store.compact(timeout=60)
            store.vacuum()
            assert stored(store) == live(store), f"seed {seed}, cycle {cycle}"


def test_compaction_that_is_asked_for_begins_at_once(monkeypatch):
    """No thread polls for work within the timeout."""
    monkeypatch.setattr("hummock.compactor.POLL_SECONDS", 3_600.0)
    with opened() as store:
        write(store, 1, 2)
        assert store.compact(timeout=60)
        for number in range(3, 6):
            write(store, number, number)
            before = live(store)
            assert store.compact(timeout=60)
            assert before.isdisjoint(live(store))


def test_a_read_keeps_its_files_until_it_ends():
    with opened() as store:
        write(store, 1, 6)
        assert store.wait_compacted(60)
        expected = list(store.scan(KeyRange(), Epoch(6 << 16)))
        before, scan = set(), iter(())
        while before != live(store):                    # an early merge may come in between
            before, scan = live(store), iter(store.scan(KeyRange(), Epoch(6 << 16)))
        first = next(scan)
        write(store, 7, 7)                              # over all keys: every file is merged with it
        assert store.compact(timeout=60)
        store.vacuum()
        assert stored(store) >= before | live(store) and before.isdisjoint(live(store))
        assert [first, *scan] == expected
        del scan
        gc.collect()
        store.vacuum()
        assert stored(store) == live(store)


def test_a_dry_run_reports_what_vacuum_would_remove():
    with opened() as store:
        write(store, 1, 6)
        assert store.compact(timeout=60)
        before = stored(store)
        report = store.vacuum(dry_run=True)
        assert stored(store) == before
        removed = store.vacuum().removed
        assert report.removed == removed and removed.files == len(before) - len(live(store)) > 0


def test_a_snapshot_keeps_rows_and_not_files():
    with opened() as store:
        write(store, 1, 3)
        with store.snapshot(Epoch(3 << 16)):
            rows = list(store.scan(KeyRange(), Epoch(3 << 16)))
            write(store, 4, 6)
            assert store.compact(timeout=60)
            store.vacuum()
            assert stored(store) == live(store)
            assert list(store.scan(KeyRange(), Epoch(3 << 16))) == rows


def test_vacuum_in_the_background_follows_compaction_at_once():
    """No lease renewal and no periodic scan of the obsolete list is due."""
    with opened(VacuumOptions(interval_ms=1 << 40, pause_ms=1)) as store:
        for cycle in range(3):
            write(store, 6 * cycle + 1, 6 * cycle + 6)
            assert store.compact(timeout=60)
            eventually(lambda: stored(store) == live(store), f"cycle {cycle}")
        assert store.maintenance.error is None


def test_a_store_at_rest_is_not_compacted_again():
    with opened() as store:
        write(store, 1, 6)
        assert store.compact(timeout=60)
        version = store.version
        assert store.compact(timeout=60) and store.compact(timeout=60)
        assert store.version is version
        write(store, 7, 7)
        assert store.compact(timeout=60) and store.version.levels[0].runs == ()


def damage(store, name):
    """Changes one bit of the file's data."""
    objects, path = store.object_store, sstable_data_path(name)
    data = bytearray(objects.get(path))
    data[len(data) // 2] ^= 1
    objects.delete([path])
    objects.put(path, bytes(data))


def test_a_range_with_a_damaged_file_is_refused_at_once_and_by_name_and_others_are_compacted():
    """An attempt costs less than the first wait between tries of other failures."""
    with opened() as store:
        store.write({user_key(table, 0, b"k"): bytes(100) for table in (1, 2)})
        assert store.compact(timeout=60)
        store.write({user_key(1, 0, b"k"): bytes(100)})
        damaged = store.version.levels[0].runs[0].sstables[0].name
        damage(store, damaged)
        began = time.monotonic()
        for _ in range(2):
            with pytest.raises(Corruption, match=damaged):
                store.compact(timeout=60)
        assert time.monotonic() - began < 10 and damaged in live(store)
        store.write({user_key(2, 0, b"k"): bytes(100)})
        assert store.compact(KeyRange.table(2), timeout=60)
        with pytest.raises(Corruption, match=damaged):
            store.compact(KeyRange.table(1), timeout=60)
        store.meta_client.drop_files([damaged])
        assert store.compact(timeout=60) and store.version.levels[0].runs == ()


def test_a_range_that_was_given_up_for_other_reasons_is_refused_with_the_last_of_them(monkeypatch):
    """A requested range is not asked for again, so no try comes after the last one."""
    shape = CompactionOptions(task_retry_ms=1, task_tries=2)
    with hummock.open("memory://", compaction=shape, vacuum=NEVER, inline_bytes=0) as store:
        write(store, 1, 2)
        real = store.maintenance.compactor._threads_runner.run

        def refused(*parts, **options):
            raise ObjectStoreError("sst/x", "the store is full")

        monkeypatch.setattr(store.maintenance.compactor._threads_runner, "run", refused)
        with pytest.raises(ObjectStoreError, match="full"):
            store.compact(timeout=60)
        monkeypatch.setattr(store.maintenance.compactor._threads_runner, "run", real)
        assert store.compact(timeout=60) and store.version.levels[0].runs == ()


@pytest.mark.parametrize("key_range", [5, (b"a", b"b"), KeyRange("a", "b")], ids=repr)
def test_what_is_no_range_is_not_compacted(key_range):
    with opened() as store:
        with pytest.raises(InvalidOption, match="KeyRange"):
            store.compact(key_range)
        assert store.compact(timeout=60)
