"""Epochs as tasks, without Spark: how a graph is divided, what a task receives and returns, and that sessions see no
difference. The random graphs of tests/simulation run the same tasks under deaths and recoveries."""

import random
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from hummock.epoch import SPILL_BITS, Epoch
from relational.catalog.names import ObjectName
from relational.errors import CatalogError
from relational.types import Schema
from stream.connector.base import open_connector
from stream.errors import ActorFailed, ConnectorError, DuplicateKey, InvalidStatement, MalformedRows
from stream.spark.epoch_run import EpochRun, failed_actor
from stream.spark.epoch_spec import EpochTask, TaskFailure
from stream.spark.kept_groups import KeptGroups
from stream.spark.parallel_actors import ParallelActors
from stream.spark.shuffle_nodes import PartialAggNode
from stream.spark.stages import BUNDLE_BYTES, EdgeKind, StageGraph, bundled
from tests.support.drivers.engine_store import EngineStore
from tests.support.drivers.seeds import amount, run_seed

WIDENED = amount(6, 12)
"""The epoch in which a column is added."""
QUERY = "SELECT v % 7 AS g, count(*) AS n, sum(v) AS s, min(k) AS low FROM t GROUP BY v % 7"


@pytest.fixture
def store():
    with ExitStack() as undo:
        yield EngineStore(undo)


def rows(session, query):
    found = session.sql(query)
    found = found.to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


def graph_of(session, is_local=lambda spec: False, *, is_shuffled=True):
    return StageGraph(tuple(session._playground.node._running.values()), is_local, is_shuffled=is_shuffled)


def shown(graph):
    """Per segment: its stage, where it runs, its fragments, and the kinds of edges that it receives."""
    return [
        (each.stage, "driver" if each.in_driver else "tasks",
         " ".join(f"{spec.table.name}.{spec.fragment}" for spec in each.specs),
         " ".join(edge.kind.name.lower() for edge in each.incoming))
        for each in graph.segments
    ]


def ran(worker, monkeypatch):
    """The names of the jobs of which something ran, epoch by epoch."""
    found, note = [], worker._note

    def noted(run: EpochRun) -> None:
        found.append(sorted({spec.table.name for spec in run.epoch.actors if spec.actor_id in run.ran}))
        note(run)

    monkeypatch.setattr(worker, "_note", noted)
    return found


# -- how a graph is divided ----------------------------------------------------------------------------------------


def test_fragments_whose_rows_stay_where_they_are_are_one_segment(store):
    db = store.open(slots=2)
    db.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)")
    db.sql(f"CREATE MATERIALIZED VIEW m AS {QUERY}")
    db.sql("CREATE MATERIALIZED VIEW big AS SELECT g, n FROM m WHERE n > 1")
    db.sql("CREATE MATERIALIZED VIEW whole AS SELECT sum(n) AS n FROM m")
    db.sql("CREATE MATERIALIZED VIEW both AS SELECT k AS a FROM t UNION ALL SELECT g FROM m")
    db.flush()
    assert shown(graph_of(db, lambda spec: spec.table.name == "t")) == [
        (0, "driver", "t.0", ""),
        (1, "tasks", "m.0 both.0", "forward forward"),
        (2, "tasks", "m.1 big.0 whole.0 both.1", "hash"),
        (3, "tasks", "whole.1", "gather"),
        (3, "tasks", "both.2", "hash hash"),
    ]


def test_what_one_process_can_run_is_one_segment_if_there_is_one_task(store):
    db = store.open(slots=2)
    db.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)")
    db.sql("CREATE TABLE u (k BIGINT PRIMARY KEY)")
    db.sql(f"CREATE MATERIALIZED VIEW m AS {QUERY}")
    db.sql("CREATE MATERIALIZED VIEW whole AS SELECT sum(n) AS n FROM m")
    db.sql("CREATE MATERIALIZED VIEW apart AS SELECT k % 3 AS g, count(*) AS n FROM u GROUP BY k % 3")
    db.flush()
    assert shown(graph_of(db, is_shuffled=False)) == [
        (0, "tasks", "t.0 m.0 m.1 whole.0 whole.1", ""),
        (0, "tasks", "u.0 apart.0 apart.1", ""),
    ]
    assert shown(graph_of(db, lambda spec: spec.table.name in ("t", "whole"), is_shuffled=False)) == [
        (0, "driver", "t.0", ""),
        (0, "tasks", "u.0 apart.0 apart.1", ""),
        (1, "tasks", "m.0 m.1", "forward"),
        (2, "driver", "whole.0 whole.1", "forward"),
    ]


