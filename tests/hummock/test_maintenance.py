"""Maintenance: compaction and vacuum leave only live files on disk."""

import gc
import random

import pytest

import hummock
from hummock.base.key import KeyRange, user_key
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch
from hummock.object_store.base import SSTABLE_PREFIX, sstable_name_of
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
