"""Jobs of several fragments and actors: equal results at any parallelism, rescaling, creation that stops nothing."""

import random
import threading
import time

import numpy as np
import pyarrow as pa
import pytest

import stream
from relational.errors import BindError, NotFound
from stream.errors import InvalidStatement
from stream.executor.materialize import MaterializeExecutor
from stream.message import Barrier
from stream.worker.compute_node import JOIN_SECONDS
from tests.support.drivers.seeds import amount, run_seed

SOON = 60.0
VIEWS = {
    "grouped": "SELECT k, COUNT(*) AS n, SUM(v) AS s, MIN(v) AS low, MAX(v) AS high FROM t GROUP BY k",
    "filtered": "SELECT id, v FROM t WHERE v > 40",
    "keyed": "SELECT id, COUNT(*) AS n FROM t GROUP BY id",
    "whole": "SELECT COUNT(*) AS n, SUM(v) AS s, MAX(k) AS high FROM t",
    "twice": "SELECT n, COUNT(*) AS groups FROM grouped GROUP BY n",
    "both": "SELECT id, v FROM t WHERE v < 30 UNION ALL SELECT k, v FROM t WHERE v > 60",
    "merged": "SELECT v, COUNT(*) AS n FROM (SELECT v FROM t UNION ALL SELECT high FROM grouped) AS x GROUP BY v",
    "shared": "WITH c AS (SELECT k, SUM(v) AS s FROM t GROUP BY k) "
              "SELECT k, s FROM c WHERE k < 8 UNION ALL SELECT k + 100, s FROM c",
    "nested": "SELECT v FROM t UNION SELECT x FROM (SELECT DISTINCT k AS x FROM t UNION ALL SELECT -v FROM t) AS both",
    "over": "SELECT high, SUM(n) AS n FROM grouped WHERE n > 1 GROUP BY high",
}


def connected(url="memory://", **options):
    return stream.connect(url, create=True, **{"barrier_interval_ms": 20, **options})


@pytest.fixture
def db():
    with connected(parallelism=2) as session:
        session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, v BIGINT)")
        yield session


def insert(db, ids):
    ids = np.asarray(ids)
    db.table("t").insert(pa.table({"id": ids, "k": ids % 17, "v": ids * 7 % 100}))


def change(db, rng):
    """A random statement."""
    if rng.random() < 0.4:
        first = rng.randrange(1 << 40)
        insert(db, range(first, first + rng.choice([1, 30, 300])))
    elif rng.random() < 0.5:
        db.sql(f"DELETE FROM t WHERE id % {rng.choice([7, 31])} = {rng.randrange(7)}")
    else:
        db.sql(f"UPDATE t SET v = v + {rng.randrange(50)}, k = k + 1 WHERE id % 11 = {rng.randrange(11)}")


def rows(result):
    return sorted((tuple(row.values()) for row in result.to_pylist()), key=repr)


def check_views(db, names=tuple(VIEWS)):
    """Each view equals its query, at one epoch."""
    db.flush()
    with db.at() as snapshot:
        for name in names:
            found, expected = (snapshot.sql(text).to_arrow() for text in (f"SELECT * FROM {name}", VIEWS[name]))
            assert rows(found) == rows(expected), name


@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_views_equal_their_queries_at_every_epoch(parallelism):
    rng = random.Random(run_seed() + parallelism)
    with connected(parallelism=parallelism) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, v BIGINT)")
        insert(db, range(500))
        for name, query in VIEWS.items():
            db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        for _ in range(amount(7, 15)):
            for _ in range(rng.randrange(4)):
                change(db, rng)
            check_views(db)


def test_a_view_may_scan_a_table_at_other_parallelism_than_it_is_written(db):
    for parallelism, (name, query) in zip((1, 3, 2, 1, 4, 2, 3, 1, 2, 3), VIEWS.items(), strict=True):
        db.sql(f"CREATE MATERIALIZED VIEW {name} WITH (parallelism = {parallelism}) AS {query}")
    insert(db, range(2_000))
    check_views(db)


def actors(db, name):
    job = db._playground.catalog.resolve(name).id
    return sum(each.spec.job_id == job for each in db._playground.node._running.values())


def test_parallelism_is_set_by_view_by_session_and_by_alter(db):
    query = VIEWS["grouped"]
    for name, how, setting in (("a", "", None), ("b", "WITH (parallelism = 3) ", None), ("c", "", 4)):
        db.sql(f"SET parallelism = {setting or 'DEFAULT'}")
        db.sql(f"CREATE MATERIALIZED VIEW {name} {how}AS {query}")
    assert [actors(db, name) for name in "abc"] == [1 + 2, 1 + 3, 1 + 4]
    db.sql("ALTER MATERIALIZED VIEW a SET PARALLELISM = 1; ALTER MATERIALIZED VIEW b SET PARALLELISM TO DEFAULT")
    assert [actors(db, name) for name in "ab"] == [1 + 1, 1 + 2]
    for wrong in ("0", "1025", "'x'", "-1"):
        with pytest.raises(BindError, match="parallelism"):
            db.sql(f"CREATE MATERIALIZED VIEW d WITH (parallelism = {wrong}) AS {query}" if wrong != "-1"
                   else "ALTER MATERIALIZED VIEW a SET PARALLELISM 99999999999")


def test_a_sink_has_a_parallelism_of_its_own(db):
    for name, parallelism in (("a", 1), ("b", 3)):
        db.sql(f"CREATE SINK {name} AS {VIEWS['grouped']} WITH (connector = 'digest', parallelism = {parallelism})")
    assert actors(db, "b") == actors(db, "a") + 2
    insert(db, range(100))
    db.flush()
    first, second = (db.sql(f"SELECT * FROM {name}").rows()[0]["digest"] for name in "ab")
    assert first == second
    with pytest.raises(BindError, match="parallelism"):
        db.sql("CREATE SINK d FROM t WITH (connector = 'digest', parallelism = 0)")


