"""User functions in whole sessions: queries, changes, views, restarts, and who may run them."""

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import stream
from hummock.errors import Fenced
from relational.catalog.records import function_key, job_key, table_key
from relational.errors import (
    BindError,
    CatalogError,
    DependencyError,
    Duplicate,
    EvaluationError,
    FunctionFailed,
    FunctionsNotAllowed,
    NotFound,
    ParseError,
)
from relational.udf.source import loaded_parts
from stream import col
from stream import functions as f
from stream.errors import InvalidStatement
from tests.support.drivers.engine_store import EngineStore
from tests.support.drivers.seeds import amount

TWICE = """CREATE FUNCTION twice(a BIGINT) RETURNS BIGINT LANGUAGE python IMMUTABLE AS $$
import pyarrow.compute as pc
def twice(a):
    return pc.multiply_checked(a, 2)
$$"""
HALVES = """CREATE FUNCTION halves(n BIGINT) RETURNS TABLE (part BIGINT, label VARCHAR) LANGUAGE python IMMUTABLE STRICT
AS $$
import numpy as np, pyarrow as pa
def halves(n):
    counts = np.abs(np.asarray(n)) % 4
    rows = np.repeat(np.arange(len(n)), counts)
    part = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return pa.array(rows), {"part": pa.array(part), "label": pa.array([f"p{each}" for each in part])}
$$"""
SPREAD = """CREATE AGGREGATE spread(v BIGINT) RETURNS BIGINT LANGUAGE python IMMUTABLE STRICT AS $$
import numpy as np, pyarrow as pa
def spread(offsets, v):
    starts, v = np.asarray(offsets)[:-1], np.asarray(v)
    return pa.array(np.maximum.reduceat(v, starts) - np.minimum.reduceat(v, starts))
$$"""
MEAN = """CREATE AGGREGATE mean(v BIGINT) RETURNS DOUBLE LANGUAGE python IMMUTABLE STRICT AS $$
import numpy as np, pyarrow as pa, pyarrow.compute as pc
def parts(states):
    return [pc.fill_null(pc.struct_field(states, name), 0).to_numpy() for name in ("n", "s")]
def changed(states, groups, v, sign):
    n, s = parts(states)
    n = n + sign * np.bincount(groups, minlength=len(n))
    s = s + sign * np.bincount(groups, v, minlength=len(n)).astype(np.int64)
    return pa.StructArray.from_arrays([pa.array(n), pa.array(s)], ["n", "s"])
def accumulate(states, groups, v):
    return changed(states, groups, v, 1)
def retract(states, groups, v):
    return changed(states, groups, v, -1)
def finish(states):
    n, s = parts(states)
    return s / n
$$ WITH (state = 'struct<n bigint, s bigint>')"""
MEAN_OF_ROWS = MEAN.replace("def retract(", "def unused(")
FAILING = """CREATE FUNCTION failing(a BIGINT) RETURNS INT LANGUAGE python IMMUTABLE AS $$
def failing(a):
    if any(value is not None and value < 0 for value in a.to_pylist()):
        raise ValueError("a secret of a row")
    return a
$$"""
ROWS = [(1, 10, "x"), (2, None, "x"), (3, -3, "y"), (4, 7, None), (5, 0, "y"), (6, 10, "z")]


@pytest.fixture
def db():
    with stream.connect("memory://", allow_user_functions=True, barrier_interval_ms=amount(100, 20)) as session:
        session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, g VARCHAR)")
        session.table("t").insert(ROWS)
        session.flush()
        yield session


def rows(session, query):
    columns = (column.to_pylist() for column in session.sql(query).to_arrow().columns)
    return sorted(zip(*columns, strict=True), key=repr)


def expected(session, query):
    """DuckDB's answer over the same table."""
    with duckdb.connect() as connection:
        connection.register("t", session.sql("SELECT * FROM t").to_arrow())
        return sorted(connection.execute(query).fetchall(), key=repr)


def changed(session):
    session.sql("UPDATE t SET a = a - 4, g = 'x' WHERE id IN (1, 4)")
    session.sql("DELETE FROM t WHERE id = 3")
    session.table("t").insert([(9, 3, "w"), (10, None, "w"), (11, -9, "y")])
    session.flush()


