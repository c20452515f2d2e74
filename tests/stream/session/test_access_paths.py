"""Statements and queries that find rows by keys and indexes, beside DuckDB, which has neither: random changes by
conditions on the key, within an epoch and after it, and the same rows through every index."""

from __future__ import annotations

import random
from datetime import date, timedelta
from decimal import Decimal

import pytest

import stream
from tests.support.drivers.seeds import amount, run_seed
from tests.support.suites.duck import assert_same_rows, oracle, rows_of

COLUMNS = "a INT, b VARCHAR, c NUMERIC(8, 2), d DATE, e DOUBLE PRECISION"
KEYS = ("a", "a, b", "b, c, a", "d, a")
INDEXES = ("(b)", "(c DESC, b)", "(d) INCLUDE (c)", "(e, a)", "(b DESC) INCLUDE (a, c, d, e)")


class Both:
    """A table of a session and the same one of DuckDB."""

    def __init__(self, rng: random.Random, url: str, key: str, options: str = "", **settings: object) -> None:
        self.rng, self.duck, self.url, self.settings = rng, oracle(), url, settings
        self.db = stream.connect(url, create=True, barrier_interval_ms=3_600_000, **settings)
        self.db.sql(f"CREATE TABLE t ({COLUMNS}, PRIMARY KEY ({key})) ON CONFLICT IGNORE{options}")
        self.duck.execute(f"CREATE TABLE t ({COLUMNS}, PRIMARY KEY ({key}))")
        self.log: list[str] = []

    def value(self, column: str) -> str:
        rng = self.rng
        return {
            "a": lambda: str(rng.choice((rng.randrange(-5, 25), 3_000_000_000, 7.5))),
            "b": lambda: f"'{rng.choice('pqrst')}'",
            "c": lambda: str(Decimal(rng.randrange(-40, 80)) / rng.choice((1, 4, 1000))),
            "d": lambda: f"DATE '{date(2024, 1, 1) + timedelta(rng.randrange(9))}'",
            "e": lambda: str(rng.randrange(8) / 2) + "e0",
        }[column]()

    def row(self) -> str:
        a, c = self.rng.randrange(-5, 25), Decimal(self.rng.randrange(-160, 320)) / 4
        b, d = self.value("b"), self.value("d")
        e = "NULL" if self.rng.random() < 0.2 else self.value("e")
        return f"({a}, {b}, {c}, {d}, {e})"

    def condition(self) -> str:
        rng, terms = self.rng, []
        for _ in range(rng.choice((1, 1, 2, 3))):
            column = rng.choice("abcde")
            kind = rng.random()
            if kind < 0.35:
                terms.append(f"{column} = {self.value(column)}")
            elif kind < 0.5:
                terms.append(f"{column} IN ({', '.join(self.value(column) for _ in range(rng.randrange(1, 4)))})")
            elif kind < 0.6:
                terms.append(f"({column} = {self.value(column)} OR {column} = {self.value(column)})")
            elif kind < 0.7:
                terms.append(f"{column} IS {rng.choice(('', 'NOT '))}NULL")
            elif kind < 0.85:
                terms.append(f"{column} {rng.choice(('<', '<=', '>', '>='))} {self.value(column)}")
            else:
                terms.append(f"{column} BETWEEN {self.value(column)} AND {self.value(column)}")
        return " AND ".join(terms)

    def both(self, text: str, ours: str | None = None) -> None:
        self.log.append(text)
        self.duck.execute(text)
        self.db.sql(ours or text)

    def change(self) -> None:
        kind = self.rng.random()
        if kind < 0.5:
            rows = ", ".join(self.row() for _ in range(self.rng.choice((1, 5, 20))))
            self.both(f"INSERT INTO t VALUES {rows} ON CONFLICT DO NOTHING", f"INSERT INTO t VALUES {rows}")
        elif kind < 0.75:
            self.both(f"DELETE FROM t WHERE {self.condition()}")
        else:
            self.both(f"UPDATE t SET e = coalesce(e, 0) + 1 WHERE {self.condition()}")

    def check(self, text: str, *, ordered: bool = False) -> None:
        expected = rows_of(self.duck.sql(text).to_arrow_table())
        assert_same_rows(rows_of(self.db.sql(text).to_arrow()), expected, ordered=ordered)
        assert_same_rows(rows_of(self.db.query(text)), expected, ordered=ordered)

    def restart(self) -> None:
        self.db.close()
        self.db = stream.connect(self.url, create=True, barrier_interval_ms=3_600_000, **self.settings)


