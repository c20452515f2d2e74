"""Statements with parameters: values in their place, whatever they are; plans that are kept, and when they are not."""

from __future__ import annotations

import random
import threading
import time
from datetime import date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pytest

import stream
from relational.errors import BindError, NotFound, ParseError
from relational.relation import Relation
from relational.sql.constants import lifted
from stream.errors import DuplicateKey, InvalidStatement
from stream.session import statement_cache
from tests.support.drivers.seeds import run_seed

ROWS = 300
COLUMNS = ("id BIGINT PRIMARY KEY, name VARCHAR, amount NUMERIC(12, 2), day DATE, x DOUBLE PRECISION, raw BYTEA, "
           "b BOOLEAN")


def row(number: int) -> tuple:
    return (number, f"n{number % 7}", Decimal(number) / 4, date(2024, 1, 1) + timedelta(number % 50), number / 8,
            bytes([number % 5]), number % 2 == 0)


@pytest.fixture(scope="module")
def db():
    with stream.connect("memory://", barrier_interval_ms=3_600_000) as session:
        session.sql(f"CREATE TABLE t ({COLUMNS})")
        assert session.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?)", map(row, range(ROWS))) == ROWS
        session.sql("INSERT INTO t (id) VALUES (-1)")
        session.flush()
        yield session


def cache_of(session):
    return session._statements.executions.cache


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("SELECT * FROM t WHERE id = ?", (7,)),
        ("SELECT * FROM t WHERE id = $1", (7,)),
        ("SELECT * FROM t WHERE id = :number", {"number": 7}),
        ("SELECT * FROM t WHERE id = ?", (np.int32(7),)),
        ("SELECT * FROM t WHERE id = ?", (7.0,)),
        ("SELECT * FROM t WHERE id = ?", (Decimal("7.00"),)),
        ("SELECT * FROM t WHERE id = ?", ("7",)),
        ("SELECT * FROM t WHERE ? = id", (7,)),
        ("SELECT * FROM t WHERE id + ? = ?", (3, 10)),
        ("SELECT * FROM t WHERE id BETWEEN $2 AND $1 AND id > $2 - 1", (7, 7)),
        ("SELECT * FROM t WHERE id IN (?, ?, ?)", (7, 1 << 40, None)),
        ("SELECT * FROM t WHERE name = ? AND amount = ? AND id < 10", ("n0", 1.75)),
        ("SELECT * FROM t WHERE day = ? AND id < 10", (date(2024, 1, 8),)),
        ("SELECT * FROM t WHERE day = ? AND id < 10", ("2024-01-08",)),
        ("SELECT * FROM t WHERE day >= ? AND id < 8", (datetime(2024, 1, 7, 12),)),
        ("SELECT * FROM t WHERE raw = ? AND id > 5 AND id < 10", (b"\x02",)),
        ("SELECT * FROM t WHERE b = ? AND id > 6 AND id < 9", (False,)),
        ("SELECT * FROM t WHERE x = :x", {"x": 7 / 8}),
        ("SELECT * FROM t WHERE CAST(? AS BIGINT) = id", ("7",)),
        ("SELECT * FROM (SELECT * FROM t ORDER BY id LIMIT ? OFFSET ?) AS s", (1, 8)),
        ("SELECT * FROM t WHERE id = (SELECT max(id) FROM t WHERE id <= ?)", (7,)),
    ],
)
def test_a_value_takes_the_place_of_a_parameter(db, text, params):
    expected = db.query("SELECT * FROM t WHERE id = 7").to_pylist()
    assert len(expected) == 1
    for _ in range(2):  # the second time from the cache
        assert db.query(text, params).to_pylist() == expected
    found = db.sql(text, params)
    assert isinstance(found, Relation) and found.rows() == expected


@pytest.mark.parametrize("value", [1 << 63, -(1 << 63) - 1, 7.5, Decimal("7.01"), float("nan"), float("inf"), None])
def test_a_value_that_the_column_cannot_represent_equals_none(db, value):
    assert db.query("SELECT * FROM t WHERE id = ?", (value,)).num_rows == 0


def test_a_value_that_the_column_cannot_represent_is_a_bound(db):
    assert db.query("SELECT count(*) AS n FROM t WHERE id < ?", (1 << 70,)).to_pylist() == [{"n": ROWS + 1}]
    assert db.query("SELECT count(*) AS n FROM t WHERE id > ?", (297.5,)).to_pylist() == [{"n": 2}]
    assert db.query("SELECT count(*) AS n FROM t WHERE id > ?", (float("nan"),)).to_pylist() == [{"n": 0}]


