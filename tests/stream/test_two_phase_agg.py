"""Two-phase aggregation in process: the answers of one phase at any parallelism, over rescaling and recovery."""

import random

import numpy as np
import pyarrow as pa
import pytest

import stream
from stream.executor import partial_agg as partial_agg_module
from stream.executor.partial_agg import PartialAggExecutor
from tests.support.drivers.seeds import amount, run_seed

PHASES = {
    "one": "SET enable_two_phase_agg = false",
    "adaptive": "SET enable_two_phase_agg = true; SET force_two_phase_agg = false",
    "two": "SET enable_two_phase_agg = true; SET force_two_phase_agg = true",
}
VIEWS = {
    "whole": "SELECT count(*) AS n, sum(v) AS s, avg(v) AS a, count(*) FILTER (WHERE 60 / (v % 5) > 20) AS f FROM u",
    "few": "SELECT k % 3 AS g, count(*) AS n, sum(v * d) AS s, var_pop(v) AS p, bool_or(v > 50) AS b, "
           "bit_or(v) AS o FROM u GROUP BY k % 3",
    "many": "SELECT k, text, count(v) AS n, sum(v) FILTER (WHERE v > 20) AS s FROM u GROUP BY k, text",
    "both": "SELECT g, count(*) AS n FROM (SELECT k AS g FROM u UNION ALL SELECT v % 7 FROM u) AS x GROUP BY g",
    "kinds": "SELECT DISTINCT k % 4 AS g FROM u",
    "twice": "SELECT n, count(*) AS groups, sum(s) AS s FROM (SELECT k, count(*) AS n, sum(v) AS s FROM u GROUP BY k) "
             "AS x GROUP BY n",
    "sums": "SELECT count(*) AS n, sum(d) AS s FROM u",
    "appended": "SELECT min(v) AS low, max(d) AS high, count(*) AS n FROM log",
}


def connected(url, **options):
    return stream.connect(url, create=True, **{"barrier_interval_ms": amount(100, 20), "parallelism": 3, **options})


@pytest.fixture
def short_samples(monkeypatch):
    """Rows are passed on, and groups are tried again, all the time."""
    monkeypatch.setattr(partial_agg_module, "SAMPLE_ROWS", 16)
    monkeypatch.setattr(partial_agg_module, "FIRST_PASSED", 1)
    monkeypatch.setattr(partial_agg_module, "MOST_PASSED", 4)


def create(db):
    """`u` has the rows of `t` in several actors."""
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, v BIGINT, d NUMERIC(12, 2), text VARCHAR)")
    db.sql("CREATE MATERIALIZED VIEW u AS SELECT id, max(k) AS k, max(v) AS v, max(d) AS d, max(text) AS text FROM t "
           "GROUP BY id")
    db.sql("CREATE TABLE log (v BIGINT, d NUMERIC(12, 2)) APPEND ONLY")
    for phases, settings in PHASES.items():
        db.sql(settings)
        for name, query in VIEWS.items():
            db.sql(f"CREATE MATERIALIZED VIEW {name}_{phases} AS {query}")


def insert(db, ids):
    ids = np.asarray(ids)
    ks = pa.array(ids % 17, mask=ids % 13 == 0)
    cents = pa.array((ids % 977).astype(np.int32)).cast(pa.decimal128(12, 2))
    text = pa.array([None if each % 5 == 0 else "ab" * (each % 3) for each in ids.tolist()])
    db.table("t").insert(pa.table({"id": ids, "k": ks, "v": ids * 7 % 100, "d": cents, "text": text}))
    db.table("log").insert(pa.table({"v": ids * 7 % 100, "d": cents}))


def change(db, rng):
    """A random statement."""
    if rng.random() < 0.5:
        first = rng.randrange(1 << 40)
        insert(db, range(first, first + rng.choice([1, 30, 300])))
    elif rng.random() < 0.5:
        db.sql(f"DELETE FROM t WHERE id % {rng.choice([7, 31])} = {rng.randrange(7)}")
    else:
        db.sql(f"UPDATE t SET v = v + {rng.randrange(50)}, k = k + 1 WHERE id % 11 = {rng.randrange(11)}")


def bag(db, query):
    return sorted((tuple(row.values()) for row in db.sql(query).rows()), key=repr)


def check(db):
    """Each view has the answer of its query, and the three of a query have the same errors."""
    errors = {}
    for row in db.errors().to_pylist():
        name, _, phases = row["job"].rpartition("_")
        errors.setdefault(phases, {})[name, row["reason"]] = row["rows"]
    for name, query in VIEWS.items():
        if name not in ("whole", "few"):
            expected = bag(db, query)
            for phases in PHASES:
                assert bag(db, f"SELECT * FROM {name}_{phases}") == expected, (name, phases)
        found = [bag(db, f"SELECT * FROM {name}_{phases}") for phases in PHASES]
        assert found[0] == found[1] == found[2], name
    assert errors.get("one") == errors.get("adaptive") == errors.get("two")
    return errors


