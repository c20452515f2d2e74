"""Prefix filters: reads under a prefix skip files whose filters exclude it, and their answers do not change."""

from __future__ import annotations

import random
from itertools import count

import pyarrow as pa
import pytest

from hummock.base.key import KeyRange, user_key
from hummock.base.table_rules import KeyColumn, PrefixRule, TableRules
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch
from hummock.meta import MemoryMetaStore
from hummock.meta.hummock_manager import HummockManager
from hummock.object_store.base import sstable_data_path
from hummock.options import StorageOptions
from hummock.store.storage import HummockStorage
from tests.support.servers.counting_object_store import CountingObjectStore

COLUMN = KeyColumn(1, 2)
RULES = {1: TableRules(PrefixRule(8)), 2: TableRules(PrefixRule(columns=(COLUMN,)))}


def store_with_rules(rules=RULES, **options):
    objects = CountingObjectStore()
    manager = HummockManager(MemoryMetaStore(), objects)
    session = manager.claim_writer()
    manager.commit_epoch(session, Epoch(1 << 16), (), tables=rules)
    return HummockStorage(manager, objects, StorageOptions(**{"inline_bytes": 0, **options}), session=session)


def group_key(rng, groups):
    """A key of one of `groups` groups of table 1 or 2; occasionally one that is too short for a prefix."""
    table = rng.choice((1, 1, 2))
    group = rng.randrange(groups).to_bytes(2, "big")
    if rng.random() < 0.05:
        return user_key(table, 0, group[:1])
    return user_key(table, 0, (b"\x00" if table == 2 else b"") + group + b"%03d" % rng.randrange(30))


def answers(store, prefixes, epoch, rng):
    options = {"reverse": rng.random() < 0.5, "limit": rng.choice((None, 1, 3))}
    owners, batch = store.scan_prefixes(pa.array(prefixes, pa.binary()), epoch, **options)
    scans = []
    for prefix in prefixes[:5]:
        within = KeyRange.prefix(prefix)
        narrowed = KeyRange(prefix + rng.choice((b"", b"010")), rng.choice((within.end, prefix + b"020")))
        with store.scan(narrowed, epoch, **options) as rows:
            scans.append(list(rows))
    return owners.tolist(), list(batch), scans


@pytest.mark.parametrize("seed", range(12))
def test_answers_are_those_without_filters(seed):
    rng = random.Random(seed)
    sizes = {"block_bytes": rng.choice((1, 200, 1 << 16)), "sstable_bytes": rng.choice((400, 1 << 20))}
    stores = [store_with_rules(filter_policy=policy, **sizes) for policy in ("blocked_bloom", "pybloom", "none")]
    groups = rng.choice((5, 60, 400))
    for number in range(2, 9):
        keys = sorted({group_key(rng, groups) for _ in range(rng.choice((1, 20, 80)))})
        batch = WriteBatch([(key, None if rng.random() < 0.2 else rng.randbytes(5)) for key in keys])
        for store in stores:
            store.ingest_batch(batch, Epoch(number << 16))
            if number != 8:
                store.commit(Epoch(number << 16))
        for _ in range(4):
            prefixes = [group_key(rng, groups)[: rng.choice((6, 8, 8, 9, 9, 12))] for _ in range(rng.choice((1, 30)))]
            epoch, state = Epoch(rng.randint(1, number + 1) << 16), rng.getstate()
            found = []
            for store in stores:
                rng.setstate(state)
                found.append(answers(store, prefixes, epoch, rng))
            assert found[0] == found[2], (prefixes, epoch)
            assert found[1] == found[2], (prefixes, epoch)
    for store in stores:
        store.close()


@pytest.fixture
def eight_runs():
    """One run for each of eight groups, all of which span the same keys."""
    store, numbers = store_with_rules(), count(2)
    for group in range(8):
        epoch = Epoch(next(numbers) << 16)
        rows = [(user_key(1, 0, b"\x00\x00"), b""), (user_key(1, 0, b"\xff\xff"), b"")]
        rows += [(user_key(1, 0, bytes([1, group]) + b"%03d" % n), b"%d" % n) for n in range(100)]
        store.ingest_batch(WriteBatch(sorted(rows)), epoch)
        store.commit(epoch)
    yield store, epoch
    store.close()


def data_reads(store):
    return store._sstable_store.object_store.data_reads


def test_a_scan_under_a_prefix_reads_the_files_that_hold_it(eight_runs):
    store, epoch = eight_runs
    with store.scan(KeyRange.prefix(user_key(1, 0, b"\x01\x05")), epoch) as rows:
        assert len(list(rows)) == 100
    holding = [info.name for info in store.version.sstables][2]
    assert data_reads(store) == [sstable_data_path(holding)]


def test_a_narrower_range_is_filtered_and_a_wider_one_is_not(eight_runs):
    store, epoch = eight_runs
    with store.scan(KeyRange(user_key(1, 0, b"\x01\x05010"), user_key(1, 0, b"\x01\x05020")), epoch) as rows:
        assert len(list(rows)) == 10
    assert len(data_reads(store)) == 1
    with store.scan(KeyRange(user_key(1, 0, b"\x01\x04"), user_key(1, 0, b"\x01\x06")), epoch) as rows:
        assert len(list(rows)) == 200
    assert len(set(data_reads(store))) == 8


def test_prefixes_that_no_file_holds_read_nearly_no_data(eight_runs):
    store, epoch = eight_runs
    absent = pa.array([user_key(1, 0, bytes([2, group])) for group in range(20)], pa.binary())
    owners, rows = store.scan_prefixes(absent, epoch)
    assert (len(owners), len(rows)) == (0, 0)
    assert len(data_reads(store)) <= 3  # of 160 filter probes


def test_files_record_the_rules_that_they_were_built_under(eight_runs):
    store, _ = eight_runs
    assert {info.prefixes for info in store.version.sstables} == {((1, PrefixRule(8)),)}


def test_files_have_the_prefixes_of_rules_that_enter_with_their_own_commit():
    """So the rows that a new view begins with are filtered too."""
    rows = WriteBatch([(user_key(table, 0, b"\x01%03d" % number), b"") for table in (1, 3) for number in range(9)])
    with store_with_rules(rules={}) as store:
        store.announce_rules({1: RULES[1], 2: RULES[2], 3: TableRules(ttl_ms=5)})
        store.ingest_batch(rows, Epoch(2 << 16))
        store.commit(Epoch(2 << 16), tables={1: RULES[1]})
        assert [info.prefixes for info in store.version.sstables] == [((1, RULES[1].prefix),)]
        store.commit(Epoch(3 << 16), tables={1: None}, dropped_tables=[2])
        store.ingest_batch(rows, Epoch(4 << 16))
        store.commit(Epoch(4 << 16))
        assert next(iter(store.version.sstables)).prefixes == (), "the version's rules, not those announced before"
