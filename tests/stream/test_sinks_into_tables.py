"""CREATE SINK … INTO: the changes of a query become rows of a table, once, in the epoch in which they happen."""

from __future__ import annotations

import random
import threading

import pytest

import stream
from relational.errors import BindError, DependencyError
from stream.errors import BulkLoadRefused, InvalidStatement, JobFailed, JobNotRunning
from tests.stream.test_sources import bids, connected
from tests.support.drivers.seeds import run_seed
from tests.support.drivers.waiting import eventually

OVERWRITE = "ON CONFLICT OVERWRITE"


@pytest.fixture
def db(tmp_path):
    with connected(tmp_path / "store", parallelism=2) as session:
        session.sql("CREATE TABLE u (id BIGINT PRIMARY KEY, k BIGINT, v INT)")
        yield session


def rows(db, query):
    return sorted(tuple(row.values()) for row in db.sql(query).rows())


def job(db, name):
    return next(row for row in db.sql("SHOW JOBS").to_pylist() if row["name"] == name)


def test_existing_rows_changes_and_other_writers_meet_in_the_table(db):
    db.sql("INSERT INTO u VALUES (1, 1, 5), (2, 1, 6), (3, 2, 7); FLUSH")
    db.sql(f"CREATE TABLE t (k BIGINT PRIMARY KEY, n BIGINT, note VARCHAR DEFAULT 'sunk') {OVERWRITE}")
    db.sql("CREATE MATERIALIZED VIEW above AS SELECT COUNT(*) AS c, SUM(n) AS n FROM t")
    db.sql("INSERT INTO t VALUES (9, 90, 'own'), (2, 20, 'own'); FLUSH")
    db.sql("CREATE SINK s INTO t AS SELECT k, COUNT(*) AS n FROM u GROUP BY k")
    assert rows(db, "SELECT * FROM t") == [(1, 2, "sunk"), (2, 1, "sunk"), (9, 90, "own")]
    db.sql("DELETE FROM u WHERE id = 3; INSERT INTO u VALUES (4, 1, 0), (5, 5, 0)")
    db.sql("UPDATE t SET note = 'me' WHERE k = 9")
    db.sql("INSERT INTO t VALUES (10, 100, 'own'); FLUSH")
    assert rows(db, "SELECT * FROM t") == [(1, 3, "sunk"), (5, 1, "sunk"), (9, 90, "me"), (10, 100, "own")]
    assert rows(db, "SELECT * FROM above") == [(4, 194)]
    assert rows(db, "SELECT inserted - deleted FROM s") == [(2,)]
    shown = next(row for row in db.sql("SHOW SINKS").to_pylist() if row["name"] == "s")
    assert shown["definition"].startswith("CREATE SINK s INTO t") and shown["rows"] is None


def test_columns_by_name_by_list_and_from_a_view(db):
    db.sql(f"CREATE TABLE t (a INT, b BIGINT PRIMARY KEY, c NUMERIC(10, 2) DEFAULT 7, d INT DEFAULT 8) {OVERWRITE}")
    db.sql("CREATE VIEW named AS SELECT v AS c, id AS b, v AS a FROM u WHERE v < 100")
    db.sql("CREATE SINK by_name INTO t FROM named")
    db.sql("CREATE SINK by_list INTO t (d, b) AS SELECT v, id FROM u WHERE v >= 100")
    db.sql("INSERT INTO u VALUES (1, 0, 5), (2, 0, 200); FLUSH")
    assert rows(db, "SELECT b, a, c, d FROM t") == [(1, 5, 5, 8), (2, None, 7, 200)]
    for value in (6, 300, 6):  # the row passes from one sink to the other
        db.sql(f"UPDATE u SET v = {value} WHERE id = 2; FLUSH")
        assert len(rows(db, "SELECT b FROM t")) == 2
    db.create_sink("fluent", db.sql("SELECT id + 10, v FROM u"), into="t", columns=["b", "d"])
    assert rows(db, "SELECT b, d FROM t") == [(1, 8), (2, 8), (11, 5), (12, 6)]
    with pytest.raises(BindError, match="either"):
        db.create_sink("none", db.sql("SELECT id FROM u"))


