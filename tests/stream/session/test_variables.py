"""Frames of the program in a FROM: which variable a name is, compared with DuckDB, and who may read them."""

from __future__ import annotations

import gc
import random
import threading
import weakref
from collections import Counter
from collections.abc import Iterator

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import stream
from relational import ResultSet
from relational.errors import BindError, InvalidValue, NotFound
from stream import col
from tests.support.drivers.seeds import run_seed
from tests.support.worlds.timed_session import NEVER_MS

of_module = pa.table({"a": [7]})
ARROW = pa.table({"k": [1, 2, 3], "v": ["x", None, "z"]})
FRAMES = {
    "arrow": lambda: ARROW,
    "batch": lambda: ARROW.to_batches()[0],
    "reader": lambda: ARROW.to_reader(),
    "polars": lambda: pl.from_arrow(ARROW),
    "lazy": lambda: pl.from_arrow(ARROW).lazy(),
    "pandas": lambda: ARROW.to_pandas(),
    "pandas by k": lambda: ARROW.to_pandas().set_index("k"),
    "result": lambda: ResultSet(ARROW),
    "duckdb": lambda: duckdb.from_arrow(ARROW),
}


@pytest.fixture
def db() -> Iterator[stream.Session]:
    with stream.connect("memory://", barrier_interval_ms=NEVER_MS) as session:
        yield session


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
def test_frames_of_every_kind_are_relations(db: stream.Session, make) -> None:
    df = make()
    assert db.query("SELECT v, k FROM df ORDER BY k").fetchall() == [("x", 1), (None, 2), ("z", 3)]
    given = {"of this": make()}
    assert db.sql('SELECT count(*) FROM "of this" WHERE k > ?', [1], frames=given).fetchall() == [(2,)]
    del df


def test_random_queries_of_frames_equal_duckdb(db: stream.Session) -> None:
    rng = random.Random(run_seed())
    for _ in range(6):
        left = pd.DataFrame({"k": [rng.randrange(9) for _ in range(rng.randrange(1, 400))]})
        left["x"] = [rng.choice([None, rng.randrange(-5, 5)]) for _ in range(len(left))]
        left["x"] = left["x"].astype("Int64")
        keys = list(range(0, 12, rng.choice([1, 2])))
        right = pl.DataFrame({"k": keys, "name": pl.Series([rng.choice(["a", "b", None]) for _ in keys], dtype=str)})
        least = rng.randrange(9)
        for query in (
            f"SELECT name, count(*), sum(x) FROM left_ JOIN right_ USING (k) WHERE k >= {least} GROUP BY name",
            f"SELECT k, x FROM left_ WHERE k IN (SELECT k FROM right_ WHERE name = 'a') AND x > {least - 5}",
            "WITH right_ AS (SELECT k FROM right_) SELECT l.k, r.k FROM left_ l LEFT JOIN right_ r ON l.k = r.k",
            "SELECT k FROM left_ UNION SELECT k FROM right_",
        ):
            left_, right_ = left, right
            expected = Counter(duckdb.sql(query).fetchall())
            assert Counter(db.query(query).fetchall()) == expected, query
            assert Counter(db.sql(query).fetchall()) == expected, query
            del left_, right_


def test_the_catalog_comes_before_variables_and_these_before_those_of_the_module(db: stream.Session) -> None:
    assert db.query("SELECT a FROM of_module").fetchall() == [(7,)]

    def local() -> list[tuple]:
        of_module = pa.table({"a": [8]})
        found = db.query("SELECT a FROM of_module").fetchall()
        assert db.query("SELECT a FROM of_module", frames={"of_module": ARROW.rename_columns(["a", "b"])}).num_rows == 3
        del of_module
        return found

    assert local() == [(8,)]
    assert db.query("WITH of_module AS (SELECT 1 AS a) SELECT a FROM of_module").fetchall() == [(1,)]
    db.sql("CREATE TABLE of_module (a INT PRIMARY KEY)")
    assert db.query("SELECT a FROM of_module").fetchall() == []
    assert db.query("SELECT a FROM of_module", frames={"of_module": ARROW}).fetchall() == []
    db.sql("DROP TABLE of_module")
    assert db.query("SELECT a FROM of_module").fetchall() == [(7,)]
    with pytest.raises(BindError, match="no schema 'other'"):
        db.query("SELECT a FROM other.of_module")


def test_a_text_that_is_kept_reads_the_variable_of_each_call(db: stream.Session) -> None:
    def total(df: pa.Table, least: int = 0) -> object:
        by_query = db.query("SELECT sum(k) FROM df WHERE k > :least", {"least": least}).fetchone()
        assert db.sql("SELECT sum(k) FROM df WHERE k > :least", {"least": least}).fetchone() == by_query
        return by_query

    for number in range(1, 6):
        assert total(pa.table({"k": [number, 10]})) == (number + 10,)
        assert total(pa.table({"k": [number, 10]}), 5) == (10,)
    for number in range(3):
        other = pa.table({"k": [number]})
        assert db.sql("SELECT k FROM other").to_arrow() == other