@pytest.mark.parametrize("wanted", [1, 2, 5, 300])
def test_segments_between_which_rows_stay_have_as_many_tasks(store, wanted):
    db = store.open(slots=2)
    db.sql("CREATE SOURCE s (auction BIGINT, price BIGINT) WITH (connector = 'nexmark', events = '0', splits = '3')")
    db.sql("CREATE MATERIALIZED VIEW m AS WITH c AS (SELECT auction AS a, price AS b FROM s) "
           "SELECT a, b FROM c UNION ALL SELECT a, count(*) FROM c GROUP BY a")
    graph = graph_of(db)
    counts = graph.task_counts(wanted)
    for edge in graph.edges:
        one, other = (next(each for each in graph.segments if any(spec.actor_id == end for spec in each.specs))
                      for end in (edge.sender, edge.receiver))
        assert edge.kind is not EdgeKind.FORWARD or counts[one.number] == counts[other.number]
    assert counts[0] == min(wanted, 3) and max(counts.values()) <= min(wanted, 256)


def test_parts_of_segments_are_bundled_by_what_they_receive():
    rng = random.Random(run_seed())
    for _ in range(300):
        slots, segments = rng.randrange(1, 9), rng.randrange(0, 12)
        parts = [(segment, rng.choice([0, 10, 1_000_000]))
                 for segment in range(segments) for _ in range(rng.randrange(1, slots + 1))]
        tasks = bundled(parts, slots)
        assert sorted(part for task in tasks for part in task) == list(range(len(parts)))
        assert len(tasks) == min(slots, len(parts)) and all(tasks)
        assert all(len({parts[part][0] for part in task}) == len(task) for task in tasks), "a segment twice in a task"
    assert len(bundled([(number, BUNDLE_BYTES) for number in range(8)], 2)) == 8


def test_a_sink_into_a_table_is_before_that_table(store):
    db = store.open(slots=2)
    db.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)")
    db.sql("CREATE TABLE u (k BIGINT PRIMARY KEY, v BIGINT)")
    db.sql("CREATE SINK copied INTO u AS SELECT k, v + 1 AS v FROM t")
    db.sql("INSERT INTO t VALUES (1, 10), (2, 20)")
    db.flush()
    graph = graph_of(db)
    stage = {spec.table.name: segment.stage for segment in graph.segments for spec in segment.specs}
    assert stage["t"] <= stage["copied"] < stage["u"]
    assert rows(db, "SELECT k, v FROM u") == [(1, 11), (2, 21)]


# -- what runs -----------------------------------------------------------------------------------------------------


def test_what_has_no_rows_does_not_run(store, monkeypatch):
    db = store.open(slots=2)
    for name in ("t", "u"):
        db.sql(f"CREATE TABLE {name} (k BIGINT PRIMARY KEY, v BIGINT)")
        db.sql(f"CREATE MATERIALIZED VIEW of_{name} AS SELECT v, count(*) AS n FROM {name} GROUP BY v")
    db.sql("CREATE MATERIALIZED VIEW over AS SELECT n, count(*) AS m FROM of_t WHERE v > 5 GROUP BY n")
    db.flush()
    found = ran(db._playground.node, monkeypatch)
    db.flush()
    db.sql("INSERT INTO t VALUES (1, 1)")
    db.sql("INSERT INTO u VALUES (1, 1)")
    db.sql("UPDATE t SET v = 9")
    db.flush()
    assert [each for each in found if each] == [["of_t", "over", "t"], ["of_u", "u"], ["of_t", "over", "t"]]
    assert rows(db, "SELECT * FROM over") == [(1, 1)] and not db.failed_jobs


def test_an_epoch_of_few_rows_is_one_task_in_the_process_of_the_driver(store):
    db = store.open(slots=2, driver_rows=1_000)
    db.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)")
    db.sql(f"CREATE MATERIALIZED VIEW m AS {QUERY}")
    db.table("t").insert([(number, number) for number in range(100)])
    db.flush()
    assert not store.tasks
    db.table("t").insert([(number, number) for number in range(100, 2_000)])
    db.flush()
    assert store.tasks and rows(db, "SELECT sum(n) AS n FROM m") == [(2_000,)]


