"""BulkStore against the in-memory model: reads and written files, with and without spills."""

import random
from contextlib import closing

import pyarrow as pa
import pytest

from hummock.base.key import KeyRange, user_key
from hummock.base.table_rules import PrefixRule, TableRules
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch
from hummock.errors import InvalidEpoch, StoreClosed
from hummock.iterator.batch_collector import BatchCollector
from hummock.object_store import open_object_store
from hummock.object_store.base import mint_sstable_name
from hummock.options import StorageOptions
from hummock.read.sorted_run import SortedRun
from hummock.read.view import ReadView
from hummock.sstable.store import SstableStore
from hummock.state_store import ReadOptions
from hummock.store.bulk_store import BulkStore
from hummock.store.memory_store import MemoryStateStore
from hummock.version import HummockVersion
from tests.support.drivers.seeds import run_seed

EPOCH = Epoch(7 << 16)
TABLES = (3, 4, 9)
SMALL = StorageOptions(shared_buffer_bytes=20_000, sstable_bytes=4_000, block_bytes=512)


def random_batch(rng):
    keys = {user_key(rng.choice(TABLES), rng.randrange(4), bytes([rng.randrange(200)])) for _ in range(80)}
    return WriteBatch((key, None if rng.random() < 0.3 else rng.randbytes(20)) for key in sorted(keys))


def filled(rng, batches=40):
    model, store = MemoryStateStore(), BulkStore(SMALL)
    for _ in range(batches):
        batch = random_batch(rng)
        model.ingest_batch(batch, EPOCH)
        store.ingest_batch(batch, EPOCH)
    return model, store


def rows(store, epoch=EPOCH, **how):
    with store.scan(KeyRange(b"", None), epoch, **how) as scan:
        return list(scan)


@pytest.fixture
def rng():
    return random.Random(run_seed())


def test_reads_find_what_was_written_whether_or_not_memory_was_full(rng):
    model, store = filled(rng)
    with store:
        assert len(store._runs) > 1
        assert rows(store) == rows(model)
        assert rows(store, reverse=True, limit=9) == rows(model, reverse=True, limit=9)
        keys = [user_key(rng.choice(TABLES), rng.randrange(4), bytes([rng.randrange(200)])) for _ in range(50)]
        assert list(store.get_many(keys_array(keys), EPOCH)) == list(model.get_many(keys_array(keys), EPOCH))
        assert store.get(keys[0], EPOCH) == model.get(keys[0], EPOCH)
        for method in ("scan_prefixes", "scan_many"):
            owners, found = getattr(store, method)(keys_array(keys), EPOCH, limit=3)
            owned, expected = getattr(model, method)(keys_array(keys), EPOCH, limit=3)
            assert owners.tolist() == owned.tolist() and list(found) == list(expected)
        assert rows(store, Epoch(0)) == []
        with store.changes(KeyRange(b"", None), Epoch(0), EPOCH) as changes:
            assert [(key, new) for key, old, new in changes if old is None] == rows(model)


def keys_array(keys):
    return pa.array(keys, pa.binary())


def test_what_leaves_is_what_a_read_finds_in_files_of_one_table_each(rng):
    model, store = filled(rng)
    with closing(open_object_store("memory://")) as objects:
        with store:
            infos = store.write_out(objects, lambda: mint_sstable_name(rng.randbytes, "ab" * 8), TABLES)
        assert all(len(info.table_ids) == 1 and not info.stale_rows and not info.tombstones for info in infos)
        assert len({info.table_ids for info in infos}) == len(TABLES) < len(infos)
        view = ReadView(HummockVersion(), (SortedRun(SstableStore(objects, SMALL), infos),), ())
        collector = BatchCollector(view.read(b"", None, EPOCH, False, ReadOptions()))
        found = collector.next_batch(1 << 20, 1 << 30)
        assert list(found) == rows(model)
        assert sum(info.rows for info in infos) == len(found)


def test_files_are_built_by_the_rules_that_were_announced():
    rules = {3: TableRules(PrefixRule(7)), 4: TableRules(PrefixRule(8)), 9: TableRules(PrefixRule(8))}
    with closing(open_object_store("memory://")) as objects, BulkStore(SMALL) as store:
        store.announce_rules({3: rules[3]})
        store.announce_rules({4: rules[4], 9: rules[9]})
        store.ingest_batch(WriteBatch([(user_key(table, 0, b"key"), b"v") for table in (3, 4)]), EPOCH)
        infos = store.write_out(objects, lambda: mint_sstable_name(random.randbytes), (3, 4))
        assert [info.prefixes for info in infos] == [((table, rules[table].prefix),) for table in (3, 4)]


def test_rows_that_came_once_each_are_as_many_as_leave():
    batches = [WriteBatch([(user_key(3, 0, bytes([key])), b"v")]) for key in (2, 1, 2)]
    with closing(open_object_store("memory://")) as objects:
        for count, left in ((2, 2), (3, 2)):
            with BulkStore(SMALL) as store:
                for batch in batches[:count]:
                    store.ingest_batch(batch, EPOCH)
                infos = store.write_out(objects, lambda: mint_sstable_name(random.randbytes), (3,))
                assert (store.puts, sum(info.rows for info in infos)) == (count, left)


def test_where_all_was_deleted_nothing_is_written():
    key = user_key(3, 0, b"k")
    with closing(open_object_store("memory://")) as objects, BulkStore(SMALL) as store:
        assert store.write_out(objects, lambda: "", (3,)) == ()
        store.ingest_batch(WriteBatch([(key, b"v")]), EPOCH)
        store.ingest_batch(WriteBatch([(key, None)]), EPOCH)
        assert store.get(key, EPOCH) is None
        assert store.write_out(objects, lambda: mint_sstable_name(random.randbytes), (3,)) == ()


def test_a_sealed_epoch_takes_no_writes_and_a_closed_store_no_reads():
    store = BulkStore(SMALL)
    store.commit(EPOCH)
    with pytest.raises(InvalidEpoch):
        store.ingest_batch(WriteBatch([(user_key(3, 0, b"k"), b"v")]), EPOCH)
    store.close()
    with pytest.raises(StoreClosed):
        store.get(user_key(3, 0, b"k"), EPOCH)
