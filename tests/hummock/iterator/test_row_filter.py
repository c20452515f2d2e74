"""Rows hidden by a time to live or a key watermark are hidden from every read, compacted or not."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from hummock.base.key import KeyRange, user_key
from hummock.base.key_watermark import KeyWatermark
from hummock.base.table_rules import TableRules
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch
from hummock.iterator.batch_collector import BatchCollector
from hummock.iterator.merge import MergeIterator
from hummock.iterator.row_filter import RowRules
from hummock.iterator.user import UserIterator
from hummock.meta import MemoryMetaStore
from hummock.meta.hummock_manager import HummockManager
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import StorageOptions
from hummock.pipeline.retention import RetentionIterator
from hummock.store.storage import HummockStorage
from tests.support.suites.entry_cases import iterator_of

EVERYTHING = KeyRange(b"", None)
VNODES = 3


def some_key(rng):
    key = user_key(rng.randint(1, 4), rng.randrange(VNODES), b"%02d" % rng.randrange(12) + rng.choice((b"", b"x")))
    return key if rng.random() < 0.97 else key[: rng.randint(0, 7)]


def some_rules(rng, passed=range(1, 16)):
    """Rules of tables 1 to 3; none of table 4. Newer watermarks hide more keys."""
    tables = {}
    for table in (1, 2, 3):
        is_descending = rng.random() < 0.4
        marks = []
        epochs = sorted(rng.sample(passed, rng.choice((0, 1, 3))))
        for step, epoch in enumerate(epochs):
            vnodes = sorted(rng.sample(range(VNODES), rng.randint(1, VNODES))) if len(epochs) == 1 else range(VNODES)
            bound = 9 - 3 * step if is_descending else 3 * step + 1
            keys = {vnode: rng.choice((b"%02d", b"%02dw")) % bound for vnode in vnodes}
            marks.append(KeyWatermark.of(Epoch(epoch << 16), keys, is_descending))
        tables[table] = TableRules(None, rng.choice((0, 2, 5)), tuple(reversed(marks)))
    return tables


def is_hidden(tables, key, written, epoch):
    """The rule in plain Python, on milliseconds and keys."""
    rules = tables.get(int.from_bytes(key[:4].ljust(4, b"\0"), "big"))
    if rules is None:
        return False
    if rules.ttl_ms and written >> 16 < (epoch >> 16) - rules.ttl_ms:
        return True
    mark = next((mark for mark in rules.watermarks if mark.epoch <= epoch), None)
    bound = mark.key_of(int.from_bytes(key[4:6].ljust(2, b"\0"), "big")) if mark is not None else None
    if bound is None or len(key) < 6:
        return False
    return key[6:] > bound and not key[6:].startswith(bound) if mark.is_descending else key[6:] < bound


def seen(entries, tables, epoch):
    """What a reader at `epoch` sees of (key, epoch, value) in full key order."""
    newest = {}
    for key, written, value in entries:
        if written <= epoch | 0xFFFF and key not in newest:
            newest[key] = (written, value)
    return [(key, value) for key, (written, value) in sorted(newest.items())
            if value is not None and not is_hidden(tables, key, written, epoch)]


def collected(child, epoch, rules):
    collector, out = BatchCollector(UserIterator(child, b"", None, epoch, rules=rules)), []
    while (batch := collector.next_batch(50, 1 << 20)) is not None:
        out += list(batch)
    return out


@pytest.mark.parametrize("seed", range(40))
def test_a_compaction_drops_nothing_that_a_reader_above_its_watermark_sees(seed):
    rng = random.Random(seed)
    tables = some_rules(rng)
    rules = RowRules(tables)
    found = {(some_key(rng), rng.randint(1, 15) << 16): rng.choice((None, b"a", b"b", b"c")) for _ in range(300)}
    entries = sorted(((key, epoch, value) for (key, epoch), value in found.items()), key=lambda e: (e[0], -e[1]))
    runs = [[entry for entry in entries if entry[1] >> 16 in epochs] for epochs in (range(8, 16), range(8))]
    for watermark in (0, rng.randint(1, 12)):
        kept = list(RetentionIterator(
            MergeIterator([iterator_of(run) for run in runs]), watermark << 16, True, (), tables).entries())
        for epoch in range(max(1, watermark), 17):
            expected = seen(entries, tables, epoch << 16)
            assert collected(MergeIterator([iterator_of(run) for run in runs]), epoch << 16, rules) == expected
            assert collected(iterator_of(kept), epoch << 16, rules) == expected, (watermark, epoch)


@pytest.mark.parametrize("seed", range(10))
def test_every_read_of_a_store_hides_what_the_rules_hide(seed):
    rng = random.Random(seed)
    tables, objects = some_rules(rng, range(14, 19)), MemoryObjectStore()
    manager = HummockManager(MemoryMetaStore(), objects)
    session = manager.claim_writer()
    options = StorageOptions(block_bytes=rng.choice((1, 150, 4_000)), sstable_bytes=rng.choice((300, 1 << 20)))
    entries = []
    with HummockStorage(manager, objects, options, session=session) as store:
        for number in range(2, 13):
            keys = sorted({some_key(rng) for _ in range(rng.choice((1, 30, 80)))})
            batch = [(key, rng.choice((None, b"a", b"bb", b"ccc"))) for key in keys]
            store.ingest_batch(WriteBatch(batch), Epoch(number << 16))
            entries += [(key, number << 16, value) for key, value in batch]
            if rng.random() < 0.7:
                store.commit(Epoch(number << 16))
        store.commit(Epoch(13 << 16))
        manager.commit_epoch(session, Epoch(19 << 16), (), tables=tables)
        entries.sort(key=lambda entry: (entry[0], -entry[1]))
        for epoch in (Epoch(number << 16) for number in range(2, 22)):
            expected = seen(entries, tables, epoch)
            values = dict(expected)
            keys = [key for key, _, _ in entries]
            column = store.get_many(pa.array(keys, pa.binary()), epoch)
            assert column.to_arrow().to_pylist() == list(map(values.get, keys))
            assert [store.get(key, epoch) for key in keys[:50]] == list(map(values.get, keys[:50]))
            for reverse in (False, True):
                with store.scan(EVERYTHING, epoch, reverse=reverse) as rows:
                    assert list(rows) == (expected[::-1] if reverse else expected)
                prefixes = [user_key(table, vnode, b"") for table in range(1, 5) for vnode in range(VNODES)]
                _, found = store.scan_prefixes(pa.array(prefixes, pa.binary()), epoch, reverse=reverse)
                assert sorted(found) == [row for row in expected if len(row[0]) >= 6]
            owners, found = store.scan_many(pa.array([b"", prefixes[4]], pa.binary()), epoch)
            assert list(found)[: (owners == 0).sum()] == expected
        for since, until in ((rng.randint(2, 21), rng.randint(2, 21)) for _ in range(60)):
            since, until = sorted((Epoch(since << 16), Epoch(until << 16)))
            before, after = dict(seen(entries, tables, since)), dict(seen(entries, tables, until))
            keys = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
            with store.changes(EVERYTHING, since, until) as feed:
                assert list(feed) == [(key, before.get(key), after.get(key)) for key in keys]


def test_rules_are_asked_one_row_at_a_time():
    tables = {7: TableRules(None, 10, (KeyWatermark(Epoch(5 << 16), ((0, 0, b"k"),)),))}
    rules = RowRules(tables)
    key = user_key(7, 0, b"a")
    assert not rules.hides_row(key, 1 << 16, 4 << 16)
    assert rules.hides_row(key, 1 << 16, 5 << 16)
    assert not rules.hides_row(user_key(7, 1, b"a"), 1 << 16, 5 << 16)
    assert rules.hides_row(user_key(7, 1, b"a"), 1 << 16, 12 << 16)
    assert not rules.hides_row(user_key(8, 0, b"a"), 1 << 16, 99 << 16)