def test_an_aggregation_of_a_task_has_the_memory_that_the_session_gives_it(store):
    db = store.open(slots=2, state_cache_bytes=1 << 20)
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT)")
    db.sql("CREATE MATERIALIZED VIEW m AS SELECT k, count(*) AS n FROM t GROUP BY k")
    for first in (0, 20_000):
        db.table("t").insert([(number, number % 30_000) for number in range(first, first + 20_000)])
        db.flush()
    assert rows(db, "SELECT count(*) AS groups, sum(n) AS n, max(n) AS most FROM m") == [(30_000, 40_000, 2)]
    assert {task.state_cache_bytes for task in store.tasks} == {1 << 20}


def test_a_source_is_read_within_its_limits_until_nothing_is_left(store):
    db = store.open(slots=2, epoch_rows=300, sources_paused=True)
    db.sql("CREATE SOURCE s (auction BIGINT, price BIGINT) WITH (connector = 'nexmark', events = '2000', splits = '2')")
    db.sql("CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n, sum(price) AS p FROM s")
    db.flush()
    assert rows(db, "SELECT n FROM m") == [(0,)] and set(db.source_offsets("m").values()) == {"0"}
    db.resume()
    for _ in range(20):
        db.flush()
    assert rows(db, "SELECT n FROM m") == [(1_840,)]
    read = [task for task in store.tasks if any(spec.splits for spec in task.actors) and not task.is_paused]
    assert len(read) >= 4 and 1 in {len(spec.splits) for task in read for spec in task.actors if spec.splits}


def test_a_limited_source_reads_as_much_as_the_time_between_epochs_allows(store):
    db = store.open(slots=1)
    db.sql("CREATE SOURCE s (auction BIGINT) WITH (connector = 'nexmark', events = '100000', rate_limit = '1000')")
    db.sql("CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM s")
    db.flush()
    (before,), = rows(db, "SELECT n FROM m")
    began = time.monotonic()
    for _ in range(10):
        store.now_ms += 100
        db.flush()
    (after,), = rows(db, "SELECT n FROM m")
    assert 800 <= after - before <= 1_200 + 1_000 * (time.monotonic() - began), "tasks read while they wait, too"


# -- sessions ------------------------------------------------------------------------------------------------------


def test_engines_take_turns_over_one_store(store):
    rng, expected = random.Random(run_seed()), {}
    db = store.open()
    db.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)")
    db.sql(f"CREATE MATERIALIZED VIEW m AS {QUERY}")
    db.sql("CREATE MATERIALIZED VIEW whole AS SELECT count(*) AS groups, sum(s) AS s FROM m")
    db.sql("CREATE MATERIALIZED VIEW kinds AS SELECT (v % 3)::VARCHAR AS a, k % 4 AS b, count(DISTINCT v % 10) AS n "
           "FROM t GROUP BY (v % 3)::VARCHAR, k % 4")
    db.close()
    for turn in range(amount(4, 8)):
        db = store.open(slots=turn % 2 * rng.randrange(1, 4))
        for _ in range(3):
            new = {key: rng.randrange(100) for key in rng.sample(range(1_000), 30) if key not in expected}
            db.table("t").insert(list(new.items()))
            db.sql(f"UPDATE t SET v = v + 1 WHERE k % 3 = {turn % 3}")
            db.sql(f"DELETE FROM t WHERE k % 11 = {turn}")
            expected |= new
            expected = {key: value + (key % 3 == turn % 3) for key, value in expected.items() if key % 11 != turn}
        db.flush()
        groups = Counter(value % 7 for value in expected.values())
        assert rows(db, "SELECT g, n FROM m") == sorted(groups.items(), key=repr)
        assert rows(db, "SELECT * FROM whole") == [(len(groups), sum(expected.values()))]
        kinds = Counter((str(value % 3), key % 4) for key, value in
                        {(key % 4, value % 3, value % 10): (key, value) for key, value in expected.items()}.values())
        assert rows(db, "SELECT * FROM kinds") == sorted(((*kind, n) for kind, n in kinds.items()), key=repr)
        db.close()


def expected_prices(offsets):
    """Rows and sum of prices by auction, of the first rows of each split, read once more from the connector."""
    schema = Schema.of(auction="bigint", price="bigint")
    connector = open_connector("nexmark", {"events": "200000", "splits": "3"}, schema)
    found = {}
    for split, offset in offsets.items():
        reader, left = connector.open_split(split, (0, 1)), int(offset)
        while left:
            chunk = reader.next_chunk(left)
            left -= chunk.capacity
            for auction, price in chunk.rows():
                rows_of, total = found.get(auction, (0, 0))
                found[auction] = rows_of + 1, total + price
    return sorted((auction, *each) for auction, each in found.items())