PAIRS = [
    (TWICE, "SELECT id, twice(a) AS b FROM t WHERE twice(a) > 2 OR g IS NULL",
     "SELECT id, a * 2 AS b FROM t WHERE a * 2 > 2 OR g IS NULL"),
    (TWICE, "SELECT g, sum(twice(a)) AS s, count(twice(a)) AS n FROM t GROUP BY g",
     "SELECT g, sum(a * 2) AS s, count(a) AS n FROM t GROUP BY g"),
    (TWICE, "SELECT twice(a) % 3 AS m, count(*) AS n FROM t GROUP BY twice(a) % 3",
     "SELECT a * 2 % 3 AS m, count(*) AS n FROM t GROUP BY a * 2 % 3"),
    (HALVES, "SELECT id, r.part, r.label FROM t, halves(a) AS r",
     "SELECT id, part, 'p' || part FROM (SELECT id, unnest(range(abs(a) % 4)) AS part FROM t)"),
    (HALVES, "SELECT id, r.part FROM t LEFT JOIN halves(a) AS r ON true",
     "SELECT id, part FROM t LEFT JOIN LATERAL (SELECT unnest(range(abs(t.a) % 4)) AS part) ON true"),
    (SPREAD, "SELECT g, spread(a) AS s, count(*) AS n FROM t GROUP BY g",
     "SELECT g, max(a) - min(a) AS s, count(*) AS n FROM t GROUP BY g"),
    (SPREAD, "SELECT spread(DISTINCT a) FILTER (WHERE g = 'x') AS s FROM t",
     "SELECT max(a) - min(a) FROM t WHERE g = 'x'"),
    (SPREAD, "SELECT g, id % 2 AS p, spread(a) AS s FROM t GROUP BY ROLLUP (g, id % 2)",
     "SELECT g, id % 2 AS p, max(a) - min(a) AS s FROM t GROUP BY ROLLUP (g, id % 2)"),
    (SPREAD, "SELECT g, spread(a) + 1 AS s FROM t GROUP BY g HAVING spread(a) > 0",
     "SELECT g, max(a) - min(a) + 1 AS s FROM t GROUP BY g HAVING max(a) - min(a) > 0"),
    (SPREAD, "SELECT id, (SELECT spread(u.a) FROM t AS u WHERE u.g = t.g) AS s FROM t",
     "SELECT id, (SELECT max(u.a) - min(u.a) FROM t AS u WHERE u.g = t.g) AS s FROM t"),
    (TWICE, "SELECT x.id AS i, y.id AS j FROM t AS x JOIN t AS y ON twice(x.a) = twice(y.a) AND x.id < y.id",
     "SELECT x.id AS i, y.id AS j FROM t AS x JOIN t AS y ON x.a = y.a AND x.id < y.id"),
    (TWICE, "SELECT id, twice(a) AS b FROM t ORDER BY twice(a) DESC NULLS LAST, id LIMIT 2",
     "SELECT id, a * 2 AS b FROM t ORDER BY a * 2 DESC NULLS LAST, id LIMIT 2"),
    (MEAN, "SELECT g, mean(a) AS m, count(*) AS n FROM t GROUP BY g",
     "SELECT g, avg(a) AS m, count(*) AS n FROM t GROUP BY g"),
    (MEAN, "SELECT mean(a) FILTER (WHERE id % 3 > 0) AS m, mean(DISTINCT a) AS d, mean(a ORDER BY id) AS o FROM t",
     "SELECT avg(a) FILTER (WHERE id % 3 > 0) AS m, avg(DISTINCT a) AS d, avg(a) AS o FROM t"),
    (MEAN, "SELECT g, id % 2 AS p, mean(a) AS s FROM t GROUP BY ROLLUP (g, id % 2)",
     "SELECT g, id % 2 AS p, avg(a) AS s FROM t GROUP BY ROLLUP (g, id % 2)"),
    (MEAN_OF_ROWS, "SELECT g, mean(a) AS m, count(*) AS n FROM t GROUP BY g",
     "SELECT g, avg(a) AS m, count(*) AS n FROM t GROUP BY g"),
    (TWICE, "SELECT id FROM t WHERE twice(a) IN (SELECT a * 2 FROM t WHERE g = 'x')",
     "SELECT id FROM t WHERE a IN (SELECT a FROM t WHERE g = 'x')"),
]


@pytest.mark.parametrize(("definition", "query", "plain"), PAIRS)
def test_queries_and_views_have_duckdbs_answers(db, definition, query, plain):
    db.sql(definition)
    assert rows(db, query) == expected(db, plain)
    db.sql(f"CREATE MATERIALIZED VIEW v AS {query}")
    db.sql(f"CREATE VIEW named AS {query}")
    changed(db)
    found = rows(db, "SELECT * FROM v")
    assert found == rows(db, query) == rows(db, "SELECT * FROM named") == expected(db, plain)
    assert len(db.errors()) == 0


def test_a_function_sees_the_rows_that_count_and_once_for_each_chunk(db):
    db.sql("""CREATE FUNCTION seen(a BIGINT, is_null BOOLEAN) RETURNS VARCHAR LANGUAGE python AS $$
import pyarrow as pa
def seen(a, is_null):
    return pa.array([f"{len(a)} rows, {a.null_count} NULL"] * len(a))
$$""")
    assert {text for _, text in rows(db, "SELECT id, seen(a, a IS NULL) FROM t")} == {"6 rows, 1 NULL"}
    assert {text for _, text in rows(db, "SELECT id, seen(a, a IS NULL) FROM t WHERE a > 0")} == {"3 rows, 0 NULL"}
    branch = "SELECT id, CASE WHEN g = 'x' THEN seen(a, is_null => false) END AS s FROM t"
    assert {text for _, text in rows(db, branch)} == {None, "2 rows, 1 NULL"}
    db.sql("CREATE OR REPLACE FUNCTION seen(a BIGINT, is_null BOOLEAN) RETURNS VARCHAR LANGUAGE python STRICT AS $$\n"
           "import pyarrow as pa\n"
           "def seen(a, is_null):\n"
           "    return pa.array([f'{len(a)} rows'] * len(a))\n$$")
    assert rows(db, "SELECT seen(a, false) FROM t WHERE id < 3") == [("1 rows",), (None,)]
    assert rows(db, "SELECT seen(NULL, true) AS a, seen(1, true) AS b") == [(None, "1 rows")]