@pytest.mark.parametrize("text", ["'; DROP TABLE t; --", "x' OR '1'='1", "$1", "?", ":a", "\\'", "n0\0", "🙂", ""])
def test_a_text_is_a_value_whatever_it_contains(db, text):
    assert db.query("SELECT ? AS x", (text,)).to_pylist() == [{"x": text}]
    assert db.query("SELECT * FROM t WHERE name = ?", (text,)).num_rows == 0
    assert db.query("SELECT count(*) AS n FROM t WHERE name = :a OR id = 3", {"a": text}).to_pylist() == [{"n": 1}]


@pytest.mark.parametrize(
    ("text", "params", "message", "at"),
    [
        ("SELECT * FROM t WHERE id = ?", ("abc",), "'abc' is no BIGINT", "?"),
        ("SELECT * FROM t WHERE id = $1 AND day = $2", (1, "2024-13-01"), "is no DATE", "$2"),
        ("SELECT * FROM t WHERE amount = :a + 1", {"a": date(2024, 1, 1)}, "", ""),
        ("SELECT * FROM t WHERE id = ? AND x = ?", (1,), "no value is given", "?"),
        ("SELECT * FROM t WHERE id = ?", (1, 2), "2 values are given", ""),
        ("SELECT * FROM t WHERE id = :a", {}, "no value is given", ":a"),
        ("SELECT * FROM t WHERE id = :a", {"b": 1}, "no value is given for :a", ":a"),
        ("SELECT * FROM t WHERE id = :a", {"a": 1, "b": 2}, "no parameter :b", ""),
        ("SELECT * FROM t WHERE id = :a", (1,), "mapping", ":a"),
        ("SELECT * FROM t WHERE id = ?", {"a": 1}, "sequence", "?"),
        ("SELECT * FROM t WHERE id = ? OR id = $2", (1, 2), "all parameters", "$2"),
        ("SELECT * FROM t WHERE id = $0", (1,), "numbers are 1 to", "$0"),
        ("SELECT * FROM t WHERE id = ?", (object(),), "is no SQL value", "?"),
        ("SELECT * FROM t WHERE id = ?", ([1, 2],), "= ANY", "id = ?"),
        ("SELECT * FROM t WHERE id = ?", ([1, "x"],), "a list of INT and VARCHAR is no SQL value", "?"),
        ("SELECT * FROM t LIMIT ?", ("x",), "LIMIT takes", "?"),
        ("SELECT * FROM t LIMIT ?", (-1,), "LIMIT takes", "?"),
        ("SELECT * FROM ?", ("t",), "a name is expected", "?"),
        ("CREATE TABLE u (a INT DEFAULT ?)", (1,), "parameter", "?"),
        ("CREATE MATERIALIZED VIEW v AS SELECT * FROM t WHERE id = ?", (1,), "parameter", "?"),
        ("SELECT 1; SELECT ?", (1,), "one query or data change", ""),
        ("SELECT date_trunc(?, day) FROM t", ("unit",), "unit", ""),
    ],
)
def test_errors_point_at_the_parameter(db, text, params, message, at):
    for _ in range(2):
        with pytest.raises((BindError, ParseError)) as caught:
            db.query(text, params)
        assert message in str(caught.value), caught.value
        if at:
            assert caught.value.text[caught.value.start : caught.value.end].startswith(at[0]), caught.value


def test_a_function_that_needs_a_constant_gets_one(db):
    for unit, expected in (("month", 1), ("day", 8)):
        text = "SELECT date_trunc(?, day) AS d FROM t WHERE id = ?"
        assert db.query(text, (unit, 7)).to_pylist()[0]["d"].day == expected