def test_names_are_those_of_python_and_other_values_are_none(db: stream.Session) -> None:
    Trips = pa.table({"Miles": [2]})
    assert db.query('SELECT Trips."Miles" FROM Trips').fetchall() == [(2,)]
    for name in ("trips", '"TRIPS"'):
        with pytest.raises(BindError, match="there is no table"):
            db.query(f"SELECT * FROM {name}")
    values = {"number": 5, "rows": [{"a": 1}], "text": "SELECT 1", "array": pa.array([1]), "series": pl.Series([1]),
              "frame class": pl.DataFrame}
    for name in values:
        with pytest.raises(BindError, match="there is no table"):
            db.query(f'SELECT * FROM "{name}"', frames=values)
    del Trips


def test_what_a_frame_holds_that_no_type_does_is_an_error_at_its_name(db: stream.Session) -> None:
    wrong = pa.table({"a": pa.array([None], pa.decimal256(50, 0))})
    none = pa.table({})
    for name, reason in (("wrong", "column 'a'"), ("none", "it has no columns")):
        with pytest.raises(BindError, match=f"the variable '{name}': {reason}") as caught:
            db.query(f"SELECT * FROM {name}")
        assert caught.value.text[caught.value.start : caught.value.end] == name
    large = pa.table({"a": pa.array([1] * 70_000 + [2**60], pa.timestamp("s"))})
    with pytest.raises(InvalidValue, match="column 'a', row 70000: the variable 'large'"):
        db.query("SELECT max(a) FROM large")
    del wrong, none, large


def test_relations_are_read_as_part_of_the_query(db: stream.Session) -> None:
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, v INT); CREATE VIEW w AS SELECT k FROM t WHERE v > 1")
    db.table("t").insert([(1, 1), (2, 2), (3, 3)], flush=True)
    large = db.table("t").filter(col("v") > 1)
    of_view = db.sql("SELECT k FROM w")
    query = db.sql("SELECT x.k FROM large x JOIN of_view y ON x.k = y.k JOIN large z ON z.k = x.k WHERE x.k > 2")
    assert query.fetchall() == [(3,)]
    db.sql("INSERT INTO t VALUES (4, 4); FLUSH")
    assert sorted(query.fetchall()) == [(3,), (4,)]         # lazy, as `large` is
    found = large.to_arrow()
    assert db.query("SELECT count(*) FROM found").fetchone() == (found.num_rows,) == (3,)
    db.create_materialized_view("m", db.sql("SELECT v FROM large"))         # a plan over tables
    assert sorted(db.query("SELECT v FROM m").fetchall()) == [(2,), (3,), (4,)]
    db.create_view("n", db.sql("SELECT k FROM of_view"))
    with pytest.raises(Exception, match="n"):
        db.drop("w")
    db.drop("t", cascade=True)
    with pytest.raises(BindError, match="there is no table or view 'large'"):
        db.query("SELECT * FROM large")
    del of_view


def test_rows_of_other_sessions_and_snapshots_are_read_at_once(db: stream.Session) -> None:
    with stream.connect("memory://") as other:
        other.sql("CREATE TABLE t (k INT PRIMARY KEY); INSERT INTO t VALUES (1), (2); FLUSH")
        theirs = other.table("t")
        assert db.query("SELECT sum(k) FROM theirs").fetchone() == (3,)
        with other.at() as snapshot:
            before = snapshot.table("t")
            other.sql("INSERT INTO t VALUES (5); FLUSH")
            joined = other.query("SELECT sum(a.k), sum(b.k) FROM theirs a LEFT JOIN before b ON a.k = b.k")
            assert joined.fetchone() == (8, 3)
            del before
    del theirs


def test_data_changes_read_frames(db: stream.Session) -> None:
    df = pl.DataFrame({"k": [1, 2, 3], "v": ["a", "b", "c"]})
    assert len(db.sql("CREATE TABLE t AS SELECT * FROM df")) == 3
    assert db.execute("INSERT INTO t SELECT k + 10, v FROM df WHERE k > ?", [1], flush=True) == 2
    assert db.execute("DELETE FROM t WHERE k IN (SELECT k + ? FROM df)", [10], flush=True) == 2
    assert db.execute("UPDATE t SET v = 'new' WHERE k NOT IN (SELECT k FROM df WHERE k < 3)", flush=True) == 1
    assert sorted(db.query("SELECT k, v FROM t").fetchall()) == [(1, "a"), (2, "b"), (3, "new")]
    changed = df.with_columns(v=pl.lit("of another"))
    with db.transaction():
        db.sql("INSERT INTO t SELECT k + 20, v FROM changed")
    assert db.query("SELECT count(*) FROM t WHERE v = 'of another'").fetchone() == (len(changed),)