@pytest.mark.parametrize("changes", [6, pytest.param(20, marks=pytest.mark.slow)])
def test_changes_of_the_engine_in_the_middle_of_a_stream(store, changes):
    rng = random.Random(run_seed())
    db = store.open(sources_paused=True)
    db.sql("CREATE SOURCE bid (auction BIGINT, price BIGINT) "
           "WITH (connector = 'nexmark', events = '200000', splits = '3')")
    db.sql("CREATE MATERIALIZED VIEW m AS SELECT auction, count(*) AS n, sum(price) AS p FROM bid GROUP BY auction")
    db.sql("CREATE MATERIALIZED VIEW top AS SELECT n, count(*) AS m FROM m GROUP BY n")
    db.close()
    seen = []
    for turn in range(changes):
        limits = {"epoch_rows": rng.randrange(100, 600), "checkpoint_rows": rng.randrange(100, 600)}
        db = store.open(slots=turn % 2 * rng.randrange(1, 4), **limits)
        for _ in range(rng.randrange(1, 3)):
            db.flush()
        with db.at() as snapshot:
            offsets = snapshot.offsets("m")
            expected = expected_prices(offsets)
            assert rows(snapshot, "SELECT * FROM m") == sorted(expected, key=repr)
            assert rows(snapshot, "SELECT * FROM top") == sorted(Counter(n for _, n, _ in expected).items(), key=repr)
        seen.append(sum(map(int, offsets.values())))
        if rng.random() < 0.3:
            db.abandon()
        else:
            db.close()
    assert seen == sorted(seen) and len(set(seen)) >= 4


def test_a_failed_statement_changes_nothing_and_an_altered_table_goes_on(store):
    db = store.open(slots=2)
    db.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)")
    db.sql("CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n FROM t GROUP BY v")
    db.sql("INSERT INTO t VALUES (1, 1)")
    with pytest.raises(Exception, match="exists already"):
        db.sql("INSERT INTO t VALUES (2, 2), (1, 5)")
    db.sql("ALTER TABLE t ADD COLUMN w BIGINT DEFAULT 7")
    db.sql("INSERT INTO t VALUES (3, 1, 8)")
    db.sql("CREATE MATERIALIZED VIEW later AS SELECT w, count(*) AS n FROM t GROUP BY w")
    db.sql("INSERT INTO t VALUES (4, 2, 8)")
    db.flush()
    assert rows(db, "SELECT * FROM m") == [(1, 2), (2, 1)] and rows(db, "SELECT * FROM later") == [(7, 1), (8, 2)]
    with pytest.raises(CatalogError):
        db.sql("ALTER TABLE t DROP COLUMN w")
    db.sql("ALTER TABLE t DROP COLUMN w CASCADE")
    db.sql("DELETE FROM t WHERE k = 1")
    db.flush()
    assert rows(db, "SELECT * FROM t") == [(3, 1), (4, 2)] and rows(db, "SELECT * FROM m") == [(1, 1), (2, 1)]


def test_a_transaction_writes_one_table_in_one_epoch_or_nothing(store):
    db = store.open(slots=2)
    db.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT); CREATE TABLE u (k BIGINT PRIMARY KEY)")
    db.sql(f"CREATE MATERIALIZED VIEW m AS {QUERY}")
    db.sql("BEGIN; INSERT INTO t VALUES (1, 1), (2, 2); UPDATE t SET v = v + 7 WHERE k = 1; DELETE FROM t WHERE v = 2")
    assert db.sql("COMMIT") == 2 + 1 + 1
    assert rows(db, "SELECT g, n FROM m") == [(1, 1)]
    with pytest.raises(DuplicateKey):
        db.sql("BEGIN; DELETE FROM t; INSERT INTO t VALUES (5, 5), (5, 6); COMMIT")
    with pytest.raises(InvalidStatement, match="writes one table, not 't', 'u': send a transaction for each"):
        db.sql("BEGIN; INSERT INTO t VALUES (3, 3); INSERT INTO u VALUES (3); COMMIT")
    db.flush()
    assert rows(db, "SELECT k, v FROM t") == [(1, 8)]
    assert rows(db, "SELECT k FROM u") == []


