"""A failed scan stays failed: after an error no method of it returns rows, or an end before the last row."""

from __future__ import annotations

import random

import pytest

from hummock.base.key import KeyRange
from hummock.errors import ObjectStoreError, StoreClosed
from tests.support.drivers.seeds import amount, run_seed
from tests.support.servers.object_store_faults import FaultyObjectStore
from tests.support.worlds.failing_reads import BEFORE, NEWEST, failing_reads

EVERYTHING = KeyRange()
SCANS = {
    "batches": lambda scan: scan.next_batch(),
    "batches of a few rows": lambda scan: scan.next_batch(7),
    "large batches": lambda scan: [row for batch in scan.next_batches() for row in batch],
    "rows": list,
    "a table": lambda scan: scan.to_arrow().to_pylist(),
}
FEEDS = {
    "batches": lambda feed: feed.next_batch(),
    "batches of a few rows": lambda feed: feed.next_batch(7),
    "rows": list,
}
READS = {
    "a scan": (SCANS, lambda store: store.scan(EVERYTHING, NEWEST)),
    "a scan in reverse": (SCANS, lambda store: store.scan(EVERYTHING, NEWEST, reverse=True)),
    "changes": (FEEDS, lambda store: store.changes(EVERYTHING, BEFORE, NEWEST)),
}
CASES = [(name, face) for name, (faces, _) in READS.items() for face in faces]


def fails_again(read, faces, words):
    for use in faces.values():
        for _ in range(2):
            with pytest.raises(StoreClosed, match=words):
                use(read)


@pytest.mark.parametrize(("name", "face"), CASES)
def test_a_failed_scan_stays_failed(name, face):
    rng = random.Random(f"{run_seed()} {name} {face}")
    faces, opened = READS[name]
    for _ in range(amount(3, 30)):
        with failing_reads(rng) as world:
            store = world.snapshot()
            expected = list(opened(store))
            assert len(expected) == len(world.rows)
            reads = world.reads
            for fails in rng.sample(range(reads), min(reads, 6)):
                store, seen = world.snapshot(fails), []
                read = opened(store)
                with pytest.raises(ObjectStoreError, match="injected fault"):
                    while rows := faces[face](read):
                        seen += rows
                assert len(seen) < len(expected) and seen == expected[:len(seen)]
                fails_again(read, faces, "injected fault" if face != "a table" else "ObjectStoreError")
                assert repr(read).endswith("(closed)")
                assert list(opened(store)) == expected
                read.close()
                fails_again(read, faces, "injected fault")


@pytest.mark.parametrize("error", [MemoryError("short"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("name", READS)
def test_so_does_one_that_no_error_of_the_store_has_ended(name, error, monkeypatch):
    rng = random.Random(f"{run_seed()} {name} {error!r}")
    faces, opened = READS[name]
    with failing_reads(rng) as world:
        store = world.snapshot()
        read = opened(store)
        taken = len(read.next_batch(3))

        def fail(*given):
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(FaultyObjectStore, "get", fail)
            with pytest.raises(type(error)):
                while rows := read.next_batch():
                    taken += len(rows)
        assert taken < len(world.rows)
        fails_again(read, faces, type(error).__name__)
        assert len(list(opened(store))) == len(world.rows)


@pytest.mark.parametrize("name", READS)
def test_a_limit_of_a_wrong_type_ends_no_scan(name):
    _, opened = READS[name]
    with failing_reads(random.Random(run_seed())) as world:
        read = opened(world.snapshot())
        for wrong in (1.5, "7"):
            with pytest.raises(TypeError):
                read.next_batch(wrong)
        assert not read.next_batch(0)
        assert len(read.next_batch(1 << 70)) + len(list(read)) == len(world.rows)
