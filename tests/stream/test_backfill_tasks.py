"""Bulk backfills against the stream: the tasks of cases/bulk_backfill.txt leave the state that the stream builds."""

import random
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import stream
from hummock.key import KeyRange
from hummock.object_store import open_object_store
from hummock.options import StorageOptions
from relational.catalog.names import ObjectName
from relational.chunk import StreamChunk
from relational.table.storage_table import StorageTable
from relational.types import Schema
from stream.errors import BackfillRefused, InconsistentStream
from stream.spark.exchange import Packer, Unpacker
from stream.spark.fragments import fragments_of
from stream.spark.spec import BackfillSpec
from tests.suites.local_shuffle import rows_of_files, run_backfill

PATH = Path(__file__).parents[1] / "cases" / "bulk_backfill.txt"
ROWS = 3_000
COLUMNS = "id BIGINT PRIMARY KEY, k BIGINT, v INT, x DOUBLE, d NUMERIC(20, 3), s VARCHAR, at TIMESTAMP"


def read_cases():
    _, *blocks = PATH.read_text().split("\n== ")
    parted = (block.partition("\n") for block in blocks)
    return [(title, *(part.strip("\n") for part in rest.split("\n->\n"))) for title, _, rest in parted]


CASES = read_cases()


def random_rows(rng):
    def some(values, share=0.1):
        return pa.array(values, mask=rng.random(len(values)) < share)

    floats = rng.random(ROWS).round(2) * 1e3
    floats[rng.random(ROWS) < 0.05] = np.nan
    floats[rng.random(ROWS) < 0.1] = -0.0
    floats[rng.random(ROWS) < 0.1] = 0.0
    decimals = [Decimal(int(each)).scaleb(-3) for each in rng.integers(-(10**9), 10**9, ROWS)]
    moments = rng.integers(0, 10**15, ROWS).astype("datetime64[us]")
    return pa.table(
        {
            "id": rng.permutation(ROWS),
            "k": some(rng.integers(0, 40, ROWS)),
            "v": some(rng.integers(-20, 20, ROWS).astype(np.int32)),
            "x": some(floats),
            "d": some(np.array(decimals)),
            "s": some(np.array(["", "a", "bb", "ccc" * 9])[rng.integers(0, 4, ROWS)]),
            "at": some(moments),
        }
    )


@pytest.fixture(scope="module")
def world():
    """A session with a filled table, of which some rows changed after they came."""
    rng = np.random.default_rng(20261121)
    with stream.connect("memory://") as session:
        session.sql(f"CREATE TABLE t ({COLUMNS})")
        session.table("t").insert(random_rows(rng))
        session.flush()
        session.sql("UPDATE t SET v = v + 1, k = k % 7 WHERE id % 5 = 0")
        session.sql("DELETE FROM t WHERE id % 11 = 0")
        session.flush()
        yield session


def spec_of(session, name, tasks=()):
    """What a bulk backfill of a view that is there would be, the view's own table ids included."""
    catalog = session._playground.catalog
    view = catalog.resolve(ObjectName(name))
    ids = {table.name: table.id for table in catalog.internal_tables(view.id)}
    tables = tuple(map(catalog.get, view.dependencies))
    return BackfillSpec(view, tables, ids, session.flush(), tasks, "memory://", "ab" * 8, StorageOptions(), 1 << 16)


def shown(fragments):
    def by(fragment):
        names = fragment.leaf.schema.names
        return ", ".join(names[column] for column in fragment.key) or "nothing"

    texts = [", ".join(node.identity for node in fragment.root.walk()) for fragment in fragments]
    shuffled = [f"by {by(each)}: {text.rpartition(', ')[0]}" for each, text in zip(fragments, texts, strict=True)]
    return "\n".join([texts[0], *shuffled[1:]])


def same_rows(session, spec, reports, objects):
    storage = session._playground.storage
    for table_id in (spec.view.id, *spec.state_ids.values()):
        expected = dict(iter(storage.scan(KeyRange.table(table_id), spec.epoch)))
        assert rows_of_files(reports, objects, table_id) == expected


@pytest.mark.parametrize(("title", "query", "fragments"), CASES, ids=[title for title, *_ in CASES])
def test_tasks_leave_the_state_that_the_stream_builds(world, title, query, fragments):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    world.sql(f"CREATE MATERIALIZED VIEW mv AS {query}")
    try:
        spec = spec_of(world, "mv")
        assert shown(spec.fragments) == fragments
        tasks = [rng.randint(1, 5), *(rng.randint(1, 9) if each.key else 1 for each in spec.fragments[1:])]
        spec = replace(spec, tasks=tuple(tasks))
        assert BackfillSpec.from_bytes(spec.to_bytes()) == spec
        leaf = spec.fragments[0].leaf
        table = StorageTable(leaf.table, world._playground.storage, leaf.columns)
        parts = table.partitions(tasks[0])
        with closing(open_object_store("memory://")) as objects:
            reports = run_backfill(
                spec, lambda place: list(table.scan_partition(spec.epoch, parts[place])), objects, rng)
            same_rows(world, spec, reports, objects)
        assert sorted((each.fragment, each.place) for each in reports) == [
            (number, place) for number, count in enumerate(tasks) for place in range(count)]
        for number in range(1, len(tasks)):
            came = sum(each.rows_in for each in reports if each.fragment == number)
            assert came == sum(each.rows_out for each in reports if each.fragment == number - 1)
    finally:
        world.sql("DROP MATERIALIZED VIEW mv")


def test_what_a_task_cannot_run_is_refused_by_name(world):
    plan = world._playground.meta.planner.known_jobs(may_lack_connectors=False)[0].plan
    with pytest.raises(BackfillRefused, match="Dml cannot run in a task"):
        fragments_of(plan)


SCHEMA = Schema.of(k="bigint", v="varchar")


def test_a_retraction_is_no_net_change_of_a_beginning():
    packer = Packer(0, SCHEMA, (0,), 2, 256)
    with pytest.raises(InconsistentStream):
        list(packer.add(StreamChunk.from_pretty("- 1 a", SCHEMA)))


@pytest.mark.parametrize("memory_bytes", [0, 1 << 20])
def test_parcels_are_unpacked_in_the_order_of_their_senders(memory_bytes, monkeypatch):
    monkeypatch.setattr("stream.spark.exchange.WINDOW_ROWS", ROWS // 2)
    monkeypatch.setattr("stream.spark.exchange.CHUNK_ROWS", 2 * ROWS - 1)
    sent = []
    for sender in range(3):
        packer = Packer(sender, SCHEMA, (), 1, 256)
        for number in range(2):
            values = [pa.array([sender] * ROWS), pa.array([f"{number}-{row}" for row in range(ROWS)])]
            sent += packer.add(StreamChunk(values, np.zeros(ROWS, np.uint8)))
        sent += packer.rest()
    unpacker = Unpacker(SCHEMA, memory_bytes)
    unpacker.take(reversed(sent))
    found = [row for chunk in unpacker.chunks() for _, row in chunk.changes()]
    unpacker.close()
    assert found == [(s, f"{n}-{row}") for s in range(3) for n in range(2) for row in range(ROWS)]
    assert unpacker.rows == len(found)
