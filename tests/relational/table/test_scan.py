"""Scans in key order over the vnodes of a table: a merge, whatever the sizes of batches and ranges."""

from __future__ import annotations

import random

import pytest

from hummock.base.key import KeyRange, user_key
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch
from hummock.store.memory_store import MemoryStateStore
from relational.table import scan
from relational.table.row_layout import WholeRows
from tests.support.drivers.seeds import run_seed

EPOCH = Epoch(1 << 16)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_a_merge_of_vnodes_is_in_order_of_the_keys(monkeypatch, seed, reverse):
    rng = random.Random(f"{run_seed()} {seed}")
    monkeypatch.setattr(scan, "MERGE_ROWS", rng.choice((1, 2, 5, 512)))
    vnodes, store = rng.choice((1, 3, 40)), MemoryStateStore()
    numbers = rng.sample(range(2_000), rng.randrange(300))
    keys = {user_key(7, rng.randrange(vnodes), b"%04d" % number) for number in numbers}
    store.ingest_batch(WriteBatch([(key, key[-2:]) for key in sorted(keys)]), EPOCH)
    ranges = [KeyRange.vnode(7, vnode) for vnode in range(vnodes)]
    limit = rng.choice((None, None, 0, 1, 7, 1_000))
    batches = list(scan.in_key_order(WholeRows(store), ranges, EPOCH, reverse=reverse, limit=limit))
    found = [pair for batch in batches for pair in batch]
    wanted = sorted(((key, key[-2:]) for key in keys), key=lambda pair: pair[0][6:], reverse=reverse)
    assert found == wanted[:limit]
    assert all(len(batch) for batch in batches)


def test_ranges_that_are_read_to_their_end_do_not_hold_up_the_others(monkeypatch):
    """Most of many vnodes have a few rows: one round merges them all."""
    monkeypatch.setattr(scan, "MERGE_ROWS", 4)
    store = MemoryStateStore()
    keys = [user_key(7, vnode, b"%02d" % number) for vnode in range(50) for number in range(3 if vnode else 9)]
    store.ingest_batch(WriteBatch([(key, b"") for key in sorted(keys)]), EPOCH)
    ranges = [KeyRange.vnode(7, vnode) for vnode in range(50)]
    batches = list(scan.in_key_order(WholeRows(store), ranges, EPOCH))
    assert [len(batch) for batch in batches] == [49 * 3 + 4, 4, 1]
