"""Bulk backfills against the stream: the tasks of cases/bulk_backfill.txt write the state that the stream builds."""

import itertools
import random
import threading
from collections import Counter
from contextlib import closing, contextmanager
from dataclasses import replace
from decimal import Decimal
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import stream
from hummock.base.key import KeyRange
from hummock.errors import Corruption
from hummock.object_store import open_object_store
from hummock.options import StorageOptions
from relational.catalog.names import ObjectName
from relational.chunk import Column, Op, StreamChunk
from relational.chunk.vnode_map import VnodeMap
from relational.errors import ConsistencyError
from relational.table.state_table import StateTable
from relational.table.storage_table import StorageTable
from relational.types import Schema
from stream.errors import BackfillRefused, InconsistentStream
from stream.spark.driver import arrivals_of, scans_of
from stream.spark.fragments import backfill_fragments
from stream.spark.shuffle_files import (
    EMPTY_PART,
    Partitioning,
    ShuffleFile,
    ShuffleWriter,
    read_blocks,
    write_parts,
)
from stream.spark.spec import BackfillSpec
from stream.spark.tasks import TaskReport, checked, checked_inserts, task_report
from tests.support.drivers.local_shuffle import rows_of_files, run_tasks
from tests.support.drivers.pretty import from_pretty
from tests.support.drivers.seeds import run_seed

PATH = Path(__file__).parents[2] / "cases" / "bulk_backfill.txt"
ROWS = 3_000
COLUMNS = "id BIGINT PRIMARY KEY, k BIGINT, v INT, x DOUBLE, d NUMERIC(20, 3), s VARCHAR, at TIMESTAMP"


def read_cases():
    _, *blocks = PATH.read_text().split("\n== ")
    split = (block.partition("\n") for block in blocks)
    return [(title, *(part.strip("\n") for part in rest.split("\n->\n"))) for title, _, rest in split]


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
    """A session with a table of which some rows were updated or deleted."""
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
    """The spec of a bulk backfill of an existing view, with the view's own table ids."""
    catalog = session._playground.catalog
    view = catalog.resolve(ObjectName(name))
    states, plan = tuple(catalog.internal_tables(view.id)), catalog.snapshot.job_record(view.id).plan
    tables = tuple(map(catalog.get, view.dependencies))
    names, storage = ("ab" * 8,), StorageOptions()
    return BackfillSpec(view, tables, states, plan, session.flush(), tasks, "memory://", names, storage, 1 << 16)


def shown(fragments):
    def by(fragment):
        names = fragment.leaf.schema.names
        return ", ".join(names[column] for column in fragment.key) or "nothing"

    texts = [", ".join(node.identity for node in fragment.root.walk()) for fragment in fragments]
    shuffled = [f"by {by(each)}: {text.rpartition(', ')[0]}" for each, text in zip(fragments, texts, strict=True)]
    return "\n".join([texts[0], *shuffled[1:]])


def same_rows(session, spec, reports, objects):
    storage = session._playground.storage
    states = [table.id for table in spec.states if not table.name.endswith(".progress")]
    for table_id in (spec.view.id, *states):
        expected = dict(iter(storage.scan(KeyRange.table(table_id), spec.epoch)))
        assert rows_of_files(reports, objects, table_id) == expected


@pytest.mark.parametrize(("title", "query", "fragments"), CASES, ids=[title for title, *_ in CASES])
def test_tasks_leave_the_state_that_the_stream_builds(world, title, query, fragments):
    rng = random.Random(run_seed())
    world.sql(f"CREATE MATERIALIZED VIEW mv AS {query}")
    try:
        spec = spec_of(world, "mv")
        assert shown(spec.fragments) == fragments
        tasks = [rng.randint(1, 5), *(rng.randint(1, 9) if each.key else 1 for each in spec.fragments[1:])]
        spec = replace(spec, tasks=tuple(tasks))
        assert BackfillSpec.from_bytes(spec.to_bytes()) == spec
        storage, leaf = world._playground.storage, spec.fragments[0].leaf
        parts = StorageTable(leaf.table, storage, leaf.columns).partitions(tasks[0])
        upstream = storage._sstable_store.object_store
        with (
            closing(open_object_store("memory://")) as objects,
            storage.snapshot(),
            storage.pinned_version() as pinned,
        ):
            specs = scans_of(spec, pinned.version, leaf, parts)
            every = [run_tasks(specs, upstream, objects, rng)]
            for number in range(1, len(tasks)):
                specs = arrivals_of(spec, number, [report.sent for report in every[-1]])
                every.append(list(checked(run_tasks(specs, upstream, objects, rng), every[-1])))
            same_rows(world, spec, [report for reports in every for report in reports], objects)
        assert [len(reports) for reports in every] == tasks
        assert not any(report.sent.name or report.rows_out for report in every[-1])
    finally:
        world.sql("DROP MATERIALIZED VIEW mv")