@pytest.mark.parametrize("statement", [
    "CREATE MATERIALIZED VIEW m AS SELECT * FROM df",
    "CREATE VIEW m AS SELECT * FROM df",
    "CREATE SINK m AS SELECT * FROM df WITH (connector = 'digest')",
    "CREATE VIEW m AS SELECT * FROM t WHERE a IN (SELECT k FROM df)",
])
def test_what_outlives_the_statement_is_refused(db: stream.Session, statement: str) -> None:
    df = ARROW
    db.sql("CREATE TABLE t (a INT)")
    with pytest.raises(BindError, match=r"'df' is a variable of the program.*create_table\('df', df\)"):
        db.sql(statement)
    for create in (db.create_materialized_view, db.create_view):
        with pytest.raises(BindError, match="create_table"):
            create("m", db.sql("SELECT * FROM df"))
    db.sql("PREPARE p AS SELECT * FROM df")
    with pytest.raises(BindError, match="there is no table"):
        db.sql("EXECUTE p")
    assert db.names() == ("t",)
    del df


def test_the_option_and_the_argument_turn_it_off(tmp_path) -> None:
    df = ARROW
    with stream.connect(tmp_path / "store", create=True, replacement_scans=False) as db:
        for read in (db.query, db.sql, db.execute, db.explain):
            with pytest.raises(BindError, match="there is no table"):
                read("SELECT * FROM df")
        assert db.query("SELECT count(*) FROM df", frames={"df": df}).fetchone() == (3,)
        with stream.connect(tmp_path / "store", role="reader") as reader:
            assert reader.query("SELECT count(*) FROM df").fetchone() == (3,)
            with pytest.raises(BindError, match="there is no table"):
                reader.query("SELECT * FROM df", frames={})


def test_a_reader_of_many_threads_reads_the_frame_of_each(db: stream.Session) -> None:
    wrong = []

    def run(number: int) -> None:
        df = pa.table({"n": [number] * number})
        for _ in range(20):
            if db.query("SELECT sum(n) FROM df").fetchone() != (number * number,):
                wrong.append(number)
        del df

    threads = [threading.Thread(target=run, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_frame_that_was_read_is_released(db: stream.Session) -> None:
    def read() -> list[weakref.ref]:
        frame, df = pl.DataFrame({"k": [1]}), pa.table({"k": [1]})
        for _ in range(3):
            db.query("SELECT frame.k FROM frame JOIN df ON frame.k = df.k")
            assert db.sql("SELECT k FROM df WHERE k = ?", [1]).fetchall() == [(1,)]
            assert len(db.sql("SELECT k FROM df").filter(col("k") > 0).to_arrow()) == 1
        return [weakref.ref(each) for each in (frame, df)]

    gone = read()
    gc.collect()
    assert [each() for each in gone] == [None, None]


def test_a_dropped_table_is_named_by_its_relation(db: stream.Session) -> None:
    t = db.create_table("t", {"k": "int"}, primary_key="k")
    db.drop("t")
    with pytest.raises(BindError, match="there is no table or view 't'"):
        db.query("SELECT * FROM t")
    with pytest.raises(NotFound):
        t.to_arrow()


@pytest.mark.parametrize("query, params", [
    ("SELECT sum(a) AS s FROM df", ()), ("SELECT sum(a) AS s FROM df WHERE a >= ?", (0,)),
    ("SELECT sum(a) AS s, now() AS n FROM df", ()),
    ("WITH d AS (SELECT a FROM df) SELECT max(l.a) + max(r.a) + 1 AS s FROM d AS l JOIN d AS r ON l.a = r.a", ()),
])  # fmt: skip
def test_a_lazy_result_keeps_the_rows_that_the_frame_had(db: stream.Session, query: str, params: tuple) -> None:
    values = np.array([1, 2, 3])
    df = pa.table({"unused": values, "a": values})
    first = 7 if "JOIN" in query else 6
    for _ in range(3):  # the second time its plan is kept, if it can be
        found = db.sql(query, params)
        doubled = db.sql("SELECT s * 2 AS s FROM found")
        values *= 10
        assert [row["s"] for row in found.rows()] == [first]
        assert found.select("s").fetchall() == [(first,)] and len(found) == 1
        assert doubled.fetchall() == [(2 * first,)]
        values //= 10
    del df


def test_the_rows_that_a_query_gave_are_not_those_of_the_frame(db: stream.Session) -> None:
    df = pd.DataFrame({"a": [1, 2, 3]})
    found = db.query("SELECT a FROM df")
    df["a"] *= 10
    assert found.fetchall() == [(1,), (2,), (3,)]
    assert db.query("SELECT a FROM df").fetchall() == [(10,), (20,), (30,)]
