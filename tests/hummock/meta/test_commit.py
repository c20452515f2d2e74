"""What a commit registers can be read again: other rules of tables are refused, and nothing has changed."""

import random

import numpy as np
import pytest

import hummock
from hummock.base.key import user_key
from hummock.base.key_watermark import KeyWatermark
from hummock.base.table_rules import KeyColumn, PrefixRule, TableRules, next_tables
from hummock.epoch import NEVER, OWN_EPOCHS
from hummock.errors import HummockError, InvalidEpoch, InvalidOption
from hummock.meta.store.memory import MemoryMetaStore
from hummock.object_store.memory import MemoryObjectStore
from tests.support.worlds.manager_parts import StandingClock, epoch_of, open_manager

ODD = (0.0, 0.5 * 86_400_000, True, -1, -4, 1 << 16, (1 << 16) + 1, 1 << 20, 1 << 32, 1 << 40, 1 << 64, "x", b"x", None,
       (), [], np.int64(3), float("nan"))
TABLE_IDS = (0, 1, (1 << 32) - 1)
SPOILT = 0.1                        # share of values that are odd ones
REFUSED = {
    "ttl_ms a fraction": lambda: TableRules(ttl_ms=0.5 * 86_400_000),
    "ttl_ms a truth": lambda: TableRules(ttl_ms=True),
    "ttl_ms negative": lambda: TableRules(ttl_ms=-1),
    "ttl_ms beyond 64 bits": lambda: TableRules(ttl_ms=1 << 64),
    "ttl_ms a word": lambda: TableRules(ttl_ms="x"),
    "vnode_count negative": lambda: TableRules(vnode_groups=4, vnode_count=-1),
    "vnode_count too great": lambda: TableRules(vnode_groups=4, vnode_count=1 << 20),
    "no vnodes": lambda: TableRules(vnode_count=0),
    "vnode_groups too great": lambda: TableRules(vnode_groups=1 << 40),
    "vnode_groups negative": lambda: TableRules(vnode_groups=-4),
    "no vnode_groups": lambda: TableRules(vnode_groups=0),
    "fixed_bytes too great": lambda: TableRules(PrefixRule(fixed_bytes=1 << 40)),
    "neither bytes nor columns": lambda: TableRules(PrefixRule()),
    "bytes and columns": lambda: TableRules(PrefixRule(7, (KeyColumn(1, 4),))),
    "columns in a list": lambda: TableRules(PrefixRule(columns=[KeyColumn(1, 4)])),
    "width negative": lambda: TableRules(PrefixRule(columns=(KeyColumn(1, -4),))),
    "null_tag beyond a byte": lambda: TableRules(PrefixRule(columns=(KeyColumn(300, 4),))),
    "null_tag negative": lambda: TableRules(PrefixRule(columns=(KeyColumn(-1, 4),))),
    "inverted a word": lambda: TableRules(PrefixRule(columns=(KeyColumn(1, 4, "no"),))),
    "a prefix that is none": lambda: TableRules(prefix=7),
    "vnodes that are fractions": lambda: TableRules(watermarks=(KeyWatermark(epoch_of(2), ((0.0, 0.5, b"m"),)),)),
    "a key that is text": lambda: TableRules(watermarks=(KeyWatermark(epoch_of(2), ((0, 0, "m"),)),)),
    "marks in a list": lambda: TableRules(watermarks=(KeyWatermark(epoch_of(2), [(0, 0, b"m")]),)),
    "an epoch that is none": lambda: TableRules(watermarks=(KeyWatermark("now", ((0, 0, b"m"),)),)),
    "a watermark that is none": lambda: TableRules(watermarks=(5,)),
    "rules that are none": lambda: 5,
}


@pytest.mark.parametrize("made", REFUSED.values(), ids=REFUSED)
def test_rules_that_nobody_could_read_again_are_refused_and_the_store_goes_on(tmp_path, made):
    url, key = f"file://{tmp_path}/store", user_key(1, 0, b"k")
    with hummock.open(url, role="writer", compaction=False) as store:
        store.commit(epoch_of(1), tables={1: TableRules(ttl_ms=9)})
        store.ingest_batch({key: b"v"}, epoch_of(2))
        version = store.version
        with pytest.raises(InvalidOption):
            store.commit(epoch_of(2), tables={1: made(), 2: TableRules(PrefixRule(8))})
        assert store.version is version
        store.ingest_batch({key: b"w"}, epoch_of(2))        # the epoch is not even sealed
        store.commit(epoch_of(2))
    with hummock.open(url) as store:
        assert store.version.tables == {1: TableRules(ttl_ms=9)} and store.get(key) == b"w"


@pytest.mark.parametrize("made", [lambda: KeyWatermark(epoch_of(2), ((0.0, 0.5, b"m"),)), lambda: 5, lambda: None])
@pytest.mark.parametrize("table_id", [1, "1", -1, 1 << 32, True])
def test_watermarks_that_nobody_could_read_again_are_refused(made, table_id):
    with hummock.open("memory://", compaction=False) as store:
        store.commit(epoch_of(1))
        with pytest.raises(InvalidOption):
            store.advance_watermark(table_id, made())
        store.commit(epoch_of(2))