def run(both: Both, steps: int, *, has_restarts: bool = False) -> None:
    rng = both.rng
    try:
        for step in range(steps):
            for _ in range(rng.randrange(1, 6)):
                both.change()
            both.db.flush()
            if has_restarts and step % 8 == 5:
                both.restart()
            both.check("SELECT * FROM t")
            for _ in range(4):
                condition = both.condition()
                both.check(f"SELECT {rng.choice(('*', 'a, e', 'b, c', 'count(*) AS n'))} FROM t WHERE {condition}")
                keys = rng.choice(("a, b, c, d, e", "b DESC, a, c, d, e", "c DESC, b, a, d, e", "e, a, b, c, d"))
                limit = rng.choice((1, 3, 30))
                both.check(f"SELECT * FROM t WHERE {condition} ORDER BY {keys} LIMIT {limit}", ordered=True)
            assert not both.db.failed_jobs, both.db.failed_jobs
    except Exception as error:
        raise AssertionError(f"seed {run_seed()}: {both.log[-12:]}") from error
    finally:
        both.db.close()


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("options", ["", " WITH (row_format = 'cell', vnode_count = 3)"])
def test_changes_and_queries_by_key(key, options):
    rng = random.Random(f"{run_seed()} {key} {options}")
    run(Both(rng, "memory://", key, options), amount(5, 8))


def test_queries_through_indexes(tmp_path):
    rng = random.Random(f"{run_seed()} indexes")
    both = Both(rng, f"file://{tmp_path}/store", "a, b")
    for _ in range(4):
        both.change()
    for number, index in enumerate(INDEXES):
        both.db.sql(f"CREATE INDEX i{number} ON t {index}")
    run(both, amount(8, 12), has_restarts=True)


def test_many_rows_of_an_index_are_read_from_the_table(monkeypatch):
    """Also where the limit of rows to look up is passed within a query."""
    monkeypatch.setattr("relational.batch.run.MANY_LOOKUPS", 5)
    rng = random.Random(f"{run_seed()} many")
    both = Both(rng, "memory://", "a")
    for number, index in enumerate(INDEXES[:3]):
        both.db.sql(f"CREATE INDEX i{number} ON t {index}")
    run(both, 8)


def test_an_index_is_used_while_it_exists():
    with stream.connect("memory://", barrier_interval_ms=3_600_000) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT, w INT)")
        db.executemany("INSERT INTO t VALUES (?, ?, ?)", [(number, number % 5, number) for number in range(100)])
        db.flush()
        text = "SELECT id FROM t WHERE v = 3"
        relation = db.sql(text)
        assert "Scan t" in db.explain(text) and relation.to_arrow().num_rows == 20
        db.sql("CREATE INDEX by_v ON t (v)")
        assert "Scan by_v [v = 3] (id, v)" in db.explain(text) and relation.to_arrow().num_rows == 20
        looked_up = "SELECT w FROM t WHERE v = ? AND w > ?"
        assert "IndexLookup t (v, w)" in db.explain("SELECT w FROM t WHERE v = 3 AND w > 50")
        assert db.query(looked_up, (3, 50)).num_rows == 10 and db.query(text).num_rows == 20
        db.sql("DROP INDEX by_v")
        assert "Scan t" in db.explain(text)
        assert db.query(looked_up, (3, 50)).num_rows == 10 and relation.to_arrow().num_rows == 20


def test_a_statement_by_key_reads_its_rows_only(monkeypatch):
    """Not the table: a scan of all rows is made to fail."""
    from relational.table.state_table import StateTable

    with stream.connect("memory://", barrier_interval_ms=3_600_000) as db:
        db.sql("CREATE TABLE t (a INT, b INT, v INT, PRIMARY KEY (a, b))")
        db.executemany("INSERT INTO t VALUES (?, ?, ?)", [(n // 10, n % 10, n) for n in range(100)])

        def refused(self, *args):
            raise AssertionError("all rows are read")

        monkeypatch.setattr(StateTable, "scan_chunks", refused)
        assert db.sql("UPDATE t SET v = v + 1 WHERE a = 3 AND b = 4") == 1
        assert db.sql("UPDATE t SET v = v + 1 WHERE a = 3 AND b > 4 AND v > 0") == 5
        assert db.sql("UPDATE t SET v = 0 WHERE a IN (1, 2, 77)") == 20
        assert db.sql("DELETE FROM t WHERE a >= 8") == 20
        assert db.sql("DELETE FROM t WHERE a = 3.5") == 0
        db.flush()
        assert db.query("SELECT v FROM t WHERE a = 3 AND b = 4").to_pylist() == [{"v": 35}]
        assert db.query("SELECT count(*) AS n FROM t").to_pylist() == [{"n": 80}]