def test_a_table_without_a_key_takes_rows_that_are_only_inserted(tmp_path, db):
    import pyarrow as pa

    (tmp_path / "bids").mkdir()
    with pa.OSFile(str(tmp_path / "bids" / "1.arrow"), "wb") as file, pa.ipc.new_file(file, bids(3_000).schema) as out:
        out.write_table(bids(3_000))
    db.sql(f"CREATE SOURCE bid (id BIGINT, price BIGINT) WITH (connector = 'arrow', path = '{tmp_path}/bids')")
    db.sql("CREATE TABLE kept (id BIGINT, price BIGINT)")
    db.sql("CREATE TABLE log (id BIGINT PRIMARY KEY, price BIGINT) APPEND ONLY")
    db.sql("CREATE MATERIALIZED VIEW total AS SELECT COUNT(*) AS n, SUM(id) AS ids FROM kept")
    db.sql("CREATE SINK s INTO kept FROM bid")
    db.sql("CREATE SINK dear INTO log AS SELECT id, price FROM bid WHERE price > 990")
    db.sql("INSERT INTO kept VALUES (1000000, 1)")
    expected = [(3_001, sum(range(3_000)) + 1_000_000)]
    eventually(lambda: rows(db, "SELECT * FROM total") == expected)
    dear = [(row["id"],) for row in bids(3_000).to_pylist() if row["price"] > 990]
    eventually(lambda: rows(db, "SELECT id FROM log") == dear)


def key_moves(db, rng):
    """Updates that pass keys of the table from one row of the query to another, in one epoch."""
    ids = rng.sample(range(8), rng.randrange(1, 4))
    first = [db.sql(f"SELECT k FROM u WHERE id = {each}").rows()[0]["k"] for each in ids]
    moves = " ".join(f"WHEN {each} THEN {key}" for each, key in zip(ids, first[1:] + first[:1], strict=True))
    db.sql(f"UPDATE u SET k = CASE id {moves} END, v = v + 1 WHERE id IN ({', '.join(map(str, ids))})")


def test_a_key_may_pass_from_one_row_to_another_within_an_epoch(db):
    rng = random.Random(run_seed())
    db.sql("INSERT INTO u VALUES " + ", ".join(f"({n}, {n}, 0)" for n in range(8)) + "; FLUSH")
    db.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, id BIGINT, v INT)")
    db.sql("CREATE SINK s INTO t AS SELECT k, id, v FROM u")
    for _ in range(25):
        key_moves(db, rng)
        db.flush()
        assert rows(db, "SELECT k, id, v FROM t") == rows(db, "SELECT k, id, v FROM u")
    assert job(db, "s")["state"] == job(db, "t")["state"] == "RUNNING"


def step(db, rng, number):
    kind = rng.random()
    if kind < 0.2:
        db.sql(f"DELETE FROM u WHERE id = {rng.randrange(30)}")
    elif kind < 0.4:
        first = rng.randrange(30)
        db.sql(f"INSERT INTO u VALUES {', '.join(f'({n}, {n % 7}, {number})' for n in range(first, first + 3))}")
    elif kind < 0.6:
        db.sql(f"UPDATE u SET k = {rng.randrange(7)}, v = {number} WHERE id % 5 = {rng.randrange(5)}")
    elif kind < 0.7:
        db.sql(f"INSERT INTO t VALUES ({1_000 + number}, 0, 'own')")
    elif kind < 0.8:
        db.sql(f"DELETE FROM t WHERE k >= 1000 AND k % 3 = {rng.randrange(3)}")
    elif kind < 0.88:
        scaled = rng.choice(("SINK s", "SINK per_id", "MATERIALIZED VIEW groups"))
        db.sql(f"ALTER {scaled} SET PARALLELISM = {rng.randrange(1, 4)}")
    elif kind < 0.94:
        db._playground.meta.fail(RuntimeError("a recovery"))
    else:
        db.flush()


def check(db):
    db.flush()
    found = db.sql("SELECT k, n, tag FROM t").rows()
    own = [(row["k"], row["n"], "own") for row in found if row["k"] >= 1_000]
    sunk = [(k, n, "group") for k, n in rows(db, "SELECT k, COUNT(*) FROM u GROUP BY k")]
    sunk += [(100 + id, v, "id") for id, v in rows(db, "SELECT id, v FROM u WHERE v % 2 = 0")]
    assert sorted(tuple(row.values()) for row in found) == sorted(own + sunk)
    assert rows(db, "SELECT * FROM above") == [(len(found), sum(row["n"] for row in found) if found else None)]


