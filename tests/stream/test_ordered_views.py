"""Views of arrays, joined texts, percentiles, first values, rows with the extreme of their group, bits, pairs and
grouping sets, on both engines, against DuckDB: rows are inserted, change their groups and go; groups are emptied;
caches evict everything; sessions end."""

import random
from contextlib import ExitStack
from datetime import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from relational.errors import BindError, EvaluationError
from tests.support.drivers.engine_store import EngineStore
from tests.support.drivers.seeds import amount, run_seed
from tests.support.suites.duck import answer, assert_same_rows, oracle, rows_of

TABLE = "CREATE TABLE t (id BIGINT PRIMARY KEY, g INT, h VARCHAR, x INT, d DOUBLE PRECISION, s VARCHAR, " \
        "n NUMERIC(10, 2), seen TIMESTAMP, l INT[])"
# DuckDB's sums of pairs lose digits where values of very different sizes cancel: those of "pairs" are of like sizes.
VIEWS = {
    "lists": "SELECT g, array_agg(x ORDER BY d DESC, id) AS a, array_agg(DISTINCT s ORDER BY s) AS b, "
             "array_agg(seen ORDER BY id DESC) FILTER (WHERE x > 1) AS c, array_agg(l ORDER BY id) AS e "
             "FROM t GROUP BY g",
    "texts": "SELECT h, g, string_agg(s, ', ' ORDER BY d NULLS FIRST, id) AS a, string_agg(DISTINCT h, '') AS b "
             "FROM t GROUP BY h, g",
    "middles": "SELECT g, percentile_cont(0.5) WITHIN GROUP (ORDER BY d) AS a, "
               "percentile_cont(0.25) WITHIN GROUP (ORDER BY x DESC) AS b, "
               "percentile_disc(0.9) WITHIN GROUP (ORDER BY n) AS c, "
               "percentile_disc(0.5) WITHIN GROUP (ORDER BY seen) AS e FROM t GROUP BY g",
    "firsts": "SELECT g, first(x ORDER BY d, id) AS a, last(s ORDER BY d, id) AS b, arg_min(s, id) AS c, "
              "max_by(d, id) FILTER (WHERE x < 5) AS e, arg_min(s, x ORDER BY d, id) AS k, "
              "arg_max(d, g ORDER BY x, id DESC) AS m FROM t GROUP BY g",
    "bits": "SELECT h, bit_and(x) AS a, bit_or(x) AS b, bit_xor(x) AS c, bit_or(id) AS e FROM t GROUP BY h",
    "pairs": "SELECT g, nullif(corr(d, x), CAST('NaN' AS DOUBLE PRECISION)) AS a, covar_samp(d, id) AS b, "
             "nullif(regr_slope(d, id), CAST('NaN' AS DOUBLE PRECISION)) AS c, regr_count(d, x) AS e "
             "FROM t WHERE abs(d) < 1000 GROUP BY g",
    "whole": "SELECT array_agg(id ORDER BY id) AS a, string_agg(s, '' ORDER BY id DESC) AS b, "
             "first(x ORDER BY id) AS c, bit_xor(id) AS e FROM t",
    "rolled": "SELECT g, h, count(*) AS c, sum(x) AS s, grouping(g, h) AS b FROM t GROUP BY ROLLUP (g, h)",
    "cubed": "SELECT g, h, x, max(s) AS m, array_agg(id ORDER BY id) AS a FROM t GROUP BY CUBE (g, h, x) "
             "HAVING count(*) > 1",
    "sets": "SELECT g + 1 AS k, h, count(DISTINCT x) AS c FROM t WHERE d > 0 "
            "GROUP BY GROUPING SETS ((g + 1), (h), (g + 1, h))",
    "tops": "SELECT t.id, t.x, m.top FROM t JOIN (SELECT g, max(x) AS top FROM t GROUP BY g) m "
            "ON t.g = m.g AND t.x >= m.top",
    "least": "SELECT t.id, m.y, m.low FROM (SELECT date_trunc('month', seen) AS y, h, min(s) AS low FROM t "
             "GROUP BY 1, 2) m JOIN t ON t.h = m.h AND date_trunc('month', t.seen) = m.y AND m.low = t.s",
    "most": "SELECT a.g, a.h, a.c, m.c AS most FROM (SELECT g, h, count(*) AS c FROM t GROUP BY g, h) a JOIN "
            "(SELECT h, max(c) AS c FROM (SELECT g, h, count(*) AS c FROM t GROUP BY g, h) b GROUP BY h) m "
            "ON a.h = m.h AND a.c = m.c",
    "days": "SELECT t.id, t.x, m.w FROM t JOIN (SELECT w, max(x) AS top FROM (SELECT x, time_bucket(INTERVAL '1 day', "
            "seen) + INTERVAL '1 day' AS w FROM t) GROUP BY w) m "
            "ON t.x = m.top AND t.seen BETWEEN m.w - INTERVAL '1 day' AND m.w",
    "hops": "SELECT g, w, count(*) AS c, sum(x) AS s, count(s) FILTER (WHERE h = 'a') AS f FROM "
            "(SELECT g, x, s, h, time_bucket(INTERVAL '1 day', seen) AS w FROM t UNION ALL "
            "SELECT g, x, s, h, time_bucket(INTERVAL '1 day', seen) - INTERVAL '1 day' FROM t) GROUP BY g, w",
    "over": "SELECT c, string_agg(h, ',' ORDER BY h, g) AS a FROM rolled GROUP BY c",
}  # fmt: skip

