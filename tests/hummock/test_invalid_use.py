"""P12: what may not be done is refused by name, and nothing has changed: one table, every StateStore."""

from __future__ import annotations

import pytest

import hummock
from hummock.epoch import Epoch
from hummock.errors import InvalidEpoch, InvalidWriteBatch, WaitEpochTimeout
from hummock.key import KeyRange
from hummock.memory_store import MemoryStateStore
from hummock.write_batch import WriteBatch

E1, E2, E3, E4, E5 = (Epoch(number << 16) for number in range(1, 6))
EVERYTHING = KeyRange(b"", None)
STORES = {
    "the model": MemoryStateStore,
    "in memory": lambda: hummock.open("memory://"),
    "retaining": lambda: hummock.open("memory://", retained_epochs=2),
    "flushing": lambda: hummock.open("memory://", shared_buffer_bytes=1),
}


def put(store, epoch, *pairs, **how):
    store.ingest_batch(WriteBatch(list(pairs)), epoch, **how)


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
    "a write past all epochs": (InvalidEpoch, lambda store: put(store, Epoch(1 << 64), (b"a", b"x"))),
    "a write at a negative epoch": (InvalidEpoch, lambda store: put(store, Epoch(-65536), (b"a", b"x"))),
    "a write at what is no number": (InvalidEpoch, lambda store: put(store, "now", (b"a", b"x"))),
    "a write at a truth": (InvalidEpoch, lambda store: put(store, True, (b"a", b"x"))),
    "a seal below the sealed epoch": (InvalidEpoch, lambda store: store.seal_epoch(E2)),
    "a seal at a spill offset": (InvalidEpoch, lambda store: store.seal_epoch(Epoch(E4 + 1))),
    "a sync of an open epoch": (InvalidEpoch, lambda store: store.sync(E4)),
    "a commit of a committed epoch": (InvalidEpoch, lambda store: store.commit(E2)),
    "a commit below it": (InvalidEpoch, lambda store: store.commit(E1)),
    "a commit at a spill offset": (InvalidEpoch, lambda store: store.commit(Epoch(E4 + 1))),
    "a wait for what nobody committed": (WaitEpochTimeout, lambda store: store.wait_epoch(E3, 1)),
}


def picture(store):
    """All that a reader can see."""
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
    before = picture(store)
    for _ in range(2):
        with pytest.raises(error):
            call(store)
        assert picture(store) == before
    put(store, E4, (b"a", b"4"))
    store.commit(E4)
    assert list(store.scan(EVERYTHING, E4)) == [(b"a", b"4"), (b"b", b"1"), (b"c", b"3"), (b"d", b"4")]
    assert list(store.scan(EVERYTHING, E2)) == [(b"a", b"2"), (b"b", b"1")]