@pytest.mark.usefixtures("short_samples")
def test_views_in_two_phases_equal_those_in_one(tmp_path):
    rng, url = random.Random(run_seed()), f"file://{tmp_path}"
    db = connected(url)
    create(db)
    for turn in range(amount(2, 12)):
        for _ in range(6):
            change(db, rng)
        db.flush()
        errors = check(db)
        for name in ("whole_adaptive", "few_two", "many_adaptive"):
            db.sql(f"ALTER MATERIALIZED VIEW {name} SET PARALLELISM = {rng.choice([1, 2, 5])}")
        change(db, rng)
        if turn % 2:
            db.close()
            db = connected(url)
        db.flush()
        check(db)
    assert errors, "FILTER divides by zero"
    db.close()


@pytest.mark.parametrize(("phases", "table", "combined"), [
    ("one", "u", 0), ("adaptive", "u", 400), ("two", "u", 400), ("adaptive", "t", 0), ("two", "t", 400)])
def test_several_senders_make_groups_of_their_rows(monkeypatch, phases, table, combined):
    """The rows of table t come from one actor, those of view u from three."""
    made = []
    monkeypatch.setattr(PartialAggExecutor, "_apply", _counting(made, PartialAggExecutor._apply))
    with connected("memory://") as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        db.sql(PHASES["one"])
        db.sql("CREATE MATERIALIZED VIEW u AS SELECT id, sum(v)::bigint AS v FROM t GROUP BY id")
        db.sql(PHASES[phases])
        db.sql(f"CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n, sum(v) AS s FROM {table}")
        db.table("t").insert(pa.table({"id": range(400), "v": range(400)}))
        db.flush()
        assert bag(db, "SELECT n, s FROM m") == [(400, sum(range(400)))]
    assert sum(made) == combined


def _counting(made, apply):
    def counted(self, chunk):
        made.append(chunk.visible_rows)
        apply(self, chunk)

    return counted


def test_the_groups_of_a_sender_are_shown():
    with connected("memory://") as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        db.sql(PHASES["two"])
        db.sql("CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n FROM t GROUP BY v")
        db.table("t").insert(pa.table({"id": range(40), "v": range(40)}))
        db.flush()
        states = {each["state"]: each for each in db.sql("SHOW MEMORY FROM m").to_pylist()}
        assert states["groups"]["rows"] == 40
        assert states["groups to send"]["rows"] == 0 and states["groups to send"]["budget_bytes"] == 16 << 20


@pytest.mark.parametrize("phases", PHASES)
def test_windows_are_emitted_when_they_close(phases):
    with connected("memory://") as db:
        db.sql("CREATE TABLE t (at TIMESTAMP, v BIGINT, WATERMARK FOR at AS at - INTERVAL '1 second') APPEND ONLY")
        db.sql(PHASES[phases])
        db.sql("CREATE MATERIALIZED VIEW m AS SELECT window_start, count(*) AS n, sum(v) AS s "
               "FROM TUMBLE(t, at, INTERVAL '10 seconds') GROUP BY window_start EMIT ON WINDOW CLOSE")
        for second in range(0, 40, 5):
            db.sql(f"INSERT INTO t VALUES ('2024-01-01 00:00:{second:02}', {second}), "
                   f"('2024-01-01 00:00:{second + 1:02}', 1)")
            db.flush()
        db.flush()
        found = [(row[0].second, *row[1:]) for row in bag(db, "SELECT window_start, n, s FROM m")]
        assert found == [(0, 4, 7), (10, 4, 27), (20, 4, 47)]


def test_keys_that_are_too_long_are_dropped_and_counted_once():
    with connected("memory://") as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, text VARCHAR)")
        for phases, settings in PHASES.items():
            db.sql(settings)
            db.sql(f"CREATE MATERIALIZED VIEW m_{phases} AS SELECT text, count(*) AS n FROM t GROUP BY text")
        db.table("t").insert([(number, "x" * (1 << 20) if number % 10 == 0 else "ab") for number in range(40)])
        db.flush()
        assert {row["job"]: row["rows"] for row in db.errors().to_pylist()} == dict.fromkeys(
            (f"m_{phases}" for phases in PHASES), 4)
        assert [bag(db, f"SELECT text, n FROM m_{phases}") for phases in PHASES] == [[("ab", 36)]] * 3