CHANGED = ("g = 2", "g = NULL", "h = 'a'", "x = x + 1", "d = -d", "s = NULL", "n = n", "l = ARRAY[7]")
GONE = ("g = 1", "h IS NULL", "id % 3 = 0", "x = 5", "g = 2 AND h = 'a'")


def ours(query):
    """Our words for DuckDB's."""
    query = query.replace("time_bucket(INTERVAL '1 day', seen)",
                          "date_bin(INTERVAL '1 day', seen, TIMESTAMP '1970-01-01')")
    return query.replace("first(", "first_value(").replace("last(", "last_value(")


def new_row(rng, number):
    return {
        "id": number, "g": rng.choice([None, 1, 2, 3]), "h": rng.choice([None, "", "a", "b"]),
        "x": rng.choice([None, 0, 1, 5, 6]), "d": rng.choice([None, -1.5, 0.25, 2.0, 1e9]),
        "s": rng.choice([None, "", "z", "é\""]), "n": rng.choice([None, Decimal("1.50"), Decimal("-3.25")]),
        "seen": rng.choice([None, datetime(2026, 1, 1), datetime(2025, 6, 30, 12, 30, 0, 5),
                            datetime(2025, 12, 31, 10)]),
        "l": rng.choice([None, [], [1, None]]),
    }  # fmt: skip


def change(rng, db, made):
    """Some statements; returns the next id."""
    for _ in range(rng.randint(1, 3)):
        turn = rng.random()
        if turn < 0.5:
            count = rng.randint(1, 40)
            db.table("t").insert([new_row(rng, made + number) for number in range(count)])
            made += count
        elif turn < 0.75:
            db.sql(f"UPDATE t SET {rng.choice(CHANGED)} WHERE id % 7 = {rng.randrange(7)}")
        else:
            db.sql(f"DELETE FROM t WHERE {rng.choice(GONE)}")
    return made


def compare(db, in_batch=True):
    """The views, and their queries `in_batch`, are what DuckDB computes."""
    with oracle() as duck:
        t = db.sql("SELECT * FROM t").to_arrow()
        duck.register("t", t)
        duck.execute(f"CREATE VIEW rolled AS {VIEWS['rolled']}")
        for name, query in VIEWS.items():
            expected = rows_of(duck.sql(query).to_arrow_table())
            try:
                assert_same_rows(rows_of(db.sql(f"SELECT * FROM {name}").to_arrow()), expected, ordered=False)
                if in_batch:
                    assert_same_rows(rows_of(db.sql(ours(query)).to_arrow()), expected, ordered=False)
            except AssertionError as error:
                raise AssertionError(f"{name}, seed {run_seed()}") from error


@pytest.mark.parametrize("engine", ["graph", "graph without memory", "tasks",
                                    pytest.param("either", marks=pytest.mark.slow)])
def test_views_are_what_duckdb_computes(engine):
    rng = random.Random(f"{run_seed()} {engine}")
    made = 0
    with ExitStack() as undo:
        store = EngineStore(undo)

        def opened():
            slots = {"tasks": 2, "either": rng.choice([0, 2])}.get(engine, 0)
            cache_bytes = 1 if engine == "graph without memory" else rng.choice([1, 30_000, 1 << 28])
            return store.open(slots=slots, threads=2 if slots else 1, state_cache_bytes=cache_bytes)

        db = opened()
        db.sql(TABLE)
        made = change(rng, db, made)
        for name, query in VIEWS.items():
            db.sql(f"CREATE MATERIALIZED VIEW {name} AS {ours(query)}")
        for turn in range(amount(2, 4)):
            made = change(rng, db, made)
            db.flush()
            assert not db.failed_jobs
            compare(db, turn > 0 or engine == "graph")
            if turn == 0 or rng.random() < 0.4:
                db.close()
                db = opened()
        db.sql("DELETE FROM t")
        db.flush()
        compare(db)
        assert bool(store.tasks) >= (engine == "tasks")


def test_views_that_are_rescaled():
    rng, made = random.Random(run_seed()), 0
    with ExitStack() as undo:
        db = EngineStore(undo).open(parallelism=2)
        db.sql(TABLE)
        names = ("lists", "firsts", "rolled")
        for name in names:
            db.sql(f"CREATE MATERIALIZED VIEW {name} AS {ours(VIEWS[name])}")
        for parallelism in (1, 3, 2):
            made = change(rng, db, change(rng, db, made))
            db.flush()
            for name in names:
                db.sql(f"ALTER MATERIALIZED VIEW {name} SET PARALLELISM = {parallelism}")
            made = change(rng, db, made)
            db.flush()
            assert not db.failed_jobs
            for name in names:
                found, expected = (rows_of(db.sql(query).to_arrow())
                                   for query in (f"SELECT * FROM {name}", ours(VIEWS[name])))
                assert_same_rows(found, expected, ordered=False)