def test_a_volatile_function_is_called_for_each_row_and_others_once_for_constants(db):
    for volatility in ("VOLATILE", "STABLE"):
        db.sql(f"""CREATE FUNCTION count_{volatility}() RETURNS INT LANGUAGE python {volatility} AS $$
import pyarrow as pa
def count_{volatility.lower()}(rows):
    return pa.array(range(rows))
$$""")
    assert rows(db, "SELECT count_volatile() FROM t") == [(each,) for each in range(6)]
    assert rows(db, "SELECT count_stable() FROM t") == [(0,)] * 6
    for name, word in (("count_volatile", "VOLATILE"), ("count_stable", "STABLE")):
        with pytest.raises(BindError, match=f"function {name} in a materialized view is {word}.*IMMUTABLE"):
            db.sql(f"CREATE MATERIALIZED VIEW v AS SELECT id, {name}() AS n FROM t")
    db.sql("CREATE VIEW plain AS SELECT id, count_volatile() AS n FROM t")
    assert len(rows(db, "SELECT * FROM plain")) == 6
    with pytest.raises(BindError, match="count_volatile in a materialized view"):
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT * FROM plain")
    with pytest.raises(BindError, match="count_volatile in a sink"):
        db.sql("CREATE SINK s AS SELECT id, count_volatile() AS n FROM t WITH (connector = 'parquet')")


def test_what_fails_is_an_error_of_a_query_and_null_and_counted_in_a_view(db):
    db.sql(FAILING)
    with pytest.raises(FunctionFailed, match="function 'failing': ValueError: a secret of a row") as caught:
        rows(db, "SELECT failing(a) FROM t")
    assert caught.value.function == "failing" and isinstance(caught.value, EvaluationError)
    with pytest.raises(FunctionFailed, match=r"it answered with no INT: .*row 1"):
        rows(db, "SELECT failing(a * 10000000000) FROM t WHERE id IN (5, 6)")
    with pytest.raises(InvalidStatement, match="function 'failing': ValueError"):
        db.sql("UPDATE t SET a = failing(a)")
    assert rows(db, "SELECT id, a, g FROM t") == sorted(ROWS, key=repr)
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT id, failing(a) AS b FROM t")
    assert rows(db, "SELECT * FROM v") == [(1, 10), (2, None), (3, None), (4, 7), (5, 0), (6, 10)]
    assert db.errors().to_pylist() == [{"job": "v", "reason": "function failing: ValueError", "rows": 1}]
    db.table("t").insert([(7, -1, "x"), (8, 1 << 40, "x"), (9, 1, "x")])
    db.flush()
    assert rows(db, "SELECT * FROM v WHERE id > 6") == [(7, None), (8, None), (9, 1)]
    assert {(row["reason"], row["rows"]) for row in db.errors().to_pylist()} == {
        ("function failing: ValueError", 2), ("function failing: InvalidValue", 1)}
    db.sql("DELETE FROM t WHERE a < 0")
    db.flush()
    assert [(row["reason"], row["rows"]) for row in db.errors().to_pylist()] == [("function failing: InvalidValue", 1)]


@pytest.mark.parametrize(("body", "reason"), [
    ("return a.slice(1)", "it answered with 5 values for 6 rows"),
    ("return 3", "an Arrow array is expected, it answered with a builtins.int"),
    ("return a.cast('string')", "InvalidValue|it answered with no INT|string is not INT"),
    ("import pyarrow as pa\n    return pa.array([True] * len(a))", "bool is not INT"),
    ("raise KeyError(a)", "KeyError"),
    ("return unknown", "NameError: name 'unknown' is not defined"),
    ("assert False", "AssertionError"),
    ("raise SystemExit(3)", "SystemExit: 3"),
])  # fmt: skip
def test_an_answer_of_the_wrong_form_names_the_function(db, body, reason):
    db.sql(f"CREATE FUNCTION wrong(a BIGINT) RETURNS INT LANGUAGE python AS $$\ndef wrong(a):\n    {body}\n$$")
    with pytest.raises(FunctionFailed, match=f"(?s)function 'wrong': .*({reason})"):
        rows(db, "SELECT wrong(coalesce(a, 1) * 100000000000) FROM t")


def test_a_view_of_a_function_of_the_wrong_length_is_null_and_counted(db):
    db.sql("CREATE FUNCTION wrong(a BIGINT) RETURNS INT LANGUAGE python IMMUTABLE AS 'def wrong(a): return a.slice(1)'")
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT id, wrong(a) AS b FROM t")
    assert [b for _, b in rows(db, "SELECT * FROM v")] == [None] * 6
    reason = "function wrong: the answer is not of the declared form"
    assert db.errors().to_pylist() == [{"job": "v", "reason": reason, "rows": 6}]
    db.sql("DELETE FROM t WHERE id > 2")
    db.flush()
    assert db.errors().column("rows").to_pylist() == [2]


def test_a_function_that_exits_ends_no_thread(db):
    db.create_function("leave", "def leave(a): raise SystemExit", ["bigint"], "int", volatility="immutable")
    db.create_aggregate("quit", "def quit(o, a): raise SystemExit", ["bigint"], "int", volatility="immutable")
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT id, leave(a) AS b FROM t")
    db.sql("CREATE MATERIALIZED VIEW w AS SELECT g, quit(a) AS b FROM t GROUP BY g")
    changed(db)
    assert {b for _, b in rows(db, "SELECT * FROM v") + rows(db, "SELECT * FROM w")} == {None}
    found = {(row["job"], row["reason"], row["rows"]) for row in db.errors().to_pylist()}
    assert found == {("v", "function leave: SystemExit", 8), ("w", "function quit: SystemExit", 4)}