def test_random_work_recoveries_and_rescales_leave_what_the_queries_say(tmp_path):
    rng = random.Random(run_seed())
    for round in range(3):
        with connected(tmp_path, parallelism=2) as db:
            if not round:
                db.sql(f"CREATE TABLE u (id BIGINT PRIMARY KEY, k BIGINT, v INT) {OVERWRITE}")
                db.sql("INSERT INTO u VALUES (1, 1, 1), (2, 2, 2); FLUSH")
                db.sql(f"CREATE TABLE t (k BIGINT PRIMARY KEY, n BIGINT, tag VARCHAR) {OVERWRITE}")
                db.sql("CREATE MATERIALIZED VIEW above AS SELECT COUNT(*) AS c, SUM(n) AS n FROM t")
                db.sql("CREATE MATERIALIZED VIEW groups AS SELECT k, COUNT(*) AS n FROM u GROUP BY k")
                db.sql("CREATE SINK s INTO t AS SELECT k, n, 'group' AS tag FROM groups")
                db.sql("CREATE SINK per_id INTO t AS SELECT 100 + id AS k, v AS n, 'id' AS tag FROM u WHERE v % 2 = 0")
            for number in range(30):
                step(db, rng, 100 * round + number)
                if rng.random() < 0.3:
                    check(db)
            check(db)
            if round == 1:
                db.sql("INSERT INTO t VALUES (5000, 1, 'own')")  # lost, unless a barrier of the interval came between
                db.abandon()


def test_a_large_table_is_read_while_statements_go_on(db):
    db.sql("CREATE TABLE big (id BIGINT PRIMARY KEY, v BIGINT)")
    for first in range(0, 60_000, 20_000):
        db.sql("INSERT INTO big VALUES " + ", ".join(f"({n}, {n % 10})" for n in range(first, first + 20_000)))
    db.flush()
    db.sql(f"CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT) {OVERWRITE}")
    made = threading.Thread(target=lambda: db.sql("CREATE SINK s INTO t FROM big"))
    made.start()
    for number in range(20):
        db.sql(f"UPDATE big SET v = {number} WHERE id = {number * 2_999}; INSERT INTO t VALUES ({-number - 1}, 0)")
    made.join()
    db.flush()
    assert rows(db, "SELECT COUNT(*), SUM(v) FROM t WHERE id >= 0") == rows(db, "SELECT COUNT(*), SUM(v) FROM big")
    assert rows(db, "SELECT COUNT(*) FROM t WHERE id < 0") == [(20,)]


@pytest.mark.parametrize(
    ("columns", "cause", "reason", "cure"),
    [
        ("(k, n)", "INSERT INTO t VALUES (2, 0)", "DuplicateKey", "DELETE FROM t WHERE k = 2"),
        ("(k, n)", "INSERT INTO u VALUES (9, NULL, 1)", "part of the primary key", "DELETE FROM u WHERE id = 9"),
    ],
)
def test_rows_that_the_table_cannot_hold_set_the_sink_aside_and_not_the_table(db, columns, cause, reason, cure):
    db.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, n BIGINT)")
    db.sql("CREATE MATERIALIZED VIEW above AS SELECT COUNT(*) AS c FROM t")
    db.sql(f"CREATE SINK s INTO t {columns} AS SELECT k, COUNT(*) FROM u GROUP BY k")
    db.sql("INSERT INTO u VALUES (1, 1, 0); FLUSH")
    db.sql(cause)
    db.sql("INSERT INTO u VALUES (2, 2, 0)")
    eventually(lambda: job(db, "s")["state"] == "FAILED")
    assert reason in job(db, "s")["reason"] and job(db, "t")["state"] == job(db, "above")["state"] == "RUNNING"
    db.sql("INSERT INTO u VALUES (3, 1, 0); INSERT INTO t VALUES (77, 7); FLUSH")
    assert (77, 7) in rows(db, "SELECT * FROM t") and (1, 1) in rows(db, "SELECT * FROM t")
    with pytest.raises(JobFailed):
        db.sql("SELECT * FROM s").to_arrow()
    db.sql(f"{cure}; ALTER SINK s RESUME; FLUSH")
    eventually(lambda: rows(db, "SELECT * FROM t") == [(1, 2), (2, 1), (77, 7)])
    assert rows(db, "SELECT * FROM above") == [(3,)] and job(db, "s")["state"] == "RUNNING"