def test_what_each_executor_did_in_the_epochs_of_an_interval_is_told(store):
    db = store.open(slots=2)
    db.sql("CREATE SOURCE s (auction BIGINT, price BIGINT) WITH (connector = 'nexmark', events = '4000', splits = '2')")
    db.sql("CREATE MATERIALIZED VIEW m AS SELECT auction % 5 AS a, count(*) AS n FROM s GROUP BY auction % 5")
    node = db._playground.node
    before = node._profiles(list(node._running.values()))
    for _ in range(3):
        db.flush()
    profile = db.analyze("m", seconds=0.01).to_pylist()
    assert [row["plan"] for row in profile if row["actors"]] == ["fragment 1", "fragment 0"]
    after = node._profiles(list(node._running.values()))
    source = [each.executors[-1].rows for each in (before[0], after[0])]
    stages = [row for row in db.epochs().to_pylist() if row["tasks"]]
    assert {row["engine"] for row in stages} == {"spark"} and all(row["skew"] >= 1 for row in stages)
    assert sum(row["source_rows"] for row in stages if row["stage"] == 0) == 3_680
    assert source[1] == 3_680 and all(each.cpu_seconds >= 0 for each in after[0].executors)


def test_the_errors_of_rows_are_counted_as_in_one_process(store):
    for slots in (0, 2, 0, 1):
        db = store.open(slots=slots)
        if not slots and "t" not in db.names():
            db.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)")
            db.sql("CREATE MATERIALIZED VIEW m AS SELECT 10 / v AS q, count(*) AS n FROM t GROUP BY 10 / v")
        first = 10 * len(rows(db, "SELECT k FROM t"))
        db.table("t").insert([(first + number, number % 2) for number in range(4)])
        db.flush()
        (error,) = db.errors().to_pylist()
        assert error["rows"] == sum(1 for _, value in rows(db, "SELECT k, v FROM t") if not value)
        job = db._playground.catalog.resolve(ObjectName("m"))
        assert sum(db._playground.errors.of_job(job).values()) == error["rows"]
        db.close()


def test_rows_without_a_value_are_counted_where_their_groups_are_sent_as_states(store):
    counted = {}
    for slots, threads in ((0, 1), (2, 1), (3, 2)):
        db = store.open(slots=slots, threads=threads)
        name = f"t{slots}"
        db.sql(f"CREATE TABLE {name} (k BIGINT PRIMARY KEY, v BIGINT, text VARCHAR)")
        db.sql(f"CREATE MATERIALIZED VIEW m{slots} AS SELECT text, count(*) AS n, "
               f"count(*) FILTER (WHERE 10 / v > 1) AS f FROM {name} GROUP BY text")
        for first in (0, 100):
            db.table(name).insert([(first + n, n % 3, "ab" if n % 20 else "x" * (1 << 20)) for n in range(40)])
            db.flush()
        db.sql(f"DELETE FROM {name} WHERE k < 10")
        db.flush()
        job = db._playground.catalog.resolve(ObjectName(f"m{slots}"))
        errors = {row["reason"]: row["rows"] for row in db.errors().to_pylist() if row["job"] == f"m{slots}"}
        counted[slots] = errors, dict(db._playground.errors.of_job(job)), rows(db, f"SELECT * FROM m{slots}")
        assert (slots > 0) == any(isinstance(node, PartialAggNode) for task in store.tasks for spec in task.actors
                                  for node in spec.root.walk())
        db.close()
    assert counted[0] == counted[2] == counted[3] and len(counted[0][0]) == 2, counted


def combined(tasks):
    """The tables of the aggregations to which tasks sent states."""
    return {node.state_table.name for task in tasks for spec in task.actors for node in spec.root.walk()
            if isinstance(node, PartialAggNode)}


def test_groups_are_sent_while_that_saves_rows(store, monkeypatch):
    monkeypatch.setattr("stream.spark.epoch_run.MEASURED_ROWS", 100)
    monkeypatch.setattr("stream.spark.spark_worker.UNCOMBINED_EPOCHS", 4)
    db = store.open(slots=2)
    db.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)")
    db.sql("CREATE MATERIALIZED VIEW few AS SELECT v % 3 AS g, count(*) AS n FROM t GROUP BY v % 3")
    db.sql("CREATE MATERIALIZED VIEW many AS SELECT v AS g, count(*) AS n FROM t GROUP BY v")
    found = []
    for epoch in range(8):
        store.tasks.clear()
        db.table("t").insert([(1_000 * epoch + n, n) for n in range(1_000)])
        db.flush()
        found.append(combined(store.tasks))
    assert rows(db, "SELECT g, n FROM few") == [(0, 2_672), (1, 2_664), (2, 2_664)]
    assert rows(db, "SELECT sum(n) AS n, count(*) AS c FROM many") == [(8_000, 1_000)]
    assert all("few.agg0.groups" in each for each in found)
    tried = ["many.agg0.groups" in each for each in found]
    assert tried[0] and not tried[1] and 1 < sum(tried) < 5, "after some epochs it is tried again"


