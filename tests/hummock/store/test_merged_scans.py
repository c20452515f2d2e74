"""Scans over runs whose rows alternate here and follow one another there equal a dictionary, at every epoch."""

from __future__ import annotations

import random
from itertools import pairwise

import pyarrow as pa
import pytest

import hummock
from hummock.base.key_watermark import KeyWatermark
from tests.support.drivers.seeds import run_seed

TABLE, VNODES = 1, 4


def keys_of(rng: random.Random) -> list[bytes]:
    middle = rng.choice((b"", b"\0", b"x" * 12))
    found = {hummock.user_key(TABLE, rng.randrange(VNODES), middle + rng.randbytes(rng.choice((2, 3, 9))))
             for _ in range(rng.choice((50, 3_000, 6_000)))}  # fmt: skip
    return sorted(found)


def change_of(rng: random.Random, keys: list[bytes]) -> dict[bytes, bytes | None]:
    """Rows spread over all keys, or all rows of a stretch: so one run leads here, and several alternate there."""
    if rng.random() < 0.5:
        chosen = rng.sample(keys, rng.choice((1, len(keys) // 8, len(keys) // 2)))
    else:
        first = rng.randrange(len(keys))
        chosen = keys[first : first + rng.randrange(1, len(keys))]
    deleted = rng.choice((0, 0, 0.1, 1))
    return {key: None if rng.random() < deleted else rng.randbytes(rng.choice((0, 5, 90))) for key in sorted(chosen)}


def ranges_of(rng: random.Random, keys: list[bytes]) -> list[tuple[bytes, bytes | None]]:
    ends = sorted(rng.choices(keys, k=5))
    return [(b"", None), (keys[0], keys[-1]), (ends[0] + b"\0", None), *pairwise(ends)]


def expected(state: dict[bytes, bytes | None], start: bytes, end: bytes | None) -> list[tuple[bytes, bytes]]:
    return [(key, value) for key, value in sorted(state.items())
            if value is not None and start <= key and (end is None or key < end)]


def pairs(batch) -> list[tuple[bytes, bytes]]:
    table = batch.to_arrow()
    return list(zip(table.column(0).to_pylist(), table.column(1).to_pylist(), strict=True))


@pytest.mark.parametrize("number", range(12))
def test_a_scan_of_many_runs_equals_a_dictionary(number):
    rng = random.Random(run_seed() + number)
    keys, state, states = keys_of(rng), {}, []
    options = {"block_bytes": rng.choice((300, 4_000, 60_000)), "scan_batch_rows": rng.choice((7, 300, 8_192)),
               "scan_batch_bytes": rng.choice((500, 20_000, 1 << 20)), "inline_bytes": 0}
    with hummock.open("memory://", role="writer", compaction=False, **options) as store:
        epochs = hummock.EpochGenerator(last=store.committed_epoch)
        for _ in range(rng.randrange(1, 9)):
            epoch, change = epochs.next(), change_of(rng, keys)
            store.ingest_batch(hummock.WriteBatch(list(change.items())), epoch)
            state = state | change
            states.append((epoch, state))
            if rng.random() < 0.8:      # else later commits write versions of several epochs into one run
                store.commit(epoch)
        for epoch, state in states:
            for start, end in ranges_of(rng, keys):
                with store.scan(hummock.KeyRange(start, end), epoch) as rows:
                    assert pairs(rows) == expected(state, start, end), (epoch, start, end)
            limit = rng.randrange(1, len(keys))
            with store.scan(epoch=epoch, limit=limit) as rows:
                assert pairs(rows) == expected(state, b"", None)[:limit]


@pytest.mark.parametrize("number", range(6))
def test_prefixes_and_ranges_of_many_runs_equal_a_dictionary(number):
    rng = random.Random(run_seed() + 100 + number)
    keys, state = keys_of(rng), {}
    with hummock.open("memory://", role="writer", compaction=False, block_bytes=4_000, inline_bytes=0) as store:
        epochs = hummock.EpochGenerator(last=store.committed_epoch)
        for _ in range(5):
            epoch, change = epochs.next(), change_of(rng, keys)
            store.ingest_batch(hummock.WriteBatch(list(change.items())), epoch)
            store.commit(epoch)
            state |= change
        prefixes = [hummock.user_key(TABLE, vnode, b"") for vnode in range(VNODES + 1)]
        for limit in (None, 900):
            owners, rows = store.scan_prefixes(pa.array(prefixes, pa.binary()), epoch, limit=limit)
            per_prefix = [expected({key: value for key, value in state.items() if key.startswith(prefix)}, b"", None)
                          for prefix in prefixes]
            assert owners.tolist() == [at for at, found in enumerate(per_prefix) for _ in found[:limit]]
            assert pairs(rows) == [row for found in per_prefix for row in found[:limit]]
        bounds = ranges_of(rng, keys)
        owners, rows = store.scan_many(
            pa.array([start for start, _ in bounds], pa.binary()), epoch,
            ends=pa.array([end for _, end in bounds], pa.binary()), limit=2_000)
        assert pairs(rows) == [row for bound in bounds for row in expected(state, *bound)[:2_000]]


@pytest.mark.parametrize("versions", [2, 3, 5, 7])
def test_versions_of_a_key_end_where_one_run_leads_again(versions):
    keys = [hummock.user_key(TABLE, 0, b"%06d" % at) for at in range(6_000)]
    with hummock.open("memory://", role="writer", compaction=False, inline_bytes=0) as store:
        epochs, state = hummock.EpochGenerator(last=store.committed_epoch), {}
        for part, count in ((keys, versions), (keys[: 2_000 + versions : 2], 1)):    # a run each
            for number in range(count):
                epoch, change = epochs.next(), dict.fromkeys(part, b"%d" % number)
                store.ingest_batch(hummock.WriteBatch(list(change.items())), epoch)
                state |= change
            store.commit(epoch)
        with store.scan() as rows:
            assert pairs(rows) == expected(state, b"", None)


def test_rows_that_a_watermark_passed_are_in_no_merged_scan():
    rng = random.Random(run_seed())
    keys, state = sorted(hummock.user_key(TABLE, at % VNODES, b"%06d" % at) for at in range(6_000)), {}
    with hummock.open("memory://", role="writer", compaction=False, inline_bytes=0) as store:
        epochs = hummock.EpochGenerator(last=store.committed_epoch)
        for _ in range(4):
            epoch, change = epochs.next(), dict.fromkeys(sorted(rng.sample(keys, 3_000)), b"v")
            store.ingest_batch(hummock.WriteBatch(list(change.items())), epoch)
            store.commit(epoch)
            state |= change
        epoch, marks = epochs.next(), {0: b"001000", 2: b"005000"}
        store.advance_watermark(TABLE, KeyWatermark.of(epoch, marks))
        store.commit(epoch)
        seen = {key: value for key, value in state.items() if key[6:] >= marks.get(key[5], b"")}
        assert 0 < len(seen) < len(state)
        with store.scan() as rows:
            assert pairs(rows) == expected(seen, b"", None)


@pytest.mark.parametrize("number", range(8))
def test_prefixes_in_runs_of_which_some_hold_nothing_equal_a_dictionary(number):
    """A run that is left out of a range stays out of it, also when rows are pulled from the others for a while."""
    rng = random.Random(run_seed() + 200 + number)
    keys = {table: [hummock.user_key(table, 0, b"%06d" % row) for row in range(3_000)] for table in (1, 2, 3)}
    state: dict[bytes, bytes | None] = {}
    with hummock.open("memory://", role="writer", compaction=False, block_bytes=rng.choice((4_000, 60_000))) as store:
        for _ in range(rng.randrange(3, 7)):
            first, last = sorted(rng.choices((0, 20, 300, 1_000, 3_000), k=2))
            tables = rng.sample((1, 2, 3), rng.choice((1, 1, 2)))
            change = {keys[table][at]: b"v" for table in tables for at in range(first, last, rng.choice((1, 2)))}
            change |= {keys[tables[0]][at]: b"v" for at in range(rng.randrange(2), 300, rng.choice((2, 300)))}
            store.write(change)
            state |= change
        prefixes = [hummock.user_key(table, 0, b"")[:4] for table in (1, 2, 3)]
        prefixes += [key[:-2] for key in rng.sample(keys[1] + keys[2] + keys[3], 20)]
        rng.shuffle(prefixes)
        for limit in (None, 2_000, 300, 1):
            owners, found = store.scan_prefixes(pa.array(prefixes, pa.binary()), store.committed_epoch, limit=limit)
            expected = [(at, key) for at, prefix in enumerate(prefixes)
                        for key in sorted(key for key in state if key.startswith(prefix))[:limit]]
            assert [(at, key) for at, (key, _) in zip(owners.tolist(), found, strict=True)] == expected


def test_a_run_that_holds_nothing_of_a_range_stays_out_after_a_pull():
    """Rows of two runs alternate, so they are pulled; then one of the two leads, and is followed alone."""
    strays = [hummock.user_key(1, 0, b"%06d" % row) for row in range(20)]
    keys = [hummock.user_key(2, 0, b"%06d" % row) for row in range(3_300)]
    with hummock.open("memory://", compaction=False) as store:
        for run in (strays, keys[:300:2] + keys[300:], keys[1:300:2]):
            store.write(dict.fromkeys(run, b"v"))
        for limit, rows in ((None, keys), (2_000, keys[:2_000])):
            _, found = store.scan_prefixes([strays[0], keys[0][:4]], store.committed_epoch, limit=limit)
            assert [key for key, _ in found] == [strays[0], *rows]


def test_no_row_is_under_a_null():
    with hummock.open("memory://", role="writer", compaction=False) as store:
        key = hummock.user_key(1, 0, b"a")
        store.write({key: b"", hummock.user_key(2, 0, b"b"): b""})
        owners, rows = store.scan_prefixes([None, key, None], store.committed_epoch)
        assert (owners.tolist(), [key for key, _ in rows]) == ([1], [key])
        assert len(store.scan_prefixes([None], store.committed_epoch)[1]) == 0
