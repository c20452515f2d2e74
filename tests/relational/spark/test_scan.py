"""Partitions of a table for tasks: each row is whole in one of them, however many entries it has."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import stream
from hummock.errors import StoreNotFound
from relational.spark import scan
from relational.spark.pinned_table import PinnedTable
from relational.spark.read_spec import ReadSpec, read_batches
from tests.support.drivers.seeds import run_seed

COLUMNS = 9


@pytest.mark.parametrize("options", ["", "WITH (row_format = 'cell')", "WITH (row_format = 'cell', vnode_count = 1)"])
def test_no_row_is_parted(tmp_path, monkeypatch, options):
    rng = random.Random(f"{run_seed()} {options}")
    monkeypatch.setattr(scan, "LEAST_PART_BYTES", 1_000)
    url = f"file://{tmp_path}/store"
    kept = {}
    with stream.connect(url, create=True,
            barrier_interval_ms=3_600_000, sstable_bytes=20_000, block_bytes=200) as session:
        declared = ", ".join(f"c{number} BIGINT" for number in range(COLUMNS))
        session.sql(f"CREATE TABLE t (a VARCHAR, b INT, {declared}, PRIMARY KEY (a, b)) {options}")
        for turn in range(3):
            fresh = [(f"key {rng.randrange(200) % 20}" * rng.randrange(1, 3), 1_000 * turn + at,
                      *(None if rng.random() < 0.3 else rng.randrange(1 << 40) for _ in range(COLUMNS)))
                     for at in range(200)]
            session.table("t").insert(fresh)
            session.flush()
            kept |= {row[:2]: row for row in fresh}
        epochs = [session.flush()]
        session.sql("UPDATE t SET c3 = 5 WHERE b % 7 = 0")
        epochs.append(session.flush())
    with PinnedTable(url, "t") as table:
        parts = scan.plan(table, [table.key_range], 4)
        assert len(parts) > 10
        specs = scan.specs_of(table, tuple(range(COLUMNS + 2)), parts, table.epoch, None)
        found = [tuple(row.values()) for spec in specs for batch in read_batches(ReadSpec.from_bytes(spec))
                 for row in pa.Table.from_batches([batch]).to_pylist()]
    wanted = [row if row[1] % 7 else (*row[:5], 5, *row[6:]) for row in kept.values()]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)


def test_intervals_are_texts(tmp_path):
    url = f"file://{tmp_path}/store"
    with stream.connect(url, create=True, barrier_interval_ms=3_600_000) as session:
        session.sql("CREATE TABLE t (k INT PRIMARY KEY, i INTERVAL)")
        session.sql("INSERT INTO t VALUES (1, INTERVAL '1 month 2 days 3 seconds'), (2, NULL)")
        session.flush()
    with PinnedTable(url, "t") as table:
        for since in (None, 0):
            (part,) = scan.plan(table, [table.key_range], 1)
            (spec,) = scan.specs_of(table, (0, 1), [part], table.epoch, since)
            rows = [row for batch in read_batches(ReadSpec.from_bytes(spec)) for row in batch.to_pylist()]
            assert {row["k"]: row["i"] for row in rows} == {1: "1 mon 2 days 00:00:03", 2: None}


def test_a_place_without_a_store_stays_as_it_is(tmp_path):
    with pytest.raises(StoreNotFound):
        PinnedTable(f"file://{tmp_path}/nothing/here", "t")
    assert not list(tmp_path.iterdir())