def test_a_table_keeps_its_one_actor(db):
    with pytest.raises(InvalidStatement, match="one actor"):
        db._playground.meta.ddl.set_parallelism(db._playground.catalog.resolve("t"), 3)


def test_a_rescaled_view_goes_on_from_its_state_and_so_do_its_readers(db):
    rng = random.Random(run_seed())
    insert(db, range(3_000))
    for name, query in VIEWS.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    for parallelism in (1, 8, 3, 8):
        change(db, rng)
        db.sql(f"ALTER MATERIALIZED VIEW grouped SET PARALLELISM = {parallelism}")
        db.sql(f"ALTER MATERIALIZED VIEW filtered SET PARALLELISM = {9 - parallelism}")
        change(db, rng)
        check_views(db)
    assert actors(db, "grouped") == 1 + 8


def test_a_view_that_was_dropped_meanwhile_is_not_rescaled(db):
    """After the statement has found it, and before it has the lock of DDL."""
    db.sql(f"CREATE MATERIALIZED VIEW grouped AS {VIEWS['grouped']}")
    found = db.table("grouped").table
    db.sql("DROP MATERIALIZED VIEW grouped")
    with pytest.raises(NotFound, match="'grouped' was dropped meanwhile"):
        db._playground.meta.ddl.set_parallelism(found, 3)


def test_the_parallelism_is_kept_over_a_restart(tmp_path):
    url = f"file://{tmp_path}"
    with connected(url, parallelism=2) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, v BIGINT)")
        db.sql(f"CREATE MATERIALIZED VIEW grouped AS {VIEWS['grouped']}")
        insert(db, range(100))
        db.sql("ALTER MATERIALIZED VIEW grouped SET PARALLELISM = 5")
    with connected(url, parallelism=1) as db:
        assert actors(db, "grouped") == 1 + 5
        insert(db, range(100, 200))
        check_views(db, ["grouped"])


def test_threads_do_not_follow_jobs(db):
    db.sql(f"CREATE MATERIALIZED VIEW v AS {VIEWS['grouped']}")
    before = threading.active_count()
    for number in range(20):
        db.sql(f"CREATE MATERIALIZED VIEW v{number} AS {VIEWS['grouped']}")
    assert threading.active_count() <= before


def test_rows_without_a_value_are_counted_over_all_actors_and_kept_over_a_rescale(db):
    db.sql("CREATE MATERIALIZED VIEW q AS SELECT id, 10 / v AS q FROM t")
    insert(db, range(0, 1_000, 100))
    db.flush()
    counted = db.sql("SHOW ERRORS").to_pylist()
    assert [(each["job"], each["rows"]) for each in counted] == [("q", 10)]
    for parallelism in (1, 5, 2):
        db.sql(f"ALTER MATERIALIZED VIEW q SET PARALLELISM = {parallelism}")
        insert(db, [100 * (1_000 + parallelism)])
        db.flush()
    assert [each["rows"] for each in db.sql("SHOW ERRORS").to_pylist()] == [13]
    db.sql("DELETE FROM t WHERE id < 500")
    db.flush()
    assert [each["rows"] for each in db.sql("SHOW ERRORS").to_pylist()] == [8]


def test_a_recovery_ends_actors_that_wait_for_those_they_replace(db, monkeypatch):
    """The actor that is replaced fails in the epoch that its last barrier would end."""
    insert(db, range(100))
    db.sql(f"CREATE MATERIALIZED VIEW grouped AS {VIEWS['grouped']}")
    failing = [True]
    commit = MaterializeExecutor.execute

    def execute(self):
        for message in commit(self):
            is_last = isinstance(message, Barrier) and message.stopped and failing
            if is_last and self._table.catalog.name == "grouped":
                failing.pop()
                raise RuntimeError("fails at its last barrier")
            yield message

    monkeypatch.setattr(MaterializeExecutor, "execute", execute)
    db._playground.meta.fail(RuntimeError("a failure of no job"))  # actors are rebuilt with the method above
    insert(db, range(100, 200))
    began = time.monotonic()
    db.sql("ALTER MATERIALIZED VIEW grouped SET PARALLELISM = 3")
    assert not failing and time.monotonic() - began < JOIN_SECONDS / 2
    check_views(db, ["grouped"])


@pytest.mark.parametrize("parallelism", [1, 3])
def test_views_over_an_index_follow_rows_that_move_between_its_actors(parallelism):
    """An update of an indexed column is a deletion in one actor of the index and an insertion in another."""
    rng = random.Random(f"{run_seed()} {parallelism}")
    queries = {"plain": "SELECT id, a FROM {}", "kept": "SELECT id, a, b FROM {} WHERE a % 2 = 0",
               "counted": "SELECT b, COUNT(*) AS n, MAX(a) AS high FROM {} GROUP BY b"}
    with connected(parallelism=parallelism, barrier_interval_ms=3_600_000) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)")
        db.sql("CREATE INDEX by_a ON t (a) INCLUDE (b)")
        for name, query in queries.items():
            db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query.format('by_a')}")
        db.sql("INSERT INTO t SELECT g, g, g % 3 FROM generate_series(1, 20) AS g")
        for _ in range(12):
            db.sql(f"UPDATE t SET a = a + {rng.randrange(1, 9)} WHERE id % 3 = {rng.randrange(3)}")
            db.flush()
            for name, query in queries.items():
                texts = f"SELECT * FROM {name}", query.format("t")
                found, wanted = (db.sql(text).to_arrow().to_pylist() for text in texts)
                assert sorted(found, key=repr) == sorted(wanted, key=repr), name