def test_an_aggregate_that_fails_is_an_error_or_null_and_counted(db):
    db.sql("""CREATE AGGREGATE sole(v BIGINT) RETURNS BIGINT LANGUAGE python IMMUTABLE WITH (row_wise = true) AS $$
def sole(values):
    (value,) = values
    return value
$$""")
    query = "SELECT g, sole(a) AS a FROM t GROUP BY g"
    with pytest.raises(FunctionFailed, match="function 'sole': ValueError: too many values to unpack"):
        rows(db, query)
    db.sql(f"CREATE MATERIALIZED VIEW v AS {query}")
    assert rows(db, "SELECT * FROM v") == [("x", None), ("y", None), ("z", 10), (None, 7)]
    assert [(row["reason"], row["rows"]) for row in db.errors().to_pylist()] == [("function sole: ValueError", 2)]
    db.sql("DELETE FROM t WHERE id IN (2, 5)")
    db.flush()
    assert rows(db, "SELECT * FROM v") == [("x", 10), ("y", -3), ("z", 10), (None, 7)]
    assert len(db.errors()) == 0


def state_columns(session, view):
    tables = session._playground.catalog.internal_tables(session.table(view).table.id)
    return {table.name.partition(".")[2]: len(table.columns) for table in tables if ".agg" in table.name}


def test_an_aggregate_keeps_rows_only_where_its_state_cannot_forget_one(db):
    db.sql("CREATE TABLE log (id BIGINT PRIMARY KEY, a BIGINT, g VARCHAR) APPEND ONLY")
    db.sql(MEAN_OF_ROWS)
    for name, source in (("of_t", "t"), ("of_log", "log")):
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS SELECT g, mean(a) AS m FROM {source} GROUP BY g")
    assert state_columns(db, "of_t").keys() == {"agg0.groups", "agg0.rows0"}
    assert state_columns(db, "of_log") == {"agg0.groups": 4}
    db.sql(MEAN.replace("CREATE", "CREATE OR REPLACE", 1))
    db.sql("CREATE MATERIALIZED VIEW with_state AS SELECT g, mean(a) AS m FROM t GROUP BY g")
    assert state_columns(db, "with_state") == {"agg0.groups": 4}
    db.sql("INSERT INTO log SELECT * FROM t")
    changed(db)
    assert rows(db, "SELECT * FROM with_state") == rows(db, "SELECT * FROM of_t") == expected(
        db, "SELECT g, avg(a) FROM t GROUP BY g")
    assert dict(rows(db, "SELECT * FROM of_log"))["x"] == 10.0


def test_states_are_stored_and_evicted(tmp_path):
    url = f"file://{tmp_path}"
    options = {"allow_user_functions": True, "state_cache_bytes": 1 << 14, "barrier_interval_ms": amount(100, 20)}
    for round_ in range(3):
        with stream.connect(url, create=True, **options) as db:
            if not round_:
                db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, g BIGINT)")
                db.sql(MEAN)
                db.sql("CREATE MATERIALIZED VIEW v AS SELECT g, mean(a) AS m FROM t GROUP BY g")
            db.table("t").insert([(each, each * 7 % 101, each % 997) for each in range(round_, 6_000, 3)])
            db.sql(f"DELETE FROM t WHERE id % 11 = {round_}")
            db.flush()
            assert rows(db, "SELECT * FROM v") == expected(db, "SELECT g, avg(a) FROM t GROUP BY g")


def test_rows_of_an_aggregate_come_in_its_order(db):
    db.sql("""CREATE AGGREGATE joined(g VARCHAR, a BIGINT) RETURNS VARCHAR LANGUAGE python IMMUTABLE
        AS $$def joined(g, a): return ",".join(f"{x}{y}" for x, y in zip(g, a))$$ WITH (row_wise = true)""")
    query = "SELECT joined(g, a ORDER BY id DESC) AS d, joined(g, a ORDER BY id) AS u FROM t WHERE a > 0"
    assert rows(db, query) == [("z10,None7,x10", "x10,None7,z10")]
    db.sql(f"CREATE MATERIALIZED VIEW v AS {query}")
    db.sql("UPDATE t SET a = 1 WHERE id = 1")
    db.flush()
    assert rows(db, "SELECT * FROM v") == [("z10,None7,x1", "x1,None7,z10")]
    with pytest.raises(BindError, match=r"joined OVER \(…\) is not supported"):
        db.sql("SELECT joined(g, a) OVER (ORDER BY id) FROM t")


def test_row_wise_functions_see_python_values(db):
    db.sql("""CREATE FUNCTION initial(g VARCHAR, a BIGINT) RETURNS VARCHAR LANGUAGE python
        AS $$def initial(g, a): return None if a is None else f"{g}:{a + 1}"$$ WITH (row_wise = true)""")
    assert rows(db, "SELECT initial(g, a) FROM t WHERE id < 5") == [("None:8",), ("x:11",), ("y:-2",), (None,)]
    db.sql("""CREATE FUNCTION letters(text VARCHAR) RETURNS SETOF VARCHAR LANGUAGE python STRICT
        AS $$def letters(text): return list(text)$$ WITH (row_wise = true)""")
    assert rows(db, "SELECT id, letters(g || 'q') AS x FROM t WHERE id < 3") == [
        (1, "q"), (1, "x"), (2, "q"), (2, "x")]
    db.sql("""CREATE FUNCTION numbered(text VARCHAR) RETURNS TABLE (n INT, c VARCHAR) LANGUAGE python
        AS $$def numbered(text): return enumerate(text or "")$$ WITH (row_wise = true)""")
    assert rows(db, "SELECT n, c FROM numbered('ab') AS r") == [(0, "a"), (1, "b")]
    assert rows(db, "SELECT * FROM numbered('ab') WITH ORDINALITY AS r (x, y, z)") == [(0, "a", 1), (1, "b", 2)]


