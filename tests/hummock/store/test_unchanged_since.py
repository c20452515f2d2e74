"""Which epoch's rows a table has: a model of its rows is compared whenever two epochs are said to be the same."""

import random

import pytest

import hummock
from hummock.base.key import KeyRange, user_key
from hummock.base.key_watermark import KeyWatermark
from hummock.base.table_rules import TableRules
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import NEVER, SPILL_BITS, Epoch
from hummock.options import CompactionOptions
from hummock.version import HummockVersion
from tests.support.drivers.seeds import run_seed

TABLES = (3, 4, 5)


def epoch_of(number):
    return Epoch(number << SPILL_BITS)


@pytest.fixture
def store():
    with hummock.open("memory://", compaction=CompactionOptions(history_ms=0)) as store:
        yield store


def put(store, number, table, *names, tables=None):
    rows = [(user_key(table, 0, name.encode()), b"%d" % number) for name in names]
    if rows:
        store.ingest_batch(WriteBatch(sorted(rows)), epoch_of(number))
    store.commit(epoch_of(number), tables=tables or {})


def delete(store, number, table, *names):
    batch = WriteBatch([(user_key(table, 0, name.encode()), None) for name in sorted(names)])
    store.ingest_batch(batch, epoch_of(number))
    store.commit(epoch_of(number))


def test_commits_of_other_tables_and_empty_ones_change_nothing(store):
    put(store, 1, 3, "a")
    assert store.unchanged_since(3, epoch_of(1)) == epoch_of(1)
    put(store, 2, 4, "a")
    put(store, 3, 4)
    assert store.unchanged_since(3, epoch_of(3)) == epoch_of(1)
    assert store.unchanged_since(4, epoch_of(3)) == epoch_of(2)
    assert store.unchanged_since(5, epoch_of(3)) == NEVER
    put(store, 4, 3, "b")
    assert store.unchanged_since(3, epoch_of(4)) == epoch_of(4)
    assert store.unchanged_since(4, epoch_of(4)) == epoch_of(2)


def test_an_epoch_before_the_last_change_is_its_own(store):
    put(store, 1, 3, "a")
    put(store, 2, 3)
    put(store, 3, 3, "b")
    put(store, 4, 3)
    assert [store.unchanged_since(3, epoch_of(number)) for number in range(1, 6)] == [
        epoch_of(number) for number in (1, 2, 3, 3, 5)]


def test_rules_and_the_end_of_a_table_change_its_rows(store):
    put(store, 1, 3, "a", "b")
    assert store.unchanged_since(3, epoch_of(1)) == epoch_of(1)
    store.advance_watermark(3, KeyWatermark.of(epoch_of(2), {0: b"b"}))
    put(store, 2, 3)
    assert store.unchanged_since(3, epoch_of(2)) == epoch_of(2)
    put(store, 3, 3, tables={3: TableRules(ttl_ms=1_000)})
    put(store, 4, 3)
    assert store.unchanged_since(3, epoch_of(4)) == epoch_of(4), "its rows expire by the epoch"
    assert store.unchanged_since(4, epoch_of(4)) == NEVER
    store.commit(epoch_of(5), dropped_tables=[4])
    assert store.unchanged_since(4, epoch_of(5)) == epoch_of(5)


def test_equal_epochs_have_equal_rows(store):
    rng, seen = random.Random(run_seed()), {}
    for number in range(1, 240):
        table, names = rng.choice(TABLES), rng.sample("abcdefgh", rng.choice([0, 0, 1, 3, 8]))
        (delete if names and rng.random() < 0.4 else put)(store, number, table, *names)
        if rng.random() < 0.2:
            store.compact()
        if rng.random() < 0.3:
            continue
        for table in TABLES:
            epoch = store.committed_epoch
            with store.snapshot(epoch), store.scan(KeyRange.table(table), epoch) as rows:
                found = list(rows)
            since = store.unchanged_since(table, epoch)
            assert since <= epoch and seen.setdefault((table, since), found) == found
    assert len(seen) < 240 * len(TABLES) * 0.5, "nothing stayed the same"


def test_deletions_count_that_no_file_shows_any_more(store):
    put(store, 1, 3, "a", "b")
    assert store.unchanged_since(3, epoch_of(1)) == epoch_of(1)
    delete(store, 2, 3, "b")
    store.compact()
    put(store, 3, 3)
    assert [info.tombstones for info in store.version.sstables] == [0]
    assert store.unchanged_since(3, epoch_of(3)) == epoch_of(2)
    delete(store, 4, 3, "a")
    store.compact()
    assert not list(store.version.sstables)
    assert store.unchanged_since(3, epoch_of(5)) == epoch_of(5)
    assert store.unchanged_since(3, epoch_of(4)) == epoch_of(4)


def test_a_process_that_reads_a_checkpoint_knows_of_no_change_before_it(store):
    put(store, 1, 3, "a")
    put(store, 2, 4, "a")
    checkpoint = HummockVersion.from_json(store.version.to_json())
    assert checkpoint.unchanged_since(3, epoch_of(2)) == epoch_of(2)
    assert checkpoint.unchanged_since(3, epoch_of(1)) == epoch_of(1)


def test_a_compaction_changes_nothing(store):
    for number in range(1, 6):
        put(store, number, 3, "a", "b")
    assert store.unchanged_since(3, epoch_of(5)) == epoch_of(5)
    put(store, 6, 4, "a")
    assert store.unchanged_since(3, epoch_of(6)) == epoch_of(5)
    before = {info.name for info in store.version.sstables}
    store.compact()
    assert {info.name for info in store.version.sstables} != before
    put(store, 7, 4)
    assert store.unchanged_since(3, epoch_of(7)) == epoch_of(5)
