"""Watermarks between the barriers and the commits: none early, none lost, few records."""

import random
from itertools import pairwise

import pytest

from hummock.base.key import KeyRange, user_key
from hummock.base.key_watermark import KeyWatermark
from hummock.base.table_rules import PrefixRule, TableRules, next_tables
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch
from hummock.errors import InvalidEpoch
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.store.memory import MemoryMetaStore
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import StorageOptions
from hummock.store.pending_watermarks import PendingWatermarks
from hummock.store.storage import HummockStorage

VNODES = 8


def epoch_of(number):
    return Epoch(number << 16)


def mark(number, first, last, key):
    return KeyWatermark(epoch_of(number), ((first, last, key),))


class Version:
    """What commits have registered, as versions keep it."""

    def __init__(self):
        self.tables, self.records = {}, []

    def commit(self, pending, number):
        found = pending.due(epoch_of(number), self.tables)
        changes = {table_id: TableRules(watermarks=(found[table_id],)) for table_id in found}
        self.tables = next_tables(self.tables, changes, epoch_of(number))
        self.records += found and [number]
        pending.advance(self.tables, ())
        return found


def test_actors_of_one_barrier_make_one_watermark_of_all_their_vnodes():
    pending, version = PendingWatermarks(0), Version()
    for first in (4, 0):
        pending.add(7, mark(1, first, first + 3, b"k"))
    assert version.commit(pending, 1) == {7: mark(1, 0, 7, b"k")} and len(pending) == 0
    assert version.commit(pending, 2) == {}


def test_a_barrier_that_is_no_checkpoint_leaves_its_watermarks_to_the_next_one():
    pending = PendingWatermarks(0)
    pending.add(7, mark(1, 0, 3, b"a"))
    pending.add(7, mark(2, 0, 1, b"b"))
    assert Version().commit(pending, 3) == {7: KeyWatermark(epoch_of(3), ((0, 1, b"b"), (2, 3, b"a")))}


def test_watermarks_of_later_barriers_are_not_in_an_earlier_commit():
    """An actor may pass barrier 2 before the last one has passed barrier 1: epoch 1 still needs the rows."""
    pending, version = PendingWatermarks(0), Version()
    pending.add(7, mark(2, 0, 3, b"b"))
    pending.add(7, mark(1, 4, 7, b"a"))
    assert version.commit(pending, 1) == {7: mark(1, 4, 7, b"a")}
    assert version.commit(pending, 2) == {7: mark(2, 0, 3, b"b")}


def test_a_commit_that_does_not_happen_loses_none():
    pending = PendingWatermarks(5)
    pending.add(7, mark(1, 0, 7, b"a"))
    assert pending.due(epoch_of(1), {}) == pending.due(epoch_of(1), {}) == {7: mark(1, 0, 7, b"a")}
    assert pending.due(epoch_of(5), {}) == {}
    assert pending.due(epoch_of(6), {}) == {7: mark(6, 0, 7, b"a")}
    pending.clear()
    assert pending.due(epoch_of(3), {}) == {} and len(pending) == 0


def test_a_table_registers_at_most_every_interval():
    pending, version, taken = PendingWatermarks(interval_ms=5), Version(), []
    for number in range(1, 21):
        pending.add(7, mark(number, 0, 7, b"%02d" % number))
        taken += [(number, found[7]) for found in [version.commit(pending, number)] if found]
        assert len(pending) <= 1
    assert taken == [(number, mark(number, 0, 7, b"%02d" % number)) for number in (1, 6, 11, 16)]
    assert version.commit(pending, 21) == {7: mark(21, 0, 7, b"20")}
    again = PendingWatermarks(interval_ms=5)                    # of the process after this one
    again.add(7, mark(22, 0, 7, b"30"))
    assert version.commit(again, 22) == {} and version.commit(again, 26)