@pytest.mark.parametrize("threads", [1, 3])
def test_the_one_group_of_a_query_is_sent_once_by_each_task(store, threads):
    db = store.open(slots=2, threads=threads)
    db.sql("CREATE SOURCE s (auction BIGINT, price BIGINT) WITH (connector = 'nexmark', events = '2000', splits = '4')")
    db.sql("CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n, count(auction) AS a FROM s")
    for _ in range(4):
        db.flush()
    assert "m.agg0.groups" in combined(store.tasks)
    assert rows(db, "SELECT n, a FROM m") == [(1_840, 1_840)]


def test_row_ids_go_on_where_those_of_the_epoch_before_ended(store):
    """Epochs follow one another within a millisecond, and give more ids than a millisecond has."""
    db = store.open(slots=2, threads=2, epoch_rows=4_000)
    db.sql("CREATE SOURCE s (auction BIGINT) WITH (connector = 'nexmark', events = '90000', splits = '4')")
    db.sql("CREATE MATERIALIZED VIEW m WITH (vnode_count = 2048) AS SELECT auction FROM s")
    for _ in range(12):
        db.flush()
    (counted,) = db.sql("SELECT count(*) AS n FROM m").rows()
    assert counted["n"] == 82_800
    given = [task.row_ids_after_ms for task in store.tasks]
    assert given == sorted(given) and len(set(given)) > 2, given
    assert all(task.row_ids_after_ms < task.epoch.curr >> SPILL_BITS for task in store.tasks), "few are not ahead"


def test_epochs_have_rows_and_metrics(store):
    db = store.open(slots=2, sources_paused=True)
    assert db.sql("SHOW EPOCHS").num_rows == db.epochs().num_rows
    db.sql("CREATE SOURCE s (auction BIGINT, price BIGINT) WITH (connector = 'nexmark', events = '2000', splits = '2')")
    db.sql("CREATE MATERIALIZED VIEW m AS SELECT auction, sum(price) AS p FROM s GROUP BY auction")
    db.resume()
    db.flush()
    found = db.sql("SHOW EPOCHS").to_pylist()
    assert found == db.epochs().to_pylist() and max(row["source_rows"] for row in found) == 1_840
    (job, process) = db.sql("SHOW MEMORY FROM m").to_pylist()
    assert job["job"] == "m" and job["state"].startswith("nothing is resident") and job["rows"] == 0
    assert process["state"] == "process" and process["resident_bytes"] > 0
    last = found[-1]["epoch"]
    stages = [row for row in found if row["epoch"] == last]
    value = partial(db._playground.metrics.registry.get_sample_value)
    assert value("stream_epoch_seconds", {"engine": "spark"}) == stages[0]["seconds"]
    for number, row in enumerate(stages):
        assert value("stream_epoch_stage_skew", {"stage": str(number)}) == row["skew"]


# -- what a task receives and returns --------------------------------------------------------------------------------


def test_a_task_is_the_same_after_its_journey(store):
    db = store.open(slots=3)
    db.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT, at TIMESTAMP)")
    db.sql(f"CREATE MATERIALIZED VIEW m AS {QUERY}")
    db.sql("CREATE MATERIALIZED VIEW days AS SELECT at::DATE AS day, max(v) AS v FROM t GROUP BY at::DATE")
    db.sql("INSERT INTO t VALUES (1, 2, '2026-01-01'), (2, 3, NULL)")
    db.flush()
    assert store.tasks
    for task in store.tasks:
        again = EpochTask.from_bytes(task.to_bytes())
        assert again.to_bytes() == task.to_bytes()
        plain = [replace(spec, vnodes=None, inputs=()) for spec in task.actors]
        assert [replace(spec, vnodes=None, inputs=()) for spec in again.actors] == plain
        assert all((one.vnodes is None) == (other.vnodes is None) and (one.vnodes is None or (
            one.vnodes == other.vnodes).all()) for one, other in zip(task.actors, again.actors, strict=True))
        assert Epoch(task.epoch.prev) < task.epoch.curr < task.next_epoch


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (TaskFailure(7, "stream.errors", "MalformedRows", "split 'p0': no record", ("p0", "12")), MalformedRows),
        (TaskFailure(7, "stream.errors", "ConnectorError", "gone"), ConnectorError),
        (TaskFailure(7, "builtins", "ZeroDivisionError", "by zero"), ZeroDivisionError),
        (TaskFailure(7, "a.program.of.a.user", "Oops", "it is so"), Exception),
    ],
)
def test_the_error_of_an_actor_elsewhere_is_of_its_class_here(failure, kind):
    error = failed_actor(failure)
    assert isinstance(error, ActorFailed) and error.actor_id == 7 and isinstance(error.__cause__, kind)
    assert failure.text in str(error.__cause__)
    assert error.position == failure.position