def net(price, rate):
    return pc.multiply(price, pc.subtract(1.0, rate))


def pieces(count):
    import numpy as np

    counts = np.asarray(count)
    return np.repeat(np.arange(len(counts)), counts), pa.array(np.concatenate([np.arange(each) for each in counts]))


def test_the_fluent_api_and_sql_make_the_same_function(db):
    created = db.create_function("net", net, {"price": "double", "rate": "double"}, "double", volatility="immutable")
    assert (created.name, created.version) == ("net", 1)
    assert repr(created) == "<function net(price DOUBLE, rate DOUBLE), version 1>"
    t = db.table("t")
    half = db.function("net")(col("a"), 0.5)
    assert t.filter(col("id") == 1).select(half.alias("n")).to_arrow().to_pylist() == [{"n": 5.0}]
    assert rows(db, "SELECT net(rate => 0.25, price => a) FROM t WHERE id = 1") == [(7.5,)]
    rows_of = db.create_function("pieces", pieces, ["bigint"], {"x": "bigint"}, volatility="immutable")
    found = t.filter(col("id") == 4).select("id", rows_of(2).alias("x")).to_arrow().to_pylist()
    assert found == [{"id": 4, "x": 0}, {"id": 4, "x": 1}]
    total = db.create_aggregate("total", "def total(values): return sum(values)", ["bigint"], "bigint", strict=True,
                                row_wise=True, volatility="immutable")
    counted = db.create_aggregate("counted", "import numpy, pyarrow.compute as pc\n"
        "def accumulate(states, groups, a):\n"
        "    return pc.add(pc.fill_null(states, 0), numpy.bincount(groups, minlength=len(states)))\n"
        "def finish(states): return states", ["bigint"], "bigint", state="bigint", volatility="immutable")
    assert (counted.definition.state, counted.definition.retracts) == (stream.DataType.BIGINT, False)
    assert rows(db, "SELECT g, counted(a) FROM t GROUP BY g") == expected(db, "SELECT g, count(*) FROM t GROUP BY g")
    view = db.create_materialized_view("v", t.group_by("g").agg(s=total(col("a")), n=f.count()))
    assert rows(db, "SELECT * FROM v") == expected(db, "SELECT g, sum(a), count(*) FROM t GROUP BY g")
    assert "total" in db.explain(t.group_by("g").agg(s=total(col("a")))) and view.schema.names == ("g", "s", "n")
    (text,) = db.sql("SHOW CREATE FUNCTION net").column("definition").to_pylist()
    db.drop_function("net")
    db.sql(text)
    assert db.sql("SHOW CREATE FUNCTION net").column("definition").to_pylist() == [text]
    assert db.function("net").definition.source == created.definition.source
    with pytest.raises(DependencyError, match="aggregate 'total' is called by v"):
        db.drop_function("total")
    with pytest.raises(NotFound):
        db.function("nett")
    with pytest.raises(NotFound):
        db.drop_function("nett")


def test_a_text_that_the_store_would_lack_is_refused(db):
    outside = 3
    constant_of_module = lambda a: a  # noqa: E731

    def closing(a):
        return pc.add(a, outside)

    def reading(a):
        return TWICE + a

    for function, reason in (
        (constant_of_module, "no function defined by def"),
        (closing, "uses outside of the function around it"),
        (reading, "uses 'TWICE' of its module"),
        (len, "no function defined by def"),
    ):
        with pytest.raises(BindError, match=reason):
            db.create_function("own", function, ["bigint"], "bigint")
    with pytest.raises(BindError, match="volatility is one of immutable, stable, volatile, not 'pure'"):
        db.create_function("own", net, ["bigint"], "bigint", volatility="pure")
    with pytest.raises(BindError, match=r"is called with 1 argument: missing a required argument: 'rate'"):
        db.create_function("own", net, ["double"], "double")
    assert len(db.sql("SHOW FUNCTIONS")) == 0


