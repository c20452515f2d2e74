"""[P12]: every StateStore refuses invalid calls with a named error and leaves its state unchanged."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import hummock
from hummock.base.key import KeyRange, user_key
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import MAX_EPOCH, Epoch
from hummock.errors import InvalidEpoch, InvalidKey, InvalidOption, InvalidWriteBatch, RoleMissing, WaitEpochTimeout
from hummock.options import CompactionOptions
from hummock.store.memory_store import MemoryStateStore

E1, E2, E3, E4, E5 = (Epoch(number << 16) for number in range(1, 6))
EVERYTHING = KeyRange(b"", None)
KEPT = CompactionOptions(history_ms=1 << 40)
STORES = {
    "the model": MemoryStateStore,
    "in memory": lambda: hummock.open("memory://", compaction=KEPT),
    "flushing": lambda: hummock.open("memory://", shared_buffer_bytes=1, compaction=KEPT),
}


def put(store, epoch, *pairs, **options):
    store.ingest_batch(WriteBatch(list(pairs)), epoch, **options)


# E2 is committed, E3 sealed and synced, E4 open and written to
USES = {
    "an unsorted batch": (InvalidWriteBatch, lambda store: put(store, E4, (b"b", b"x"), (b"a", b"x"))),
    "a key twice": (InvalidWriteBatch, lambda store: put(store, E4, (b"a", b"x"), (b"a", None))),
    "a null key": (InvalidWriteBatch, lambda store: put(store, E4, (None, b"x"))),
    "a write into a committed epoch": (InvalidEpoch, lambda store: put(store, E2, (b"a", b"x"))),
    "a write below it": (InvalidEpoch, lambda store: put(store, E1, (b"a", b"x"))),
    "a write into a sealed epoch": (InvalidEpoch, lambda store: put(store, E3, (b"a", b"x"))),
    "a local write into it": (InvalidEpoch, lambda store: put(store, E3, (b"a", b"x"), local_only=True)),
    "a write at no epoch": (InvalidEpoch, lambda store: put(store, Epoch(0), (b"a", b"x"))),
    "a write at a spill offset": (InvalidEpoch, lambda store: put(store, Epoch(E4 + 1), (b"a", b"x"))),
    "a seal below the sealed epoch": (InvalidEpoch, lambda store: store.seal_epoch(E2)),
    "a seal at a spill offset": (InvalidEpoch, lambda store: store.seal_epoch(Epoch(E4 + 1))),
    "a sync of an open epoch": (InvalidEpoch, lambda store: store.sync(E4)),
    "a commit of a committed epoch": (InvalidEpoch, lambda store: store.commit(E2)),
    "a commit below it": (InvalidEpoch, lambda store: store.commit(E1)),
    "a commit at a spill offset": (InvalidEpoch, lambda store: store.commit(Epoch(E4 + 1))),
    "a wait for what nobody committed": (WaitEpochTimeout, lambda store: store.wait_epoch(E3, 1)),
}
NO_EPOCHS = {"negative": -1, "past all": 1 << 64, "a fraction": 1.5, "a truth": True, "a word": "now", "nothing": None}
KEYS = pa.array([b"a"], pa.binary())
READS = {
    "get": lambda store, epoch: store.get(b"a", epoch),
    "get_many": lambda store, epoch: store.get_many(KEYS, epoch),
    "get_many of no key": lambda store, epoch: store.get_many(KEYS[:0], epoch),
    "scan": lambda store, epoch: list(store.scan(EVERYTHING, epoch)),
    "scan_prefixes": lambda store, epoch: store.scan_prefixes(KEYS, epoch),
    "scan_many": lambda store, epoch: store.scan_many(KEYS, epoch),
}
NEWEST_BY_DEFAULT = {"get", "get_many", "get_many of no key", "scan"}
USES |= {f"{read} at what is {kind}": (InvalidEpoch, lambda store, call=call, epoch=epoch: call(store, epoch))
         for read, call in READS.items() for kind, epoch in NO_EPOCHS.items()
         if epoch is not None or read not in NEWEST_BY_DEFAULT}
RANGES = {"a tuple": (b"a", b"b"), "nothing": None, "a key": b"a", "of text": KeyRange("a", "b")}
USES |= {f"a {read} whose range is {kind}": (InvalidOption, lambda store, call=call, key_range=key_range: call(
             store, key_range))
         for read, call in (("scan", lambda store, key_range: store.scan(key_range, E2)),
                            ("change feed", lambda store, key_range: store.changes(key_range, E1, E2)))
         for kind, key_range in RANGES.items()}
USES |= {f"a scan of {limit!r} rows": (InvalidOption, lambda store, limit=limit: store.scan(limit=limit))
         for limit in ("x", -1, 1.5)}
USES |= {f"a write at what is {kind}": (InvalidEpoch, lambda store, epoch=epoch: put(store, epoch, (b"a", b"x")))
         for kind, epoch in NO_EPOCHS.items()}
WRITES = {
    "ingest_batch": lambda store: put(store, E3, (b"a", b"x")),
    "an empty ingest_batch": lambda store: put(store, E3),
    "seal_epoch": lambda store: store.seal_epoch(E3),
    "sync": lambda store: store.sync(E3),
    "commit": lambda store: store.commit(E3),
}


def test_an_epoch_or_limit_may_be_any_integer(store):
    for number in (np.int64, np.uint64):
        assert list(store.scan(EVERYTHING, number(E1), limit=number(1))) == [(b"a", b"1")]
        assert store.get(b"a", number(E1)) == b"1" and store.get(b"a", number(E2)) == b"2"
        assert list(store.changes(EVERYTHING, number(E1), number(E2))) == [(b"a", b"1", b"2")]
        store.wait_epoch(number(E2))
    put(store, np.int64(E4), (b"e", b"4"))
    store.seal_epoch(np.int64(E4))
    store.sync(np.int64(E4))
    store.commit(np.int64(E4))
    assert store.committed_epoch == E4 and type(store.committed_epoch) is int
    put(store, E5, (b"e", b"5"))
    store.commit(E5)


def visible_state(store):
    """The committed epoch, and the rows at each epoch."""
    return [store.committed_epoch, *(list(store.scan(EVERYTHING, epoch)) for epoch in (E1, E2, E3, E4, E5))]


@pytest.fixture(params=STORES)
def store(request):
    store = STORES[request.param]()
    put(store, E1, (b"a", b"1"), (b"b", b"1"))
    put(store, E2, (b"a", b"2"))
    store.commit(E2)
    put(store, E3, (b"a", b"3"), (b"c", b"3"))
    store.seal_epoch(E3)
    store.sync(E3)
    put(store, E4, (b"a", None), (b"d", b"4"))
    yield store
    store.close()


@pytest.mark.parametrize("use", USES)
def test_it_is_refused_and_nothing_has_changed(store, use):
    error, call = USES[use]
    before = visible_state(store)
    for _ in range(2):
        with pytest.raises(error):
            call(store)
        assert visible_state(store) == before
    put(store, E4, (b"a", b"4"))
    store.commit(E4)
    assert list(store.scan(EVERYTHING, E4)) == [(b"a", b"4"), (b"b", b"1"), (b"c", b"3"), (b"d", b"4")]
    assert list(store.scan(EVERYTHING, E2)) == [(b"a", b"2"), (b"b", b"1")]


@pytest.fixture
def opened(tmp_path):
    """A writer that has committed E1 and written into E2, and a reader that knows E1."""
    url = f"file://{tmp_path}/store"
    with hummock.open(url, role="writer", compaction=False) as writer:
        put(writer, E1, (b"a", b"1"))
        writer.commit(E1)
        put(writer, E2, (b"a", b"2"))
        with hummock.open(url, refresh_ms=3_600_000) as reader:
            yield writer, reader


@pytest.mark.parametrize("write", WRITES)
def test_a_reader_writes_nothing(opened, write):
    writer, reader = opened
    for _ in range(2):
        with pytest.raises(RoleMissing, match='open it with role="writer"'):
            WRITES[write](reader)
    writer.commit(E2)
    reader.wait_epoch(E2)
    assert list(reader.scan(EVERYTHING, E2)) == list(writer.scan(EVERYTHING, E2)) == [(b"a", b"2")]


@pytest.mark.parametrize("read", READS)
def test_a_reader_does_not_read_above_the_committed_epoch_that_it_knows(opened, read):
    writer, reader = opened
    last = Epoch(E1 | 0xFFFF)                   # the highest spill offset of E1
    for is_committed in (False, True):
        for epoch in (Epoch(last + 1), E2, MAX_EPOCH):
            with pytest.raises(InvalidEpoch, match="wait_epoch"):
                READS[read](reader, epoch)
        READS[read](reader, E1)
        READS[read](reader, last)
        if not is_committed:
            assert writer.get(b"a", E2) == writer.get(b"a", MAX_EPOCH) == b"2"      # a writer reads its own writes
            writer.commit(E2)
    reader.wait_epoch(E2)
    READS[read](reader, E2)
    assert reader.get(b"a", E2) == b"2" and reader.get(b"a", E1) == b"1"
    with pytest.raises(InvalidEpoch, match="wait_epoch"):
        READS[read](reader, E3)


@pytest.mark.parametrize("parts", [
    (1.5, 0, b""), (-1, 0, b""), (1 << 32, 0, b""), (None, 0, b""), (0, 1.5, b""), (0, 1 << 16, b""), (0, -1, b""),
    (0, 0, "text"), (0, 0, None)], ids=repr)
def test_what_makes_no_key_is_refused(parts):
    with pytest.raises(InvalidKey) as refusal:
        user_key(*parts)
    assert refusal.value.args == parts