def set_aside(db, name):
    meta, known = db._playground.meta, db._playground.catalog.snapshot
    meta.failures.refuse({db._playground.catalog.resolve(name).id: ValueError("broken")}, known,
                         db._playground.storage.committed_epoch)
    meta.fail(RuntimeError("a recovery"))
    db.flush()


def test_a_table_that_is_set_aside_takes_its_sinks_along(db):
    db.sql(f"CREATE TABLE t (id BIGINT PRIMARY KEY, v INT) {OVERWRITE}")
    db.sql("CREATE SINK s INTO t AS SELECT id, v FROM u")
    db.sql("INSERT INTO u VALUES (1, 1, 1); FLUSH")
    set_aside(db, "t")
    assert job(db, "s")["state"] == "FAILED" and "'t', which was set aside" in job(db, "s")["reason"]
    db.sql("INSERT INTO u VALUES (2, 2, 2); DELETE FROM u WHERE id = 1; FLUSH")
    with pytest.raises(JobNotRunning):
        db.sql("ALTER SINK s RESUME")
    db.sql("ALTER TABLE t RESUME; FLUSH")
    eventually(lambda: rows(db, "SELECT * FROM t") == [(2, 2)])


def test_a_sink_whose_history_is_gone_is_not_built_anew(tmp_path):
    with connected(tmp_path, failed_job_history_ms=0) as db:
        db.sql("CREATE TABLE u (id BIGINT PRIMARY KEY, v INT)")
        db.sql(f"CREATE TABLE t (id BIGINT PRIMARY KEY, v INT) {OVERWRITE}")
        db.sql("CREATE SINK s INTO t FROM u")
        set_aside(db, "s")
        for number in range(3):
            db.sql(f"INSERT INTO u VALUES ({number}, 0); FLUSH")
        with pytest.raises(InvalidStatement, match="cannot be built anew"):
            db.sql("ALTER SINK s RESUME")
        db.sql("DROP SINK s; CREATE SINK s INTO t FROM u")
        assert len(rows(db, "SELECT * FROM t")) == 3


def test_cycles_are_refused_however_long(db):
    db.sql(f"CREATE TABLE a (id BIGINT PRIMARY KEY) {OVERWRITE}")
    db.sql(f"CREATE TABLE b (id BIGINT PRIMARY KEY) {OVERWRITE}")
    db.sql("CREATE MATERIALIZED VIEW va AS SELECT id FROM a")
    db.sql("CREATE SINK ab INTO b AS SELECT id FROM va")
    db.sql("CREATE VIEW vb AS SELECT id FROM b")
    union = "SELECT k AS id FROM u UNION ALL SELECT id FROM b"
    for query in ("SELECT id FROM vb", "SELECT id FROM b", "SELECT id FROM a", union):
        with pytest.raises(BindError, match="reads table 'a', directly or through others"):
            db.sql(f"CREATE SINK back INTO a AS {query}")
    db.sql("DROP SINK ab; CREATE SINK ba INTO a AS SELECT id FROM vb")
    db.sql("INSERT INTO b VALUES (1); FLUSH")
    assert rows(db, "SELECT * FROM va") == [(1,)]


def test_two_statements_that_would_close_a_cycle_together(db):
    db.sql(f"CREATE TABLE a (id BIGINT PRIMARY KEY) {OVERWRITE}; CREATE TABLE b (id BIGINT PRIMARY KEY) {OVERWRITE}")
    from relational.sql import bind_sql

    known = db._playground.catalog
    (first,), (second,) = (
        list(bind_sql(f"CREATE SINK s{into} INTO {into} FROM {of}", known)) for into, of in ("ab", "ba")
    )
    db._playground.meta.ddl.create_job(first.sink)
    with pytest.raises(BindError, match="reads table 'b'"):
        db._playground.meta.ddl.create_job(second.sink)