def test_a_view_goes_on_with_its_version_across_replacement_and_restart(tmp_path):
    url, options = f"file://{tmp_path}", {"allow_user_functions": True}
    with stream.connect(url, create=True, **options) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT)")
        db.sql("INSERT INTO t VALUES (1, 5)")
        db.sql(TWICE)
        db.sql(SPREAD)
        db.sql("CREATE MATERIALIZED VIEW old AS SELECT id, twice(a) AS b FROM t")
        db.sql("CREATE MATERIALIZED VIEW wide AS SELECT spread(a) AS s FROM t")
        db.sql(TWICE.replace("CREATE", "CREATE OR REPLACE", 1).replace("(a, 2)", "(a, 200)"))
        db.sql("CREATE MATERIALIZED VIEW new AS SELECT id, twice(a) AS b FROM t")
    with stream.connect(url, create=True, **options) as db:
        db.sql("INSERT INTO t VALUES (2, 7)")
        db.sql("FLUSH")
        assert rows(db, "SELECT * FROM old") == [(1, 10), (2, 14)]
        assert rows(db, "SELECT * FROM new") == [(1, 1000), (2, 1400)]
        assert rows(db, "SELECT * FROM wide") == [(2,)]
        assert db.sql("SHOW FUNCTIONS").to_pylist() == [
            {"name": "spread", "arguments": "(v BIGINT)", "returns": "BIGINT", "kind": "aggregate",
             "language": "python", "volatility": "immutable", "version": 1},
            {"name": "twice", "arguments": "(a BIGINT)", "returns": "BIGINT", "kind": "function",
             "language": "python", "volatility": "immutable", "version": 2}]  # fmt: skip
        record = json.loads(db._playground.catalog.snapshot.rows[job_key(db.table("old").table.id)])
        assert '"version": 1' in record["plan"] and '"name": "twice"' in record["plan"]
        with pytest.raises(DependencyError, match="function 'twice' is called by new, old") as caught:
            db.sql("DROP FUNCTION twice")
        assert caught.value.dependents == ("new", "old")
        db.sql("DROP MATERIALIZED VIEW new")
        db.sql("DROP FUNCTION twice(BIGINT) CASCADE")
        assert db.names() == ("t", "wide")
        db.sql("DROP FUNCTION IF EXISTS twice")
        with pytest.raises(BindError, match="twice"):
            db.sql("SELECT twice(1)")


def test_who_did_not_allow_it_runs_no_stored_code(tmp_path):
    url, marker = f"file://{tmp_path}/store", tmp_path / "ran"
    text = f"open({str(marker)!r}, 'a').close()\ndef mark(a): return a"
    with stream.connect(url, create=True, allow_user_functions=True) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        db.sql("INSERT INTO t VALUES (1)")
        db.create_function("mark", text, ["bigint"], "bigint", volatility="immutable")
        db.sql("CREATE VIEW plain AS SELECT mark(id) AS a FROM t")
    marker.unlink()
    loaded_parts.cache_clear()
    with stream.connect(url, create=True) as db:
        for statement in ("SELECT mark(1)", "SELECT * FROM plain", "DELETE FROM t WHERE mark(id) = 1",
                          "CREATE MATERIALIZED VIEW v AS SELECT mark(id) AS a FROM t",
                          "CREATE FUNCTION other(a INT) RETURNS INT LANGUAGE python AS 'def other(a): return a'"):
            with pytest.raises(FunctionsNotAllowed, match="allow_user_functions=True"):
                db.sql(statement)
        with pytest.raises(FunctionsNotAllowed):
            db.function("mark")
        assert db.sql("SHOW FUNCTIONS").column("name").to_pylist() == ["mark"]
        assert db.sql("SELECT proname FROM pg_proc").to_arrow().to_pylist() == [{"proname": "mark"}]
    with stream.connect(url, create=True, allow_user_functions=True) as db:
        assert not marker.exists()
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT mark(id) AS a FROM t")
        assert marker.exists()
    marker.unlink(missing_ok=True)
    loaded_parts.cache_clear()
    with pytest.raises(FunctionsNotAllowed, match="materialized view 'v' calls function 'mark'"):
        stream.connect(url, create=True)
    assert not marker.exists()
    with stream.connect(url, create=True, allow_user_functions=True) as db:  # and the refused one did not take over
        with pytest.raises(FunctionsNotAllowed):
            stream.connect(url, create=True, take_over=True)
        db.sql("INSERT INTO t VALUES (2)")
        db.flush()
        assert rows(db, "SELECT * FROM v") == [(1,), (2,)]
        db.sql("DROP MATERIALIZED VIEW v")
        db.sql("DROP VIEW plain")
        db.drop_function("mark")
    with stream.connect(url, create=True) as db:
        assert rows(db, "SELECT * FROM t") == [(1,), (2,)]


def test_a_plan_that_hides_its_function_from_the_catalog_is_found(tmp_path):
    url = f"file://{tmp_path}"
    with stream.connect(url, create=True, allow_user_functions=True) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        db.sql("CREATE FUNCTION own(a BIGINT) RETURNS BIGINT LANGUAGE python IMMUTABLE AS 'def own(a): return a'")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT own(id) AS a, id FROM t")
        db.sql("CREATE MATERIALIZED VIEW w AS SELECT id + 1 AS a, id FROM t")
        catalog, meta = db._playground.catalog, db._playground.meta_store
        v, w = db.table("v").table.id, db.table("w").table.id
        logical = json.loads(catalog.snapshot.rows[table_key(v)]) | {
            "plan": json.loads(catalog.snapshot.rows[table_key(w)])["plan"]}
        function = db.function("own").definition.id
        db.abandon()
    from hummock.meta import open_meta_store
    from hummock.meta.store.base import MetaOperations
    from hummock.object_store import open_object_store

    store = open_object_store(url)
    meta = open_meta_store(url, None, object_store=store, accept_rollback=False)
    meta.transaction(MetaOperations(put={table_key(v): json.dumps(logical).encode()}, delete=(function_key(function),)))
    meta.close()
    store.close()
    with pytest.raises(FunctionsNotAllowed, match="'v' calls function 'own'"):
        stream.connect(url, create=True)