def test_random_queries_with_and_without_parameters(db):
    rng = random.Random(run_seed())
    columns = {"id": lambda: rng.choice((rng.randrange(-2, ROWS + 2), 1 << 40)),
               "amount": lambda: Decimal(rng.randrange(9_000)) / 100, "name": lambda: f"n{rng.randrange(9)}",
               "x": lambda: rng.randrange(300) / 8,
               "day": lambda: date(2024, 1, 1) + timedelta(rng.randrange(60))}  # fmt: skip
    for number in range(150):
        values, marked, written = [], [], []
        for _ in range(rng.choice((1, 1, 2, 3))):
            column, sign = rng.choice(list(columns)), rng.choice(("=", "<", "<=", ">", ">=", "<>"))
            value = columns[column]()
            values.append(value)
            marked.append(f"{column} {sign} ?")
            shown = repr(value) if isinstance(value, str) else str(value)
            shown = f"DATE '{value}'" if isinstance(value, date) else shown
            shown = f"{shown}e0" if isinstance(value, float) else shown
            written.append(f"{column} {sign} {shown}")
        word = rng.choice((" AND ", " AND ", " OR "))
        found = db.query(f"SELECT id, name FROM t WHERE {word.join(marked)}", values)
        expected = db.sql(f"SELECT id, name FROM t WHERE {word.join(written)}").to_arrow()
        assert found.sort_by("id").equals(expected.sort_by("id")), (run_seed(), number, written)


def test_types_of_parameters_have_plans_of_their_own(db):
    text, cache = "SELECT name FROM t WHERE id = ? -- types", cache_of(db)
    before = len(cache._found)
    for value in (1, 2, 3):
        db.query(text, (value,))
    assert len(cache._found) == before + 1
    misses = cache.misses
    for value in (1 << 40, 1.0, "1", None, Decimal("1.0"), Decimal("2.0")):
        db.query(text, (value,))
    assert cache.misses == misses + 5 and len(cache._found) == before + 6


def test_now_is_the_time_of_the_execution(db):
    texts = ("SELECT now() AS at, ? AS x", "SELECT date_trunc(?, now()) AS at", "SELECT now() AS at")
    for text, params in zip(texts, ((1,), ("microsecond",), ()), strict=True):
        times = []
        for _ in range(3):
            times.append(db.query(text, params)["at"][0].as_py())
            time.sleep(0.002)
        assert times == sorted(times) and times[0] < times[2], text
        relations = [db.sql(text, params) for _ in range(4)]
        assert all(relation.to_arrow()["at"][0].as_py() >= times[2] for relation in relations), text


def test_a_ddl_between_executions():
    with stream.connect("memory://", barrier_interval_ms=3_600_000) as session:
        session.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
        session.sql("INSERT INTO t VALUES (1, 10)")
        session.flush()
        text = "SELECT * FROM t WHERE id = ?"
        assert session.query(text, (1,)).to_pylist() == [{"id": 1, "v": 10}]
        session.sql("ALTER TABLE t ADD COLUMN w INT DEFAULT 5")
        assert session.query(text, (1,)).to_pylist() == [{"id": 1, "v": 10, "w": 5}]
        session.sql("ALTER TABLE t DROP COLUMN v")
        assert session.query(text, (1,)).to_pylist() == [{"id": 1, "w": 5}]
        session.sql("DROP TABLE t")
        with pytest.raises(BindError, match="there is no table"):
            session.query(text, (1,))
        session.sql("CREATE TABLE t (id VARCHAR PRIMARY KEY)")
        session.sql("INSERT INTO t VALUES ('1')")
        session.flush()
        assert session.query(text, ("1",)).to_pylist() == [{"id": "1"}]
        session.sql("CREATE VIEW seen AS SELECT id FROM t WHERE id <> 'x'")
        assert session.query("SELECT * FROM seen WHERE id = ?", ("1",)).num_rows == 1


def test_the_cache_is_bounded(monkeypatch):
    monkeypatch.setattr(statement_cache, "MOST_STATEMENTS", 5)
    monkeypatch.setattr(statement_cache, "MOST_CHARACTERS", 2_000)
    monkeypatch.setattr(statement_cache, "MOST_CONSTANTS", 3)
    with stream.connect("memory://", barrier_interval_ms=3_600_000) as session:
        cache = cache_of(session)
        for number in range(20):
            assert session.query(f"SELECT ? + {number} AS n", (1,)).to_pylist() == [{"n": 1 + number}]
            assert len(cache._found) <= 5 and len(cache._texts) <= 5
        for number in range(20):
            session.query("SELECT 1 AS n LIMIT ?", (number,))
            assert len(cache._found) <= 5
        for number in range(9):
            session.query(f"SELECT ? AS n -- {'x' * (300 * number)}", (1,))
            assert cache._characters == sum(len(each.text) for each in cache._found.values()) <= 2_000