def test_what_a_task_cannot_run_is_refused_by_name(world):
    plan = world._playground.meta.planner.known_jobs(may_lack_connectors=False)[0][0].plan
    with pytest.raises(BackfillRefused, match="Dml cannot run in a task"):
        backfill_fragments(plan)


def test_rows_in_an_order_are_refused_by_name(world):
    world.sql("CREATE MATERIALIZED VIEW ordered AS SELECT k, array_agg(v) AS a, mode() WITHIN GROUP (ORDER BY v) AS m "
              "FROM t GROUP BY k")
    try:
        known = world._playground.meta.planner.known_jobs(may_lack_connectors=False)
        plan = next(job.plan for jobs in known for job in jobs if job.plan.root.table.name == "ordered")
        with pytest.raises(BackfillRefused, match="'ordered': array_agg, mode cannot run in a task"):
            backfill_fragments(plan)
    finally:
        world.sql("DROP MATERIALIZED VIEW ordered")


@pytest.mark.parametrize("spills", [False, True])
def test_a_key_that_comes_twice_into_new_state_ends_the_task(world, monkeypatch, spills):
    world.sql("CREATE MATERIALIZED VIEW twice AS SELECT id, v + 1 AS w FROM t")
    try:
        spec = replace(spec_of(world, "twice", (1,)), memory_bytes=1)
        storage, leaf = world._playground.storage, spec.fragments[0].leaf
        if spills:
            monkeypatch.setitem(StateTable.__init__.__kwdefaults__, "spill_bytes", 0)
        table = StorageTable(leaf.table, storage, leaf.columns)
        [scan] = scans_of(spec, storage.version, leaf, table.partitions(1))
        chunks = list(table.scan(spec.epoch))
        with closing(open_object_store("memory://")) as objects:
            whole = task_report(scan, lambda _: chunks, objects)
            assert sum(info.rows for info in whole.sstables) == sum(chunk.visible_rows for chunk in chunks)
            with pytest.raises(InconsistentStream if spills else ConsistencyError):
                task_report(scan, lambda _: [*chunks, chunks[0]], objects)
    finally:
        world.sql("DROP MATERIALIZED VIEW twice")


SCHEMA = Schema.of(k="bigint", v="varchar")


@contextmanager
def shuffle_writer(objects, parts=2, key=(0,)):
    """A writer, and what returns the part that it sent, readable."""
    names = (f"{number:032x}" for number in count(1))
    with ShuffleFile(objects, lambda: next(names), memory_bytes=2_000) as file:
        writer = ShuffleWriter(file, SCHEMA, Partitioning(parts, key, 256, target=None))
        yield writer, lambda: write_parts(file, [writer])[0]


@pytest.fixture
def objects():
    with closing(open_object_store("memory://")) as objects:
        yield objects


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_changes_keep_their_ops_and_pairs_that_part_become_plain_changes(objects, parts):
    rng = random.Random(run_seed())
    lines, kept = [], {}
    for number in range(4_000):
        key = rng.randrange(500)
        if key not in kept:
            lines.append(f"+ {key} {number}")
        elif rng.random() < 0.3:
            lines.append(f"- {key} {kept.pop(key)}")
            continue
        else:
            lines += [f"U- {key} {kept[key]}", f"U+ {(moved := rng.choice((key, key + 500)))} {number}"]
            kept.pop(key)
            key = moved
            if key >= 500:
                lines.append(f"- {key} {number}")
                continue
        kept[key] = str(number)
    with shuffle_writer(objects, parts) as (writer, finish):
        writer.add(from_pretty("\n".join(lines), SCHEMA))
        sent = finish()
    rows = Counter()
    for blocks in sent.by_receiver(parts):
        seen = set()
        for chunk in read_blocks(blocks, SCHEMA, objects):
            changes = list(chunk.changes())
            for at, (op, row) in enumerate(changes):
                rows[row] += -1 if op in (Op.DELETE, Op.UPDATE_DELETE) else 1
                seen.add(row[0])
                if op == Op.UPDATE_DELETE:
                    assert changes[at + 1][0] == Op.UPDATE_INSERT
                if op == Op.UPDATE_INSERT:
                    assert changes[at - 1][0] == Op.UPDATE_DELETE
        owners = VnodeMap.even(range(parts), 256)
        keys = Column(pa.array(sorted(seen), pa.int64()), SCHEMA[0].data_type)
        assert len(set(owners.targets_of([keys], rows=len(seen)))) <= 1
    assert {row for row, times in rows.items() if times} == set(kept.items()) and max(rows.values()) == 1