@pytest.mark.parametrize(("statement", "error", "reason"), [
    ("CREATE FUNCTION f(a INT) RETURNS INT LANGUAGE sql AS $$x$$", BindError, "LANGUAGE is python, not sql"),
    ("CREATE FUNCTION f(a INT) RETURNS INT LANGUAGE python", ParseError, "are expected"),
    ("CREATE FUNCTION f(a INT) LANGUAGE python AS $$x$$", ParseError, "RETURNS is expected"),
    ("CREATE FUNCTION f(a nope) RETURNS INT LANGUAGE python AS $$x$$", BindError, "there is no type 'nope'"),
    ("CREATE FUNCTION f(a INT) RETURNS nope LANGUAGE python AS $$x$$", BindError, "there is no type 'nope'"),
    ("CREATE FUNCTION f(a INT, a INT) RETURNS INT LANGUAGE python AS $$x$$", BindError, "'a' appears twice"),
    ("CREATE FUNCTION abs(a INT) RETURNS INT LANGUAGE python AS $$x$$", BindError, "abs is a function of SQL"),
    ("CREATE FUNCTION now() RETURNS INT LANGUAGE python AS $$x$$", BindError, "now is a function of SQL"),
    ("CREATE FUNCTION f(a INT) RETURNS INT LANGUAGE python AS x", ParseError, r"AS \$\$ … \$\$"),
    ("CREATE FUNCTION f(a INT) RETURNS INT LANGUAGE python STRICT STRICT AS $$x$$", ParseError, "appears twice"),
    ("CREATE FUNCTION f(a INT) RETURNS INT LANGUAGE python IMMUTABLE STABLE AS $$x$$", ParseError, "appears twice"),
    ("CREATE FUNCTION f(a INT) RETURNS INT LANGUAGE python AS $$x$$ WITH (speed = 3)", BindError, "speed"),
    ("CREATE FUNCTION f(a INT) RETURNS INT LANGUAGE python AS $$x$$ WITH (row_wise = 3)", BindError, "true or false"),
    ("CREATE FUNCTION f(a INT) RETURNS INT LANGUAGE python AS $$def f(:$$", BindError, "is no Python"),
    ("CREATE FUNCTION f(a INT) RETURNS INT LANGUAGE python AS $$1 / 0$$", BindError, "failed: ZeroDivisionError"),
    ("CREATE FUNCTION f(a INT) RETURNS INT LANGUAGE python AS $$def g(a): pass$$", BindError, "it defines g"),
    ("CREATE FUNCTION f(a INT) RETURNS INT LANGUAGE python AS $$import nowhere$$", BindError, "ModuleNotFoundError"),
    ("CREATE FUNCTION f(a INT) RETURNS INT LANGUAGE python AS $$def f(): pass$$", BindError, "called with 1 argument"),
    ("CREATE FUNCTION none.f(a INT) RETURNS INT LANGUAGE python AS $$x$$", BindError, "no schema 'none'"),
    ("CREATE AGGREGATE f() RETURNS INT LANGUAGE python AS $$x$$", BindError, "takes one argument at least"),
    ("CREATE AGGREGATE f(a INT) RETURNS TABLE (a INT) LANGUAGE python AS $$x$$", BindError, "one value of each group"),
    ("CREATE FUNCTION twice(a INT) RETURNS INT LANGUAGE python AS 'def twice(a): return a'", Duplicate, "OR REPLACE"),
    ("CREATE OR REPLACE AGGREGATE twice(a INT) RETURNS INT LANGUAGE python AS 'def twice(o, a): return a'",
     CatalogError, "'twice' is a function, and is replaced by another one only"),
    ("CREATE AGGREGATE f(a INT) RETURNS INT LANGUAGE python AS $$x$$ WITH (state = 'nope')", BindError,
     "state is the type of a state, not 'nope'"),
    ("CREATE AGGREGATE f(a INT) RETURNS INT LANGUAGE python AS $$x$$ WITH (state = 'int', row_wise = true)", BindError,
     "an aggregate with a state has the functions accumulate"),
    ("CREATE FUNCTION f(a INT) RETURNS INT LANGUAGE python AS $$x$$ WITH (state = 'int')", BindError, "state"),
    ("SELECT twice('x')", BindError, "'x' is no BIGINT"),
    ("SELECT twice(1.5)", BindError, r"twice takes \(BIGINT\), not \(NUMERIC"),
    ("SELECT twice(1, 2)", BindError, r"twice takes \(BIGINT\)"),
    ("SELECT twice(b => 2)", ParseError, "no argument 'b'"),
    ("SELECT * FROM twice(1)", BindError, "twice is a function: it gives no rows"),
    ("SELECT halves(1) + halves(2) FROM t WHERE halves(1) = 1", BindError, "halves"),
    ("SELECT public.nope(1)", BindError, "there is no function public.nope"),
    ("DROP FUNCTION nope", BindError, "user function 'nope'"),
    ("DROP FUNCTION twice(INT)", BindError, r"twice takes \(a BIGINT\)"),
    ("SHOW CREATE FUNCTION twise", BindError, "twice"),
])  # fmt: skip
def test_errors_of_statements(db, statement, error, reason):
    db.sql(TWICE)
    db.sql(HALVES)
    before = db.sql("SHOW FUNCTIONS").to_pylist()
    with pytest.raises(error, match=reason):
        db.sql(statement)
    assert db.sql("SHOW FUNCTIONS").to_pylist() == before