def test_a_text_without_parameters_is_kept_when_it_comes_again(db):
    cache, text = cache_of(db), "SELECT count(*) AS n FROM t WHERE id > 5 OR id = 2"
    found = []
    for _ in range(4):
        misses = cache.misses
        found.append(db.sql(text).to_arrow())
        last = cache.misses - misses
    assert last == 0 and all(each == found[0] for each in found)
    one, two = db.sql(text), db.sql(text)
    assert one.plan is two.plan


def test_constants_of_simple_conditions_share_a_plan(db):
    cache = cache_of(db)
    db.query("SELECT name FROM t WHERE id = 1 AND name = 'n1'")
    misses = cache.misses
    for number in range(2, 30):
        found = db.query(f"SELECT name FROM t WHERE id = {number} AND name = 'n{number % 7}'")
        assert found.to_pylist() == [{"name": f"n{number % 7}"}]
        assert db.sql(f"SELECT name FROM t WHERE id = {number} AND name = 'n{number % 7}'").to_arrow() == found
    assert cache.misses == misses
    for run in db.query, db.sql:
        with pytest.raises(BindError) as caught:
            run("SELECT name FROM t WHERE id = 'it''s' AND name = 'n1'")
        assert caught.value.text[caught.value.start : caught.value.end].startswith("id = 'it''s'")


def test_a_relation_of_a_kept_plan_is_built_over_as_any_other(db):
    text = "SELECT id, name FROM t WHERE id < {}"
    kept = db.sql(text.format(40))
    assert repr(kept) == repr(db.sql("SELECT id, name FROM t WHERE id < 40 OR false"))
    assert kept.columns == ("id", "name") and len(kept.rows()) == 41
    kept = db.sql(text.format(30))      # of the same plan, with another value
    assert sorted(kept.filter(stream.col("id") > 27).select("name").to_arrow()["name"].to_pylist()) == ["n0", "n1"]
    assert kept.to_arrow().num_rows == 31 and "30" in kept.explain()


def test_constants_of_simple_changes_share_a_plan():
    texts = {
        "UPDATE p SET v = v + {0} WHERE id = {1}": lambda v, s, n: (v + n, s),
        "UPDATE p SET v = v - -{0}, s = '= {0}, ''x' WHERE id = {1} AND s <> 'WHERE 3'":
            lambda v, s, n: (v + n, f"= {n}, 'x"),
        "UPDATE p SET v = {0}.50 WHERE id = {1};": lambda v, s, n: (n + 0.5, s),
        "UPDATE p SET v = p.v * {0} WHERE id = {1} AND v >= -1000000": lambda v, s, n: (v * n, s),
        "DELETE FROM p WHERE id = {1} AND v > {0}": lambda v, s, n: None if v > n else (v, s),
    }
    chance, model = random.Random(run_seed()), {number: (float(number), "s") for number in range(40)}
    with stream.connect("memory://", barrier_interval_ms=3_600_000) as session:
        session.sql("CREATE TABLE p (id INT PRIMARY KEY, v DOUBLE PRECISION, s VARCHAR)")
        session.executemany("INSERT INTO p VALUES (?, ?, ?)", [(number, *row) for number, row in model.items()])
        for text in texts:
            assert session.sql(text.format(1, 1_000)) == 0
        misses = cache_of(session).misses
        for _ in range(200):
            (text, change), number, key = chance.choice([*texts.items()]), chance.randrange(1, 9), chance.randrange(40)
            after = change(*model[key], number) if key in model else None
            affected = key in model and (after is None or "DELETE" not in text)
            assert session.sql(text.format(number, key)) == affected, text
            if affected and after is None:
                del model[key]
            elif affected:
                model[key] = after
        assert cache_of(session).misses == misses
        session.flush()
        found = {row["id"]: (row["v"], row["s"]) for row in session.sql("SELECT * FROM p").rows()}
        assert found == model
        with pytest.raises(BindError) as caught:
            session.sql("UPDATE p SET v = 'x' WHERE id = 1")
        assert "UPDATE p SET v = 'x'" in caught.value.text
        assert lifted("UPDATE p SET v = v --5 WHERE id = 1") is None


