"""UPDATE and DELETE by one text and many values: their plan is made once, their effect is that of each for itself."""

from __future__ import annotations

import random
import sqlite3

import pytest

import stream
from relational.errors import BindError
from stream.errors import InvalidStatement
from stream.executor import change_plan
from stream.executor.change_plan import MOST_PLANS, ChangePlan
from tests.support.drivers.seeds import run_seed

KEYS = 12


@pytest.fixture
def db():
    with stream.connect("memory://", barrier_interval_ms=3_600_000) as session:
        session.sql("CREATE TABLE t (a BIGINT, b SMALLINT, v BIGINT, s VARCHAR, PRIMARY KEY (a, b))")
        yield session


@pytest.fixture
def plans(monkeypatch):
    """The plans that are made from now on."""
    made = []

    class Counted(ChangePlan):
        def __init__(self, statement, table, **options):
            made.append(statement)
            super().__init__(statement, table, **options)

    monkeypatch.setattr(change_plan, "ChangePlan", Counted)
    return made


def fill(session, rows):
    session.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)


TEXTS = (
    "UPDATE t SET v = v + ? WHERE a = ? AND b = ?",
    "UPDATE t SET v = ? WHERE a = ? AND b = ?",
    "UPDATE t SET v = ?, s = ? WHERE b = ? AND a = ?",
    "UPDATE t SET s = s || ?, v = CASE WHEN v > ? THEN ? ELSE v END WHERE a = ?",
    "UPDATE t SET v = ? WHERE a = ? AND b = ? AND v > ?",
    "UPDATE t SET v = -v WHERE a BETWEEN ? AND ?",
    "UPDATE t SET v = 1 WHERE a IN (?, ?) AND s IS NOT NULL",
    "UPDATE t SET v = ?",
    "DELETE FROM t WHERE a = ? AND b = ?",
    "DELETE FROM t WHERE a = ? AND v < ?",
    "DELETE FROM t WHERE v = ? AND s = ?",
)


def values_for(rng, text):
    found = []
    for before in text.split("?")[:-1]:
        is_text = before.endswith(("|| ", "s = "))
        value = rng.choice(("", "x", "yy")) if is_text else rng.randrange(-3, KEYS)
        found.append(None if rng.random() < 0.1 else value)
    return found


def test_random_values_agree_with_sqlite(db):
    rng = random.Random(run_seed())
    oracle = sqlite3.connect(":memory:", isolation_level=None)
    oracle.execute("CREATE TABLE t (a INTEGER, b INTEGER, v INTEGER, s TEXT, PRIMARY KEY (a, b))")
    for _ in range(300):
        if rng.random() < 0.3:
            row = (rng.randrange(KEYS), rng.randrange(3), rng.randrange(-9, 9), rng.choice((None, "", "x")))
            if oracle.execute("INSERT OR IGNORE INTO t VALUES (?, ?, ?, ?)", row).rowcount:
                assert db.sql("INSERT INTO t VALUES (?, ?, ?, ?)", row) == 1
        text = rng.choice(TEXTS)
        values = values_for(rng, text)
        assert db.sql(text, values) == oracle.execute(text, values).rowcount, (text, values)
        if rng.random() < 0.1:
            db.flush()
    db.flush()
    expected = oracle.execute("SELECT * FROM t ORDER BY a, b").fetchall()
    assert sorted(zip(*db.query("SELECT * FROM t").to_pydict().values(), strict=True)) == expected


def test_a_text_is_planned_once_and_anew_for_other_columns(db, plans):
    fill(db, [(number, 0, number, "s") for number in range(KEYS)])
    for number in range(KEYS):
        assert db.sql("UPDATE t SET v = v * ? WHERE a = ? AND b = 0", (2, number)) == 1
        assert db.sql(f"UPDATE t SET v = v + 1 WHERE a = {number} AND b = 0") == 1
    assert len(plans) == 2
    db.sql("ALTER TABLE t ADD COLUMN w BIGINT DEFAULT 5")
    db.sql("ALTER TABLE t DROP COLUMN s")
    for number in range(KEYS):
        assert db.sql("UPDATE t SET v = v * ?, w = w + v WHERE a = ? AND b = 0", (2, number)) == 1
    assert len(plans) == 3
    db.flush()
    rows = db.query("SELECT a, v, w FROM t ORDER BY a").to_pylist()
    assert rows == [{"a": n, "v": 2 * (2 * n + 1), "w": 5 + 2 * n + 1} for n in range(KEYS)]


def test_many_texts_are_planned_however_many_they_are(db, plans):
    fill(db, [(0, 0, 0, "s")])
    for _ in range(2):
        for number in range(MOST_PLANS + 1):
            assert db.sql(f"UPDATE t SET v = v + CAST(? AS BIGINT) + {number} - {number} WHERE a = ?", (1, 0)) == 1
    db.flush()
    assert db.query("SELECT v FROM t").to_pylist() == [{"v": 2 * (MOST_PLANS + 1)}]


def test_values_that_do_not_fit_fail_and_change_nothing(db):
    fill(db, [(1, 1, 1, "s")])
    text = "UPDATE t SET v = 100 / ? WHERE a = ? AND b = ?"
    for _ in range(2):
        assert db.sql(text, (10, 1, 1)) == 1
        with pytest.raises(InvalidStatement, match="division by zero"):
            db.sql(text, (0, 1, 1))
        assert db.sql(text, (0, 2, 1)) == 0, "no row is divided"
        with pytest.raises(BindError, match="parameter 2"):
            db.sql("UPDATE t SET v = 7 WHERE b = ? AND a = ?", (1, "one"))
        assert db.sql("UPDATE t SET v = 7 WHERE a = ? AND b = ?", (1, 1 << 40)) == 0, "no SMALLINT is that large"
        assert db.sql("UPDATE t SET v = 7 WHERE a = ? AND b = ?", (None, 1)) == 0
    db.flush()
    assert db.query("SELECT v FROM t").to_pylist() == [{"v": 10}]


def test_executions_of_one_text_in_a_transaction_take_effect_in_order(db):
    fill(db, [(1, 1, 1, "s")])
    with db.transaction():
        for factor in (3, 5, 7):
            db.sql("UPDATE t SET v = v * ? + 1 WHERE a = ? AND b = ?", (factor, 1, 1))
        db.sql("DELETE FROM t WHERE a = ? AND v <> ?", (1, ((1 * 3 + 1) * 5 + 1) * 7 + 1))
    db.flush()
    assert db.query("SELECT v FROM t").to_pylist() == [{"v": 148}]