def test_a_retraction_is_no_net_change_of_a_beginning():
    assert checked_inserts(from_pretty("+ 1 a", SCHEMA)).capacity == 1
    with pytest.raises(InconsistentStream):
        checked_inserts(from_pretty("- 1 a", SCHEMA))


def test_rows_that_are_lost_between_two_fragments_are_noticed():
    with pytest.raises(InconsistentStream, match="5 rows were sent, 4 came"):
        checked([TaskReport(4, 0, ())], [TaskReport(9, 3, ()), TaskReport(9, 2, ())])


def test_rows_come_to_their_receiver_in_the_order_in_which_they_were_sent(objects, monkeypatch):
    monkeypatch.setattr("stream.spark.shuffle_files.WINDOW_ROWS", ROWS // 2)
    monkeypatch.setattr("stream.spark.shuffle_files.CHUNK_ROWS", 700)
    rng = np.random.default_rng(3)
    keys = rng.integers(0, 50, 3 * ROWS)
    with shuffle_writer(objects, 4) as (writer, finish):
        for at in range(0, 3 * ROWS, 500):
            numbers = pa.array(list(map(str, range(at, at + 500))))
            writer.add(StreamChunk([pa.array(keys[at : at + 500]), numbers], np.zeros(500, np.uint8)))
        sent = finish()
    assert sent.rows == 3 * ROWS
    assert [len(blocks) for blocks in sent.by_receiver(4)] == [1] * 4, "a receiver needs one request for a sender"
    found = [[row for chunk in read_blocks(blocks, SCHEMA, objects) for _, row in chunk.changes()]
             for blocks in sent.by_receiver(4)]
    assert all(rows == sorted(rows, key=lambda row: int(row[1])) for rows in found)
    assert sorted((int(row[1]), row[0]) for rows in found for row in rows) == list(enumerate(keys.tolist()))
    assert all(len({receiver for receiver in range(4) if any(row[0] == key for row in found[receiver])}) == 1
               for key in set(keys.tolist()))


@pytest.mark.parametrize("most", [4, 2])
def test_blocks_are_requested_side_by_side_within_limits(objects, monkeypatch, most):
    monkeypatch.setattr("stream.spark.shuffle_files.WINDOW_ROWS", 1)
    monkeypatch.setattr("stream.spark.shuffle_files.BLOCK_BYTES", 1)
    with shuffle_writer(objects, 1) as (writer, finish):
        for number in range(12):
            writer.add(from_pretty(f"+ {number} a", SCHEMA))
        blocks = finish().by_receiver(1)[0]
    together, real, begun, taken = threading.Barrier(most), objects.get, itertools.count(1), []

    def get(*args):
        assert next(begun) - len(taken) <= most
        together.wait(10)  # until as many requests are under way
        return real(*args)

    monkeypatch.setattr(objects, "get", get)
    monkeypatch.setattr("stream.spark.shuffle_files.AHEAD_BLOCKS", 4)
    monkeypatch.setattr("stream.spark.shuffle_files.AHEAD_BYTES", most * blocks[0].size)
    monkeypatch.setattr("stream.spark.shuffle_files.CHUNK_ROWS", 1)
    for chunk in read_blocks(blocks, SCHEMA, objects):
        taken += [row[0] for _, row in chunk.changes()]
    assert taken == list(range(12))
    assert together.n_waiting == 0 and not together.broken


def test_nothing_sent_is_no_object(objects):
    with shuffle_writer(objects) as (_, finish):
        assert finish() == EMPTY_PART
    assert not list(objects.list())


def test_a_shuffle_writer_that_is_left_by_an_error_leaves_no_object(objects, monkeypatch):
    monkeypatch.setattr("stream.spark.shuffle_files.WINDOW_ROWS", 1)
    with pytest.raises(ZeroDivisionError), shuffle_writer(objects) as (writer, _):
        writer.add(from_pretty("+ 1 a", SCHEMA))
        raise ZeroDivisionError
    assert not list(objects.list())


def test_a_damaged_shuffle_block_is_no_rows(objects):
    with shuffle_writer(objects, 1) as (writer, finish):
        writer.add(from_pretty("+ 1 a", SCHEMA))
        sent = finish()
    [found] = objects.list()
    whole = bytearray(objects.get(found.path))
    whole[-20] ^= 1
    objects.put(found.path, bytes(whole))
    with pytest.raises(Corruption, match="shuffle block at 0"):
        list(read_blocks(sent.by_receiver(1)[0], SCHEMA, objects))
