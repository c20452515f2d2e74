"""A SnapshotStore reads its version, or key ranges of it, without a meta store."""

from __future__ import annotations

import json
import random
from contextlib import closing

import pyarrow as pa
import pytest

import hummock
from hummock.base.key import KeyRange, user_key
from hummock.base.key_watermark import KeyWatermark
from hummock.base.table_rules import TableRules
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch
from hummock.errors import Corruption, InvalidEpoch, ObjectNotFound, RoleMissing, StoreClosed, WaitEpochTimeout
from hummock.object_store import open_object_store
from hummock.object_store.base import sstable_data_path
from hummock.options import StorageOptions, VacuumOptions
from hummock.sstable.store import SstableStore
from hummock.store.snapshot_store import SnapshotStore
from hummock.version import HummockVersion

OPTIONS = StorageOptions(block_bytes=100, sstable_bytes=600)
TABLES = {7: TableRules(ttl_ms=3), 8: TableRules(watermarks=(KeyWatermark(Epoch(6 << 16), ((1, 1, b"40"),)),))}
EVERYTHING = KeyRange()


@pytest.fixture
def store():
    with hummock.open("memory://", block_bytes=100, sstable_bytes=600, compaction=False, inline_bytes=0) as store:
        rng = random.Random(5)
        for number in range(1, 9):
            keys = {user_key(rng.randint(6, 9), rng.randint(0, 1), b"%02d" % rng.randrange(99)) for _ in range(80)}
            rows = [(key, rng.choice((None, b"a" * rng.randrange(20)))) for key in sorted(keys)]
            store.ingest_batch(WriteBatch(rows), Epoch(number << 16))
            rules, dropped = (TABLES if number == 6 else {}), ((9,) if number == 8 else ())
            store.commit(Epoch(number << 16), tables=rules, dropped_tables=dropped)
        yield store


def snapshot_of(store, version):
    encoded = json.dumps(version.to_json())
    files = SstableStore(store._sstable_store.object_store, OPTIONS)
    return SnapshotStore(HummockVersion.from_json(json.loads(encoded)), files, OPTIONS)


def rows_of(store, key_range, epoch, **how):
    with store.scan(key_range, epoch, **how) as rows:
        return list(rows)


@pytest.mark.parametrize(
    "ranges",
    [[EVERYTHING], [KeyRange.table(7)], [KeyRange.vnode(8, 1), KeyRange.vnode(6, 0)],
     [KeyRange(user_key(6, 1, b"5"), user_key(8, 0, b"2"))], [KeyRange.table(9)]],
    ids=["all", "a table", "two vnodes", "across tables", "a dropped table"],
)  # fmt: skip
def test_it_reads_its_ranges_as_the_store_does(store, ranges):
    version = store.version.narrowed(ranges)
    assert len(list(version.sstables)) <= len(list(store.version.sstables))
    found = snapshot_of(store, version)
    for key_range in ranges:
        for epoch in (Epoch(number << 16) for number in range(1, 9)):
            expected = rows_of(store, key_range, epoch)
            assert rows_of(found, key_range, epoch) == expected
            assert rows_of(found, key_range, epoch, reverse=True, limit=3) == expected[::-1][:3]
            keys = pa.array([key for key, _ in expected], pa.binary())
            assert list(found.get_many(keys, epoch)) == [value for _, value in expected]
            since = min(epoch, Epoch(2 << 16))
            assert list(found.changes(key_range, since, epoch)) == list(store.changes(key_range, since, epoch))


def test_only_files_of_the_ranges_travel(store):
    all_files = {info.name for info in store.version.sstables}
    wanted = KeyRange.vnode(6, 0)
    names = {info.name for info in store.version.narrowed([wanted]).sstables}
    meeting = {info.name for info in store.version.sstables
               if info.smallest < wanted.end and info.largest >= wanted.start}
    assert names == meeting < all_files


def test_it_takes_no_writes_and_knows_no_later_epoch(store):
    found = snapshot_of(store, store.version)
    assert found.committed_epoch == store.committed_epoch
    with pytest.raises(RoleMissing):
        found.ingest_batch(WriteBatch([(b"a", b"1")]), Epoch(9 << 16))
    with pytest.raises(InvalidEpoch):
        found.get(b"a", Epoch(9 << 16))
    with pytest.raises(WaitEpochTimeout):
        found.wait_epoch(Epoch(9 << 16))
    scan = found.scan(EVERYTHING, Epoch(8 << 16))
    found.close()
    for use in (scan.next_batch, lambda: found.get(b"a", Epoch(8 << 16))):
        with pytest.raises(StoreClosed):
            use()


def test_a_file_that_is_gone_or_damaged_is_named(store):
    objects = store._sstable_store.object_store
    found = snapshot_of(store, store.version)
    info = next(store.version.sstables)
    path = sstable_data_path(info.name)
    data = objects.get(path)
    objects.delete([path])
    with pytest.raises(ObjectNotFound, match=info.name) as caught:
        rows_of(found, EVERYTHING, Epoch(8 << 16))
    assert "lease" in caught.value.__notes__[0]
    objects.put(path, bytes(len(data)))
    with pytest.raises(Corruption, match=info.name):
        rows_of(snapshot_of(store, store.version), EVERYTHING, Epoch(8 << 16))


def test_a_pinned_version_is_read_by_others_until_it_is_given_back(tmp_path):
    options = {"vacuum": VacuumOptions(grace_ms=0, tombstone_ms=0), "block_bytes": 100, "sstable_bytes": 600}
    with hummock.open(f"file://{tmp_path}", role="writer", **options) as store:
        for number in range(1, 4):
            store.ingest_batch(WriteBatch([(user_key(6, 0, b"%02d" % n), b"%d" % number) for n in range(50)]),
                               Epoch(number << 16))
            store.commit(Epoch(number << 16))
        with store.pinned_version() as pinned:
            version = pinned.version
            before = rows_of(store, EVERYTHING, Epoch(3 << 16))
            store.ingest_batch(WriteBatch([(user_key(6, 0, b"00"), None)]), Epoch(4 << 16))
            store.commit(Epoch(4 << 16))
            assert store.compact(timeout=60)
            store.vacuum()
            with closing(snapshot_of(store, version)) as snapshot:
                assert rows_of(snapshot, EVERYTHING, Epoch(3 << 16)) == before
        names = {info.name for info in version.sstables} - {info.name for info in store.version.sstables}
        assert names
        while names & {found.path.split("/")[-1].split(".")[0] for found in
                       store._sstable_store.object_store.list("sst/")}:
            store.vacuum()


def test_the_causes_of_an_error_have_an_end(store):
    """An error that needs no explanation is not its own cause."""
    info = next(iter(store.version.sstables))
    with closing(open_object_store("memory://")) as nothing:
        files = SstableStore(nothing, StorageOptions())
        gone = SnapshotStore(store.version, files, StorageOptions())
        with pytest.raises(ObjectNotFound) as caught:
            gone.get(info.smallest, store.committed_epoch)
    seen, error = [], caught.value
    while error is not None:
        assert error not in seen
        seen.append(error)
        error = error.__cause__