def test_drops_and_alters(db):
    db.sql(f"CREATE TABLE t (id BIGINT PRIMARY KEY, v INT, w INT) {OVERWRITE}")
    db.sql("CREATE SINK s INTO t AS SELECT id, v FROM u")
    db.sql("CREATE MATERIALIZED VIEW above AS SELECT COUNT(*) AS n FROM t")
    with pytest.raises(DependencyError, match="written by above, s"):
        db.sql("DROP TABLE t")
    with pytest.raises(DependencyError, match="s; DROP COLUMN"):
        db.sql("ALTER TABLE t DROP COLUMN v")
    db.sql("ALTER TABLE t DROP COLUMN w; ALTER TABLE t ADD COLUMN z INT DEFAULT 3")
    db.sql("INSERT INTO u VALUES (1, 1, 1); FLUSH")
    assert rows(db, "SELECT * FROM t") == [(1, 1, 3)]
    db.sql("DROP SINK s; INSERT INTO u VALUES (2, 2, 2); INSERT INTO t VALUES (5, 5, 5); FLUSH")
    assert rows(db, "SELECT id FROM t") == [(1,), (5,)] and rows(db, "SELECT * FROM above") == [(2,)]
    db.sql("CREATE SINK s INTO t AS SELECT id, v FROM u; ALTER TABLE t DROP COLUMN v CASCADE")
    assert "s" not in db.names() and rows(db, "SELECT id FROM t") == [(1,), (2,), (5,)]
    db.sql("CREATE SINK s INTO t AS SELECT id FROM u; DROP TABLE u CASCADE; INSERT INTO t VALUES (6, 6); FLUSH")
    assert "s" not in db.names() and len(rows(db, "SELECT id FROM t")) == 4
    db.sql("CREATE TABLE w (id BIGINT PRIMARY KEY); CREATE SINK s INTO t FROM w; DROP TABLE t CASCADE")
    assert db.names() == ("w",)


def test_what_cannot_be_over_or_beside_a_sink(db):
    db.sql(f"CREATE TABLE t (id BIGINT PRIMARY KEY) {OVERWRITE}; CREATE SINK s INTO t AS SELECT id FROM u")
    with pytest.raises(BindError, match="is a sink"):
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT inserted FROM s")
    with pytest.raises(BulkLoadRefused, match="s writes it"):
        db._playground.meta.ddl.begin_load(db._playground.catalog.resolve("t").id)


def test_a_statement_on_rows_of_a_sink_survives_a_recovery_of_their_epoch(tmp_path):
    with connected(tmp_path, barrier_interval_ms=60_000) as db:
        db.sql("CREATE TABLE u (id BIGINT PRIMARY KEY, v INT)")
        db.sql(f"CREATE TABLE t (id BIGINT PRIMARY KEY, v INT) {OVERWRITE}")
        db.sql("CREATE MATERIALIZED VIEW above AS SELECT COUNT(*) AS n, SUM(v) AS v FROM t")
        db.sql("CREATE SINK s INTO t FROM u")
        db.sql("INSERT INTO u VALUES (1, 1), (2, 2)")
        eventually(lambda: db.sql("UPDATE t SET v = 10 WHERE id = 1") == 1)
        db.sql("DELETE FROM t WHERE id = 2; INSERT INTO t VALUES (3, 3)")
        db._playground.meta.fail(RuntimeError("a recovery"))
        db.flush()
        found = rows(db, "SELECT * FROM t")
        assert {each[0] for each in found} >= {1, 3} and set(found) <= {(1, 1), (1, 10), (2, 2), (3, 3)}
        assert rows(db, "SELECT * FROM above") == [(len(found), sum(v for _, v in found))]
        db.sql("UPDATE u SET v = 7; FLUSH")
        assert rows(db, "SELECT * FROM t") == [(1, 7), (2, 7), (3, 3)]
        assert rows(db, "SELECT * FROM above") == [(3, 17)]


def test_a_sink_appears_in_the_profile_of_its_table():
    with stream.connect("memory://", barrier_interval_ms=20) as db:
        db.sql("CREATE TABLE u (id BIGINT PRIMARY KEY)")
        db.sql(f"CREATE TABLE t (id BIGINT PRIMARY KEY) {OVERWRITE}; CREATE SINK s INTO t FROM u")
        assert db.analyze("s", seconds=0.01)["plan"].to_pylist()[1].startswith("  Sink s into t (id)")
        assert len(db.analyze("t", seconds=0.01)) == 3