def test_prepare_execute_deallocate(db):
    db.sql("PREPARE one (BIGINT, NUMERIC(12, 2)) AS SELECT id FROM t WHERE id = $1 AND amount < $2")
    assert db.sql("EXECUTE one (7, 100)").to_pylist() == [{"id": 7}]
    assert db.sql("EXECUTE one ('7', 1 + 1)").to_pylist() == [{"id": 7}]
    assert db.sql("EXECUTE one (7, NULL)").to_pylist() == []
    with pytest.raises(BindError, match="parameter 1 of one"):
        db.sql("EXECUTE one ('x', 1)")
    with pytest.raises(BindError, match="no value is given"):
        db.sql("EXECUTE one (7)")
    with pytest.raises(BindError, match="constants"):
        db.sql("EXECUTE one (7, 1 / 0)")
    with pytest.raises(InvalidStatement, match="is prepared"):
        db.sql("PREPARE one AS SELECT 1")
    db.sql("PREPARE change AS UPDATE t SET x = x + $2 WHERE id = $1")
    assert db.sql("EXECUTE change (200, 1.5)") == 1 and db.sql("EXECUTE change (99999, 1)") == 0
    db.sql("DEALLOCATE one")
    for text in ("EXECUTE one (7, 100)", "DEALLOCATE one", "DEALLOCATE PREPARE nothing"):
        with pytest.raises(NotFound, match="is prepared"):
            db.sql(text)
    db.sql("DEALLOCATE ALL")
    with pytest.raises(NotFound):
        db.sql("EXECUTE change (1, 1)")
    for text in ("PREPARE x AS CREATE TABLE u (a INT)", "PREPARE x AS", "PREPARE x SELECT 1", "EXECUTE", "DEALLOCATE"):
        with pytest.raises(ParseError):
            db.sql(text)
    with pytest.raises(BindError):
        db.sql("PREPARE x (nothing) AS SELECT 1")


def test_query_answers_queries_and_executemany_changes():
    with stream.connect("memory://", barrier_interval_ms=3_600_000) as session:
        session.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR, n NUMERIC(5, 1))")
        with pytest.raises(InvalidStatement, match="answers queries"):
            session.query("DELETE FROM t WHERE id = ?", (1,))
        with pytest.raises(InvalidStatement, match="takes INSERT"):
            session.executemany("SELECT ?", [(1,)])
        assert session.executemany("DELETE FROM t WHERE id = ?", []) == 0
        rows = [(1, "a", 1), (2, None, 2.5), (3, "c", None), (4, "d", Decimal("4.5"))]
        assert session.executemany("INSERT INTO t VALUES (?, upper(?), ?)", rows) == 4
        given = [{"id": 1, "v": "x", "d": 1}, {"id": 9, "v": "y", "d": 1}, {"id": 1, "v": "z", "d": 2}]
        assert session.executemany("UPDATE t SET v = :v, n = n + :d WHERE id = :id", given) == 2
        assert session.executemany("DELETE FROM t WHERE id = $1", [(2,), (2,), (3,)]) == 2
        session.flush()
        assert session.query("SELECT * FROM t ORDER BY id").to_pylist() == [
            {"id": 1, "v": "z", "n": Decimal("4.0")}, {"id": 4, "v": "D", "n": Decimal("4.5")}]
        with pytest.raises(DuplicateKey):
            session.executemany("INSERT INTO t VALUES (?, ?, ?)", [(7, "x", 1), (1, "x", 1)])
        with pytest.raises(BindError, match="is no INT"):
            session.executemany("UPDATE t SET v = 'q' WHERE id = ?", [(4,), ("x",)])
        session.flush()
        assert session.query("SELECT id FROM t WHERE id = 7 OR v = 'q'").to_pylist() == [{"id": 4}]  # not undone


MANY = (
    "UPDATE {0} SET x = x + :x, v = :v WHERE id = :id",
    "UPDATE {0} SET x = :x WHERE id = :id AND v < 'm'",
    "UPDATE {0} SET x = CAST(:id AS DOUBLE PRECISION) WHERE :id = id AND x > :x",
    "UPDATE {0} SET v = v || '!' WHERE id = :id",
    "UPDATE {0} SET x = id + :x WHERE id > :id",
    "DELETE FROM {0} WHERE id = :id",
    "DELETE FROM {0} WHERE id = :id AND v = :v",
)