def test_keys_of_objects_that_are_null():
    with ExitStack() as undo:
        db = EngineStore(undo).open()
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR, v INT)")
        query = "SELECT jsonb_object_agg(k, v) AS o, jsonb_agg(v ORDER BY id DESC) AS a FROM t"
        db.sql(f"CREATE MATERIALIZED VIEW m AS {query}")
        db.sql("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', NULL), (3, 'a', 7)")
        db.flush()
        found = [{"o": '{"a":7,"b":null}', "a": "[7,null,1]"}]
        assert db.sql("SELECT * FROM m").rows() == db.sql(query).rows() == found
        db.sql("INSERT INTO t VALUES (4, NULL, 1)")
        db.flush()
        assert db.sql("SELECT o FROM m").rows() == [{"o": None}]
        assert db.sql("SHOW ERRORS").to_pylist() == [
            {"job": "m", "reason": "a key of jsonb_object_agg is NULL", "rows": 1}]
        with pytest.raises(EvaluationError, match="a key of jsonb_object_agg is NULL"):
            db.sql(query).rows()
        db.sql("DELETE FROM t WHERE id = 4")
        db.flush()
        assert db.sql("SELECT o FROM m").rows() == [{"o": '{"a":7,"b":null}'}] and not db.sql("SHOW ERRORS").to_pylist()


def test_a_sketch_is_near_and_of_appended_rows_only():
    with ExitStack() as undo:
        store = EngineStore(undo)
        db = store.open(state_cache_bytes=1)
        db.sql("CREATE TABLE t (k INT, v BIGINT) APPEND ONLY")
        query = "SELECT k, approx_count_distinct(v) AS n FROM t GROUP BY k"
        db.sql(f"CREATE MATERIALIZED VIEW m AS {query}")
        exact = {number: 10 ** number for number in range(5)}
        for turn in range(2):
            db.table("t").insert(pa.table({
                "k": [key for key, count in exact.items() for _ in range(count)],
                "v": [value * (value + 7) for count in exact.values() for value in range(count)]}))
            db.flush()
            if turn == 0:
                db.close()
                db = store.open(slots=2)
        found = dict(rows_of(db.sql("SELECT k, n FROM m").to_arrow()))
        assert found == dict(rows_of(db.sql(query).to_arrow()))
        assert all(abs(found[key] - count) <= 0.1 * count for key, count in exact.items()), found
        assert found[0] == 1 and found[1] == 10
        db.sql("CREATE TABLE u (k INT PRIMARY KEY)")
        with pytest.raises(BindError, match=r"approx_count_distinct in a materialized view needs .* only appended"):
            db.sql("CREATE MATERIALIZED VIEW w AS SELECT approx_count_distinct(k) AS n FROM u")


def test_appended_rows_and_watermarks():
    """States of closed groups are dropped, in the tables of rows too."""
    with ExitStack() as undo:
        store = EngineStore(undo)
        db = store.open(state_cache_bytes=1)
        db.sql("CREATE SOURCE bid (auction BIGINT, price BIGINT, date_time TIMESTAMP, WATERMARK FOR date_time AS "
               "date_time - INTERVAL '1' SECOND) WITH (connector = 'nexmark', events = '20000', event_rate = '2000')")
        query = "SELECT date_trunc('second', date_time) AS at, array_agg(price ORDER BY price, auction) AS p, " \
                "arg_max(auction, price * 100000 + auction) AS a FROM bid GROUP BY date_trunc('second', date_time)"
        db.sql(f"CREATE MATERIALIZED VIEW m AS {query}")
        rolled = "SELECT date_trunc('second', date_time) AS at, auction % 3 AS k, count(*) AS n, bit_or(price) AS b " \
                 "FROM bid GROUP BY date_trunc('second', date_time), ROLLUP (auction % 3)"
        db.sql(f"CREATE MATERIALIZED VIEW r AS {rolled}")
        explained = "".join(db.sql(f"EXPLAIN {rolled}")["plan"].to_pylist())
        assert "until watermark [date_trunc_second(date_time)]" in explained
        db.sql("CREATE MATERIALIZED VIEW b AS SELECT * FROM bid")
        for _ in range(60):
            db.flush()
            is_read = db.sql("SELECT count(*) AS n FROM b").rows()[0]["n"] == 18_400
            if is_read and db.source_offsets("m") == db.source_offsets("r") == db.source_offsets("b"):
                break
        bids = db.sql("SELECT * FROM b").to_arrow()
        for name, text in (("m", query), ("r", rolled)):
            expected = rows_of(answer(text, {"bid": bids}))
            assert_same_rows(rows_of(db.sql(f"SELECT * FROM {name}").to_arrow()), expected, ordered=False)
