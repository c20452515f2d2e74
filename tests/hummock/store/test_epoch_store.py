"""EpochStore against a dictionary: tasks over a committed version, whose files together are the next one."""

import random
from contextlib import closing

import pyarrow as pa
import pytest

import hummock
from hummock.base.key import KeyRange, user_key
from hummock.base.key_watermark import KeyWatermark
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import SPILL_BITS, Epoch
from hummock.errors import InvalidEpoch, ObjectNotFound, StoreClosed
from hummock.object_store.base import mint_sstable_name
from hummock.options import StorageOptions
from hummock.store.epoch_store import EpochStore
from tests.support.drivers.seeds import run_seed

TABLES, VNODES = (3, 4), 6
EVERYTHING = KeyRange(b"", None)
SMALL = StorageOptions(shared_buffer_bytes=2_000, sstable_bytes=4_000, block_bytes=512)


def epoch_of(number):
    return Epoch(number << SPILL_BITS)


def random_rows(rng, vnodes, most=60):
    keys = {user_key(rng.choice(TABLES), rng.choice(vnodes), bytes([rng.randrange(40)])) for _ in range(most)}
    return {key: None if rng.random() < 0.3 else rng.randbytes(12) for key in sorted(keys)}


def present(rows):
    return {key: value for key, value in sorted(rows.items()) if value is not None}


def shown(store, epoch, ranges=(EVERYTHING,)):
    found = {}
    for key_range in ranges:
        with store.scan(key_range, epoch) as rows:
            found |= dict(rows)
    return found


@pytest.fixture
def rng():
    return random.Random(run_seed())


@pytest.fixture
def base():
    with hummock.open("memory://", inline_bytes=0) as base:
        yield base


def task_over(base, rng, ranges=(EVERYTHING,), options=SMALL):
    """A task's store over the newest version, and the number of names that it minted."""
    minted = []

    def mint():
        minted.append(mint_sstable_name(rng.randbytes, ""))
        return minted[-1]

    version = base.version.narrowed(ranges)
    return EpochStore(version, base.sstable_store, options, base.object_store, mint), minted


def commit(base, epoch, files):
    base.meta_client.commit_epoch(base.session, epoch, tuple(files))
    base.wait_epoch(epoch)


@pytest.mark.parametrize("options", [StorageOptions(), SMALL], ids=["in memory", "spilled"])
@pytest.mark.parametrize("tasks", [1, 3])
def test_epochs_of_tasks_are_epochs_of_the_store(base, rng, tasks, options):
    """Each epoch is written by several tasks, each for a range of vnodes, in batches that overwrite each other."""
    model = {}
    for number in range(1, 12):
        epoch, files, expected = epoch_of(number), [], dict(model)
        with base.pinned_version():         # else a compaction meanwhile lets the files of the tasks' version go
            for task in range(tasks):
                owned = range(task * VNODES // tasks, (task + 1) * VNODES // tasks)
                written, mine = epoch_of_a_task(base, rng, owned, options, model, number)
                files += written
                expected |= mine
        commit(base, epoch, files)
        assert {info.min_epoch for info in files} == {info.max_epoch for info in files} == {epoch}
        with base.snapshot() as committed:
            assert committed == epoch and shown(base, epoch) == present(expected)
        model = present(expected)


def epoch_of_a_task(base, rng, owned, options, model, number):
    """The files that a task wrote for the vnodes `owned`, and its rows; what it reads is compared as it writes."""
    epoch, parts = epoch_of(number), [KeyRange.vnode(table, vnode) for table in TABLES for vnode in owned]
    store, _ = task_over(base, rng, parts, options)
    with store:
        mine = {key: value for key, value in model.items() if any(key in part for part in parts)}
        assert store.committed_epoch == epoch_of(number - 1)
        for _ in range(3):
            rows = random_rows(rng, owned)
            store.ingest_batch(WriteBatch(rows.items()), epoch)
            mine |= rows
            asked = [rng.choice(sorted(mine)) for _ in range(8)]
            assert shown(store, epoch, parts) == present(mine)
            assert [store.get(key, epoch) for key in asked] == [mine[key] for key in asked]
            assert list(store.get_many(pa.array(asked, pa.binary()), epoch)) == [mine[key] for key in asked]
            before = {key: value for key, value in model.items() if key in mine}
            assert shown(store, epoch_of(number - 1), parts) == present(before)
        store.seal_epoch(epoch)
        return store.sync(epoch).sstables, mine


def test_a_task_that_wrote_nothing_has_no_files(base, rng):
    store, minted = task_over(base, rng)
    with store:
        store.seal_epoch(epoch_of(1))
        assert store.sync(epoch_of(1)).sstables == () and not minted


def test_a_task_deletes_rows_that_only_the_version_has(base, rng):
    base.ingest_batch(WriteBatch([(user_key(3, 0, b"a"), b"1"), (user_key(3, 0, b"b"), b"2")]), epoch_of(1))
    base.commit(epoch_of(1))
    store, _ = task_over(base, rng)
    with store:
        store.ingest_batch(WriteBatch([(user_key(3, 0, b"a"), None)]), epoch_of(2))
        store.seal_epoch(epoch_of(2))
        files = store.sync(epoch_of(2)).sstables
    assert sum(info.tombstones for info in files) == 1
    commit(base, epoch_of(2), files)
    assert shown(base, epoch_of(2)) == {user_key(3, 0, b"b"): b"2"}


def test_the_watermarks_of_all_vnodes_are_told(base, rng):
    store, _ = task_over(base, rng)
    with store:
        store.advance_watermark(3, KeyWatermark.of(epoch_of(1), {0: b"a"}))
        store.advance_watermark(3, KeyWatermark.of(epoch_of(1), {1: b"b"}))
        store.seal_epoch(epoch_of(1))
        with pytest.raises(InvalidEpoch):
            store.advance_watermark(3, KeyWatermark.of(epoch_of(1), {2: b"c"}))
        found = store.sync(epoch_of(1)).watermarks
    assert found == {3: KeyWatermark.of(epoch_of(1), {0: b"a", 1: b"b"})}


def test_a_sealed_epoch_takes_nothing_and_an_open_one_is_not_synced(base, rng):
    store, _ = task_over(base, rng)
    with store:
        with pytest.raises(InvalidEpoch):
            store.sync(epoch_of(1))
        store.seal_epoch(epoch_of(1))
        with pytest.raises(InvalidEpoch):
            store.ingest_batch(WriteBatch([(b"a", b"1")]), epoch_of(1))
        store.clear_uncommitted()
        store.ingest_batch(WriteBatch([(b"a", b"1")]), epoch_of(1))
        assert store.get(b"a", epoch_of(1)) == b"1"
    with pytest.raises(StoreClosed):
        store.get(b"a", epoch_of(1))


def test_a_file_that_is_gone_is_named_with_the_likely_cause(base, rng):
    base.ingest_batch(WriteBatch([(user_key(3, 0, b"a"), b"1")]), epoch_of(1))
    base.commit(epoch_of(1))
    [info] = base.version.sstables
    with hummock.open("memory://") as other, closing(task_over(other, rng)[0]) as unused:
        assert unused.get(user_key(3, 0, b"a"), epoch_of(1)) is None
        store = EpochStore(base.version, other.sstable_store, SMALL, other.object_store, lambda: "")
        with store, pytest.raises(ObjectNotFound, match=info.name) as caught:
            store.get(user_key(3, 0, b"a"), epoch_of(1))
    assert "lease" in caught.value.__notes__[0]