def test_a_statement_to_a_dropped_table_is_refused(store):
    db = store.open(slots=1)
    db.sql("CREATE TABLE t (k BIGINT PRIMARY KEY)")
    table = db.table("t")
    db.sql("DROP TABLE t")
    with pytest.raises((InvalidStatement, CatalogError)):
        table.insert([(1,)])


def test_splits_that_were_read_to_their_ends_are_not_opened_again(store, tmp_path):
    def add(name, rows):
        (tmp_path / f"{name}.csv").write_text("k\n" + "\n".join(map(str, rows)) + "\n")

    add("a", range(10))
    db = store.open(slots=2, split_discovery_ms=1)
    db.sql(f"CREATE SOURCE s (k BIGINT) WITH (connector = 'csv', path = '{tmp_path}')")
    db.sql("CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n, sum(k) AS k FROM s")
    for _ in range(3):
        db.flush()
    assert rows(db, "SELECT * FROM m") == [(10, 45)]
    store.tasks.clear()
    db.flush()
    assert not store.tasks, "there is nothing to read"
    add("b", range(100, 103))
    for _ in range(3):
        db.flush()
        time.sleep(0.005)
    opened = {split for task in store.tasks for spec in task.actors for split in spec.splits or ()}
    assert rows(db, "SELECT * FROM m") == [(13, 348)] and opened == {"b.csv"}
    db.close()
    db = store.open(slots=1)
    db.flush()
    assert rows(db, "SELECT * FROM m") == [(13, 348)]


# -- threads of a task, and what it leaves ---------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 3, 300])
def test_the_parts_of_actors_have_each_vnode_and_each_split_once(store, threads):
    db = store.open(slots=1)
    db.sql("CREATE SOURCE s (auction BIGINT, price BIGINT) WITH (connector = 'nexmark', events = '0', splits = '5')")
    db.sql("CREATE MATERIALIZED VIEW m AS WITH c AS (SELECT auction AS a, price AS b FROM s) "
           "SELECT a, b FROM c UNION ALL SELECT a, count(*) FROM c GROUP BY a")
    db.sql("CREATE MATERIALIZED VIEW whole AS SELECT count(*) AS n FROM m")
    graph = graph_of(db, is_shuffled=False)
    (segment,) = graph.segments
    actors = graph.actors_of(segment, 0, graph.task_counts(1), {})
    divided = ParallelActors(actors, threads)
    by_id = {spec.actor_id: spec for spec in divided.specs}
    assert len(by_id) == len(divided.specs) and max(by_id) < 1 << 31
    for spec in actors:
        parts = [by_id[part] for part in divided.parts(spec.actor_id)]
        assert {divided.whole(part.actor_id) for part in parts} == {spec.actor_id}
        assert [(part.number, part.siblings) for part in parts] == [(at, len(parts)) for at in range(len(parts))]
        if spec.vnodes is not None:
            assert (sum(part.vnodes.astype(int) for part in parts) == spec.vnodes).all()
            assert all(part.vnodes.any() for part in parts)
        if spec.splits is not None:
            assert sorted(split for part in parts for split in part.splits) == sorted(spec.splits)
            assert len(parts) == min(threads, 5)
    for part in divided.specs:
        for input in part.inputs:
            owners = input.edge.vnode_map
            if owners is not None:
                assert (owners.bitmap_of(part.actor_id)[part.vnodes == 1] == 1).all()
            elif part.vnodes is not None and part.siblings > 1:
                (upstream,) = input.upstreams
                assert (by_id[upstream].number, by_id[upstream].siblings) == (part.number, part.siblings)