@pytest.mark.parametrize("tables", [
    5, None, [(1, TableRules())], {"1": TableRules()}, {1 << 32: TableRules()}, {1: {}}])
def test_what_is_no_dict_of_rules_is_refused(tables):
    with hummock.open("memory://", compaction=False) as store:
        for call in (lambda: store.commit(epoch_of(1), tables=tables), lambda: store.announce_rules(tables),
                     lambda: store.meta_client.set_rules(store.session, tables)):
            with pytest.raises(InvalidOption):
                call()
        with pytest.raises(InvalidOption):
            store.commit(epoch_of(1), dropped_tables=["1"])
        store.commit(epoch_of(1))


def test_rules_that_avoid_the_checks_of_their_class_are_refused_before_the_transaction():
    """As those of a subclass, or of a process whose memory failed."""
    rules = TableRules(ttl_ms=5)
    object.__setattr__(rules, "ttl_ms", 5.0)
    manager = open_manager(MemoryMetaStore(), StandingClock(), object_store=MemoryObjectStore())
    session = manager.claim_writer()
    mark = KeyWatermark(epoch_of(1), ((0, 0, b"k"),))
    object.__setattr__(mark, "marks", ((0.0, 0.0, b"k"),))
    for call in (lambda: manager.commit_epoch(session, epoch_of(1), [], tables={1: rules}),
                 lambda: manager.commit_epoch(session, epoch_of(1), [], watermarks={1: mark}),
                 lambda: manager.set_rules(session, {1: rules})):
        with pytest.raises(InvalidOption):
            call()
    assert manager.refresh().id == 0


class AnyRules:
    """Random rules, some of which are none."""

    def __init__(self, seed):
        self.rng = random.Random(f"rules {seed}")

    def value(self, *usual):
        return self.rng.choice(ODD if self.rng.random() < SPOILT else usual)

    def table_id(self):
        found = self.value(*TABLE_IDS)
        return "a list" if isinstance(found, list) else found      # which no dict has as a key

    def column(self):
        return KeyColumn(self.value(0, 1, 255), self.value(0, 4, (1 << 32) - 1), self.value(True, False))

    def prefix(self):
        if self.rng.random() < 0.5:
            return PrefixRule(fixed_bytes=self.value(1, 9, (1 << 32) - 1))
        return PrefixRule(columns=tuple(self.column() for _ in range(self.rng.randint(1, 3))))

    def watermark(self, epoch):
        bounds = sorted(self.rng.sample(range(1 << 16), 4))
        marks = tuple((self.value(first), self.value(last), self.value(b"", b"key"))
                      for first, last in (bounds[:2], bounds[2:]))
        return KeyWatermark(self.value(epoch), marks, self.value(True, False))

    def rules(self, epoch):
        return TableRules(
            prefix=self.value(None) if self.rng.random() < 0.3 else self.prefix(),
            ttl_ms=self.value(0, 5, (1 << 64) - 1),
            watermarks=() if self.rng.random() < 0.5 else (self.watermark(epoch),),
            vnode_groups=self.value(1, 4, 1 << 16), vnode_count=self.value(1, 256, 1 << 16))


@pytest.mark.parametrize("seed", range(10))
def test_any_rules_are_refused_or_read_again_by_the_next_process(seed):
    made, meta_store, objects = AnyRules(seed), MemoryMetaStore(), MemoryObjectStore()
    manager = open_manager(meta_store, StandingClock(), object_store=objects)
    session, known, accepted = manager.claim_writer(), {}, 0
    for number in range(1, 60):
        before = manager.version
        try:
            table_id, rules = made.table_id(), made.rules(epoch_of(number))
            manager.commit_epoch(session, epoch_of(number), [], tables={table_id: rules})
        except HummockError as error:
            assert isinstance(error, InvalidOption | InvalidEpoch) and manager.refresh() is before
            continue
        accepted += 1
        known = next_tables(known, {table_id: rules}, NEVER)
        opened = open_manager(meta_store, StandingClock(), object_store=objects).version
        assert opened.tables == known and opened.max_committed_epoch == epoch_of(number)
    assert 5 < accepted < 59, "both happen"


@pytest.mark.parametrize("epoch", [OWN_EPOCHS, 1 << 63, (1 << 64) - (1 << 16)])
def test_an_epoch_after_which_there_are_none_is_refused_and_the_store_goes_on(tmp_path, epoch):
    url, key = f"file://{tmp_path}/store", user_key(1, 0, b"k")
    with hummock.open(url, role="writer", compaction=False) as store:
        for call in (lambda: store.commit(epoch), lambda: store.seal_epoch(epoch),
                     lambda: store.ingest_batch({key: b"v"}, epoch),
                     lambda: store.meta_client.commit_epoch(store.session, epoch, [])):
            with pytest.raises(InvalidEpoch, match="later ones"):
                call()
        assert store.committed_epoch == 0
        store.write({key: b"v"})
        store.commit(OWN_EPOCHS - (1 << 16))                # the last one that there is
    with hummock.open(url) as store:
        assert store.get(key) == b"v"