def test_a_dropped_table_has_none():
    pending = PendingWatermarks(0)
    pending.add(7, mark(1, 0, 7, b"a"))
    pending.add(8, mark(1, 0, 7, b"a"))
    pending.advance({}, {7})
    assert set(pending.due(epoch_of(1), {})) == {8}


@pytest.mark.parametrize("is_descending", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_each_commit_has_the_furthest_keys_up_to_its_epoch(seed, is_descending):
    rng = random.Random(f"{seed} {is_descending}")
    interval = rng.choice((0, 3))
    pending, version = PendingWatermarks(interval), Version()
    owners = [rng.randrange(3) for _ in range(VNODES)]
    passed, level, seen = [0, 0, 0], [0, 0, 0], {}      # per actor: the last barrier that it passed, its watermark
    for number in range(1, 40):
        while min(passed) < number:                     # an actor may be two barriers ahead of another
            actor = rng.choice([one for one in range(3) if passed[one] < number + 2])
            passed[actor] += 1
            level[actor] += rng.randrange(3)
            key = b"%03d" % (500 - level[actor] if is_descending else 500 + level[actor])
            vnodes = [vnode for vnode in range(VNODES) if owners[vnode] == actor]
            if vnodes and rng.random() < 0.8:
                pending.add(7, KeyWatermark.of(epoch_of(passed[actor]), dict.fromkeys(vnodes, key), is_descending))
                for vnode in vnodes:
                    seen.setdefault(vnode, []).append((passed[actor], key))
        if rng.random() < 0.4:
            continue                                    # no checkpoint
        found = version.commit(pending, number).get(7)
        if found is None:
            continue
        newest = version.tables[7].watermarks[0]
        assert found.epoch == newest.epoch == epoch_of(number) and found.is_descending == is_descending
        further = min if is_descending else max
        wanted = {vnode: further(key for at, key in keys if at <= number) for vnode, keys in seen.items()
                  if any(at <= number for at, _ in keys)}
        assert {vnode: newest.key_of(vnode) for vnode in wanted} == wanted
    assert all(later - earlier >= interval for earlier, later in pairwise(version.records))


@pytest.fixture
def store():
    objects = MemoryObjectStore()
    manager = HummockManager(MemoryMetaStore(), objects)
    options = StorageOptions(watermark_interval_ms=0)
    with HummockStorage(manager, objects, options, session=manager.claim_writer()) as store:
        yield store


def keys_of(store, epoch):
    with store.scan(KeyRange(b"", None), epoch) as rows:
        return [key[6:] for key, _ in rows]


def test_a_sync_names_the_watermarks_for_the_commit_of_its_files(store):
    store.meta_client.commit_epoch(store.session, epoch_of(1), (), tables={7: TableRules(PrefixRule(7))})
    store.ingest_batch(WriteBatch([(user_key(7, 0, key), b"") for key in (b"a", b"b", b"c")]), epoch_of(2))
    store.advance_watermark(7, mark(2, 0, 255, b"b"))
    store.advance_watermark(7, mark(3, 0, 255, b"c"))
    store.seal_epoch(epoch_of(2))
    with pytest.raises(InvalidEpoch):
        store.advance_watermark(7, mark(2, 0, 0, b"c"))
    synced = store.sync(epoch_of(2))
    assert synced.watermarks == {7: mark(2, 0, 255, b"b")}
    store.meta_client.commit_epoch(store.session, epoch_of(2), synced.sstables, watermarks=synced.watermarks)
    assert keys_of(store, epoch_of(2)) == [b"b", b"c"]
    assert store.version.tables[7].prefix == PrefixRule(7)
    store.commit(epoch_of(3))
    assert keys_of(store, epoch_of(3)) == [b"c"] and keys_of(store, epoch_of(2)) == [b"b", b"c"]
    assert store.sync(epoch_of(3)).watermarks == {}


def test_a_recovery_forgets_watermarks(store):
    store.advance_watermark(7, mark(1, 0, 255, b"b"))
    store.clear_uncommitted()
    store.commit(epoch_of(1))
    assert store.version.tables == {}