def test_a_watermark_of_a_source_has_one_reader_whatever_the_threads(store):
    db = store.open(slots=1)
    db.sql("CREATE SOURCE s (auction BIGINT, date_time TIMESTAMP, WATERMARK FOR date_time AS date_time - INTERVAL '4' "
           "SECOND) WITH (connector = 'nexmark', events = '0', splits = '5')")
    db.sql("CREATE MATERIALIZED VIEW m AS SELECT auction, count(*) AS n FROM s GROUP BY auction")
    graph = graph_of(db, is_shuffled=False)
    divided = ParallelActors(graph.actors_of(graph.segments[0], 0, graph.task_counts(1), {}), 3)
    assert [part.siblings for part in divided.specs if part.splits is not None] == [1]
    assert max(part.siblings for part in divided.specs) == 3


@pytest.mark.parametrize(("slots", "threads", "processes"), [(1, 3, 1), (1, 2, 2), (2, 2, 1), (3, 1, 2)])
def test_groups_stay_in_the_process_of_a_task_until_others_have_changed_them(store, slots, threads, processes):
    rng = random.Random(run_seed())
    db = store.open(slots=slots, threads=threads, processes=processes)
    db.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)")
    db.sql(f"CREATE MATERIALIZED VIEW m AS {QUERY}")
    db.sql("CREATE MATERIALIZED VIEW whole AS SELECT sum(n) AS n, max(s) AS s FROM m")
    model: dict[int, int] = {}
    for epoch in range(2 * WIDENED):
        if epoch == WIDENED:
            db.sql("ALTER TABLE t ADD COLUMN w BIGINT")
        for _ in range(rng.randint(0, 2)):
            first, value = rng.randrange(100), rng.randrange(50)
            keys = range(first, first + rng.randint(1, 30))
            db.sql(f"DELETE FROM t WHERE k >= {keys[0]} AND k <= {keys[-1]}")
            model = {k: v for k, v in model.items() if k not in keys}
            if rng.random() < 0.7:
                db.table("t").insert([(k, value, *([None] if epoch >= WIDENED else [])) for k in keys])
                model |= dict.fromkeys(keys, value)
        db.flush()
        groups = {}
        for k, v in model.items():
            groups.setdefault(v % 7, []).append((k, v))
        assert rows(db, "SELECT g, n, s, low FROM m") == sorted(
            ((g, len(found), sum(v for _, v in found), min(k for k, _ in found)) for g, found in groups.items()),
            key=repr)
        assert rows(db, "SELECT n FROM whole") == [(len(model) or None,)]
    assert store.counts["groups found"] > 0


def test_groups_are_used_by_the_attempt_that_counts_and_within_a_budget():
    def groups(size):
        return SimpleNamespace(size_bytes=size, release=lambda: None)

    kept, states = KeptGroups(100), [("file:///s", table, b"") for table in range(4)]
    first, second = groups(60), groups(40)
    kept.leave(states[0], "a", first)
    assert kept.take(states[0], "b") is None and kept.take(states[0], "a") is None, "dropped with the wrong attempt"
    kept.leave(states[0], "a", first)
    kept.leave(states[0], "c", second)
    assert kept.take(states[0], "a") is None
    kept.leave(states[0], "a", first)
    assert kept.take(("file:///other", 0, b""), "a") is None and kept.take(states[0], "a") is first
    assert kept.take(states[0], "a") is None, "once"
    for table, size in enumerate((60, 40, 30)):
        kept.leave(states[table], "a", groups(size))
    assert kept.size_bytes == 70 and kept.take(states[0], "a") is None, "the oldest ones have gone"
    kept.leave(states[3], "a", groups(101))
    assert kept.size_bytes == 70, "too large to be kept, and nothing else has to go"
    kept.clear()
    assert kept.size_bytes == 0


def test_a_connector_that_cannot_be_opened_fails_its_job_alone(store, monkeypatch):
    db = store.open(slots=2)
    db.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)")
    db.sql(f"CREATE MATERIALIZED VIEW m AS {QUERY}")
    db.sql("CREATE SOURCE s (auction BIGINT) WITH (connector = 'nexmark', events = '0', splits = '2')")
    db.sql("CREATE MATERIALIZED VIEW lost AS SELECT auction, count(*) AS n FROM s GROUP BY auction")
    db.flush()

    def refused(table):
        raise ConnectorError("nexmark", "out of reach")

    for module in ("stream.spark.epoch_run", "stream.worker.actor_builder"):
        monkeypatch.setattr(f"{module}.connector_of", refused)
    db.sql("INSERT INTO t VALUES (1, 2)")
    db.flush()
    assert rows(db, "SELECT g, n FROM m") == [(2, 1)] and [db.failed_jobs[0].reason] == [
        "ConnectorError: connector 'nexmark': out of reach"]