def test_many_executions_are_those_of_one_after_the_other():
    rng = random.Random(f"{run_seed()} many")
    with stream.connect("memory://", barrier_interval_ms=3_600_000) as session:
        for name in ("one", "many"):
            session.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR, x DOUBLE PRECISION)")
        for _ in range(25):
            made = [(rng.randrange(60), rng.choice("akz"), rng.randrange(9) / 2) for _ in range(20)]
            made = list({row[0]: row for row in made}.values())
            for name in ("one", "many"):
                session.executemany(f"DELETE FROM {name} WHERE id = ?", [row[:1] for row in made])
                session.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", made)
            text = rng.choice(MANY)
            names = [name for name in ("id", "v", "x") if f":{name}" in text]
            draws = {"id": lambda: rng.choice((rng.randrange(60), rng.randrange(60), None, 1 << 40)),
                     "v": lambda: rng.choice(("a", "q", None)), "x": lambda: rng.choice((rng.randrange(4) / 2, None))}
            rows = [{name: draws[name]() for name in names} for _ in range(rng.choice((1, 3, 40)))]
            affected = session.executemany(text.format("many"), rows)
            assert affected == sum(session.sql(text.format("one"), row) for row in rows), (run_seed(), text, rows)
            session.flush()
            one, many = (session.query(f"SELECT * FROM {name} ORDER BY id") for name in ("one", "many"))
            assert one == many, (run_seed(), text, rows)


def test_a_failing_execution_leaves_the_others():
    with stream.connect("memory://", barrier_interval_ms=3_600_000) as session:
        session.sql("CREATE TABLE t (id INT PRIMARY KEY, n SMALLINT NOT NULL)")
        session.executemany("INSERT INTO t VALUES (?, 1)", [(number,) for number in range(5)])
        with pytest.raises(InvalidStatement):
            session.executemany("UPDATE t SET n = n + ? WHERE id = ?", [(1, 0), (32_767, 1), (1, 2)])
        session.flush()
        assert session.query("SELECT n FROM t ORDER BY id")["n"].to_pylist() == [2, 1, 2, 1, 1]


def test_lookups_while_rows_are_committed():
    """A lookup pins no epoch; it sees a committed one, and never an older one than before."""
    with stream.connect("memory://", barrier_interval_ms=5) as session:
        session.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
        session.sql("INSERT INTO t VALUES (1, 0)")
        session.flush()
        done = threading.Event()

        def write() -> None:
            number = 0
            while not done.is_set():
                number += 1
                session.sql("UPDATE t SET v = ? WHERE id = ?", (number, 1))

        writer = threading.Thread(target=write)
        writer.start()
        try:
            last = 0
            for _ in range(3_000):
                (found,) = session.query("SELECT v FROM t WHERE id = ?", (1,))["v"].to_pylist()
                assert found >= last
                last = found
        finally:
            done.set()
            writer.join()
        assert last > 0


def test_the_rows_of_a_lookup_are_those_of_a_scan():
    rng = random.Random(f"{run_seed()} lookup")
    types = {"a": ("INT", lambda: rng.randrange(-3, 3)), "b": ("VARCHAR", lambda: rng.choice("xyz")),
             "c": ("NUMERIC(6, 2)", lambda: Decimal(rng.randrange(-300, 300)) / 100),
             "d": ("TIMESTAMP", lambda: datetime(2024, 1, 1 + rng.randrange(4))),
             "e": ("REAL", lambda: rng.randrange(4) / 2), "f": ("BOOLEAN", lambda: rng.random() < 0.5)}  # fmt: skip
    with stream.connect("memory://", barrier_interval_ms=3_600_000) as session:
        for number in range(8):
            key = rng.sample(list(types), rng.randrange(1, 4))
            options = "" if number % 2 else " WITH (row_format = 'cell')"
            columns = ", ".join(f"{name} {kind}" for name, (kind, _) in types.items())
            columns += f", PRIMARY KEY ({', '.join(key)})"
            session.sql(f"CREATE TABLE t{number} ({columns}) ON CONFLICT OVERWRITE{options}")
            made = [tuple(draw() for _, draw in types.values()) for _ in range(60)]
            session.executemany(f"INSERT INTO t{number} VALUES (?, ?, ?, ?, ?, ?)", made)
            session.flush()
            chosen = rng.sample(list(types), rng.randrange(1, 6))
            condition = " AND ".join(f"{name} = :{name}" for name in key)
            text = f"SELECT {', '.join(chosen)} FROM t{number} WHERE {condition}"
            every = session.query(f"SELECT * FROM t{number}").to_pylist()
            for wanted in [*made[:10], tuple(draw() for _, draw in types.values())]:
                given = {name: value for name, value in zip(types, wanted, strict=True) if name in key}
                expected = [{name: each[name] for name in chosen} for each in every
                            if all(each[name] == value for name, value in given.items())]
                found = session.query(text, given)
                assert found.to_pylist() == expected, (run_seed(), number, text, given)
                assert found.column_names == chosen