def test_a_function_is_an_object_of_its_schema(db):
    db.sql("CREATE SCHEMA shop")
    db.sql(TWICE.replace("FUNCTION twice", "FUNCTION shop.twice").replace("(a, 2)", "(a, 3)"))
    db.sql(HALVES.replace("FUNCTION halves", "FUNCTION shop.halves"))
    db.sql("CREATE FUNCTION IF NOT EXISTS shop.twice(a INT) RETURNS INT LANGUAGE python AS 'def twice(a): return a'")
    assert rows(db, "SELECT shop.twice(2)") == [(6,)]
    assert rows(db, "SELECT part FROM shop.halves(2)") == [(0,), (1,)]
    with pytest.raises(BindError, match="twice"):
        db.sql("SELECT twice(2)")
    found = rows(db, "SELECT routine_schema, routine_name, external_language FROM information_schema.routines")
    assert found == [("shop", "halves", "PYTHON"), ("shop", "twice", "PYTHON")]
    (text,) = db.sql("SHOW CREATE FUNCTION shop.twice").column("definition").to_pylist()
    assert text.startswith("CREATE FUNCTION shop.twice (a BIGINT) RETURNS BIGINT LANGUAGE python IMMUTABLE")
    with pytest.raises(DependencyError, match="schema 'shop' holds function halves, twice"):
        db.sql("DROP SCHEMA shop")
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT id, shop.twice(a) AS b FROM t")
    db.sql("DROP SCHEMA shop CASCADE")
    assert db.names() == ("t",) and len(db.sql("SHOW FUNCTIONS FROM public")) == 0


def test_the_examples_of_the_manual_run(db):
    text = (Path(__file__).parents[2] / "docs" / "sql.md").read_text().partition("## User functions")[2]
    db.sql("CREATE TABLE orders (id BIGINT PRIMARY KEY, region VARCHAR, price DOUBLE, rate DOUBLE)")
    db.sql("INSERT INTO orders VALUES (1, 'EUROPE', 10, 0.5), (2, 'EUROPE', 20, 0.1), (3, 'ASIA', 5, NULL)")
    db.flush()
    found = db.sql(text.partition("```sql")[2].partition("```")[0]).to_arrow().to_pylist()
    found.sort(key=lambda row: (row["id"], row["number"]))
    assert found[:2] == [{"id": 1, "number": 0, "part": "EUROPE"}, {"id": 1, "number": 1, "part": "EUROPE"}]
    assert len(found) == 6 and rows(db, "SELECT * FROM spreads") == [("ASIA", None, 5.0), ("EUROPE", 13.0, 30.0)]


def test_parameters_are_arguments(db):
    db.sql(TWICE)
    db.sql("CREATE FUNCTION size() RETURNS BIGINT LANGUAGE python AS $$import numpy\n"
           "def size(rows): return numpy.full(rows, rows)$$")
    for _ in range(3):
        assert db.query("SELECT twice(?) AS b FROM t WHERE id = twice(?)", (4, 2)).to_pylist() == [{"b": 8}]
        assert db.query("SELECT id FROM t WHERE id = size() + ?", (0,)).to_pylist() == [{"id": 6}]
    numbers = [(each, each) for each in range(50, 60)]
    assert db.executemany("INSERT INTO t VALUES (?, twice(?), 'm')", numbers) == 10
    assert db.sql("DELETE FROM t WHERE twice(id) = 4 RETURNING twice(id) AS n").to_pylist() == [{"n": 4}]
    db.flush()
    assert rows(db, "SELECT sum(a) AS s FROM t WHERE g = 'm'") == [(sum(range(100, 120, 2)),)]


def test_a_view_on_the_task_engine_is_the_same():
    queries = [
        "SELECT id, twice(a) AS b FROM t WHERE twice(a) > 2",
        "SELECT t.id, r.part FROM t, halves(a) AS r",
        "SELECT g, spread(a) AS s FROM t GROUP BY g",
        "SELECT g, mean(a) AS s FROM t GROUP BY g",
    ]
    with ExitStack() as undo:
        store = EngineStore(undo)
        db = store.open(slots=2, allow_user_functions=True)
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, g VARCHAR)")
        for definition in (TWICE, HALVES, SPREAD, MEAN):
            db.sql(definition)
        for number, query in enumerate(queries):
            db.sql(f"CREATE MATERIALIZED VIEW v{number} AS {query}")
        db.table("t").insert(ROWS)
        db.flush()
        changed(db)
        assert store.tasks
        for number, query in enumerate(queries):
            assert rows(db, f"SELECT * FROM v{number}") == rows(db, query)
        assert rows(db, "SELECT * FROM v2") == expected(db, "SELECT g, max(a) - min(a) FROM t GROUP BY g")
        with pytest.raises(Fenced):  # the process goes on with what the tasks committed
            store.open(allow_user_functions=True).sql("INSERT INTO t VALUES (20, 5, 'x')")
            db.flush()


def test_a_function_of_one_process_is_called_in_another(tmp_path):
    url = f"file://{tmp_path}"
    with stream.connect(url, create=True, allow_user_functions=True) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT, g VARCHAR)")
        db.create_function("net", net, ["double", "double"], "double")
    code = (f"import stream; db = stream.connect({url!r}, allow_user_functions=True); "
            "print(db.query('SELECT net(10, 0.1) AS n').to_pylist()); db.close()")
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[{'n': 9.0}]"
