"""Random views over random change streams, with restarts: at every epoch each holds what the interpreter of its plan
computes.

HUMMOCK_VIEW_PROGRAMS is the number of programs; HUMMOCK_VIEW_SEED runs one of them. A failure shows seed and query.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

import stream
from relational.catalog.names import ObjectName
from relational.catalog.objects import TableCatalog
from relational.errors import RelationalError
from relational.plan.logical import LogicalPlan
from relational.sql import bind_sql
from tests.support.drivers.plan_interpreter import Rows, TooManyPairs, interpret, visible
from tests.support.drivers.random_queries import TABLES, QueryMaker, rows
from tests.support.drivers.seeds import run_seed
from tests.support.suites.duck import assert_same_rows, rows_of

PROGRAMS = int(os.environ.get("HUMMOCK_VIEW_PROGRAMS", "3"))
ONE = os.environ.get("HUMMOCK_VIEW_SEED")
EPOCHS, VIEWS = 8, 4
MOST_ROWS = 200
"""Of a view that another one reads: the interpreter looks at all pairs."""
pytestmark = pytest.mark.timeout(300 + 10 * PROGRAMS)
VALUES = {"i": ["NULL", "1", "2", "5"], "t": ["NULL", "''", "'a'", "'B'"], "n": ["NULL", "0.5", "-2.25"],
          "f": ["NULL", "0.5", "-2.25"]}
KEYS = {"t": 1, "u": 2, "v": 0}
"""How many of the first columns are the key of a table."""


class Program:
    """A session, the rows that its tables should have, and the plans of its views."""

    def __init__(self, seed: str, url: str) -> None:
        self.rng, self._maker = random.Random(seed), QueryMaker(seed, is_view=True, has_sums=True, has_joins=True)
        self._url = url
        self.db = self._connected()
        self.tables: dict[str, Rows] = {}
        self.views: dict[str, tuple[str, LogicalPlan]] = {}
        self._made = self._refused = 0
        for name, (statement, _, _) in TABLES.items():
            self.db.sql(statement)
            self.tables[name] = []

    def _connected(self) -> stream.Session:
        return stream.connect(
            self._url, create=True,
            barrier_interval_ms=3_600_000,
            parallelism=self.rng.choice([1, 2, 3]),
            state_cache_bytes=self.rng.choice([1, 1 << 12, 1 << 28]),
        )

    def run(self) -> None:
        for _ in range(EPOCHS):
            if self.rng.random() < 0.2:
                self.db.close()
                self.db = self._connected()
            for _ in range(self.rng.randint(0, 3)):
                self._change(self.rng.choice(list(TABLES)))
            if len(self.views) < VIEWS and self.rng.random() < 0.7:
                self._create()
            self.db.flush()
            assert not self.db.failed_jobs, self.db.failed_jobs
            try:
                self.check()
            except TooManyPairs:
                return
        assert self._refused <= len(self.views)

    def check(self) -> None:
        """Each view, and each table, at one epoch."""
        catalog = self.db._playground.catalog
        stored = {catalog.resolve(ObjectName.parse(name)).id: self._stored(name) for name in TABLES}
        with self.db.at() as snapshot:
            for name, expected in self.tables.items():
                assert_same_rows(rows_of(snapshot.sql(f"SELECT * FROM {name}").to_arrow()), expected, ordered=False)
            for name, (text, plan) in self.views.items():
                found = rows_of(snapshot.sql(f"SELECT * FROM {name}").to_arrow())
                expected = visible(plan, interpret(plan, stored))
                try:
                    assert_same_rows(found, expected, ordered=False)
                except AssertionError as error:
                    raise AssertionError(f"{name}: {text}") from error
                if len(expected) > MOST_ROWS:
                    self._maker.views.pop(name, None)
                view = catalog.resolve(ObjectName.parse(name))
                stored[view.id] = [_with_hidden(view, row) for row in expected]

    def _stored(self, name: str) -> Rows:
        """With the hidden row id of a table without a key."""
        return [(*row, number) if not KEYS[name] else row for number, row in enumerate(self.tables[name])]

    def _create(self) -> None:
        name, text = f"view{len(self.views)}", self._maker.query()
        try:
            self.db.sql(f"CREATE MATERIALIZED VIEW {name} AS {text}")
        except RelationalError:  # types that do not fit
            self._refused += 1
            return
        (statement,) = bind_sql(text, self.db._playground.catalog)
        self.views[name] = text, statement.plan
        self._maker.views[name] = self._maker.columns

    def _change(self, name: str) -> None:
        turn = self.rng.random()
        if turn < 0.5 or not self.tables[name]:
            self._insert(name)
        elif turn < 0.75:
            self._update(name)
        else:
            self._delete(name)

    def _insert(self, name: str) -> None:
        """Rows with keys that were never used."""
        first, count = self._made, self.rng.randint(1, 12)
        self._made += count
        fresh = list(rows(self.rng, name, count))
        if name == "t":
            fresh = [(first + number, *row[1:]) for number, row in enumerate(fresh)]
        if name == "u":
            fresh = [(row[0], 1_000 * first + row[1], row[2]) for row in fresh]
        self.db.table(name).insert(fresh)
        self.tables[name] += fresh

    def _update(self, name: str) -> None:
        """One column, which is no key, of the rows with one value of a column. Sometimes rows are deleted and come back
        with the same keys."""
        kinds, names = TABLES[name][1:]
        if KEYS[name] and self.rng.random() < 0.3:
            self._renew(name)
            return
        column = self.rng.randrange(KEYS[name], len(names))
        at, value = self._chosen(name)
        text = self.rng.choice(VALUES[kinds[column]])
        self.db.sql(f"UPDATE {name} SET {names[column]} = {text} WHERE {self._equals(name, at, value)}")
        new = self.db.sql(f"SELECT CAST({text} AS {TYPES[kinds[column]]}) AS x").rows()[0]["x"]
        self.tables[name] = [
            (*row[:column], new, *row[column + 1 :]) if row[at] == value else row for row in self.tables[name]
        ]

    def _renew(self, name: str) -> None:
        """Deletes some rows, and inserts others with the same keys."""
        key = KEYS[name]
        old = self.rng.sample(self.tables[name], min(3, len(self.tables[name])))
        for row in old:
            self._delete_where(name, key - 1, row[key - 1])  # the last column of a key is unique
        values = rows(self.rng, name, len(old))
        fresh = [(*row[:key], *other[key:]) for row, other in zip(old, values, strict=True)]
        self.db.table(name).insert(fresh)
        self.tables[name] += fresh

    def _delete(self, name: str) -> None:
        self._delete_where(name, *self._chosen(name))

    def _delete_where(self, name: str, at: int, value: Any) -> None:
        self.db.sql(f"DELETE FROM {name} WHERE {self._equals(name, at, value)}")
        self.tables[name] = [row for row in self.tables[name] if row[at] != value]

    def _chosen(self, name: str) -> tuple[int, Any]:
        """A column, and a value that it has in some row."""
        at = self.rng.randrange(len(TABLES[name][2]))
        return at, self.rng.choice(self.tables[name])[at]

    def _equals(self, name: str, at: int, value: Any) -> str:
        text = "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)
        return f"{TABLES[name][2][at]} IS NOT DISTINCT FROM {text}"


def _with_hidden(view: TableCatalog, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row of a view with its hidden columns, which no query names."""
    shown = iter(row)
    return tuple(None if column.is_hidden else next(shown) for column in view.columns)


TYPES = {"i": "INT", "t": "VARCHAR", "n": "NUMERIC(10, 2)", "f": "DOUBLE PRECISION"}


@pytest.mark.parametrize("number", range(PROGRAMS) if ONE is None else [ONE])
def test_views_hold_what_the_interpreter_computes(number, tmp_path):
    seed = ONE if ONE is not None else f"{run_seed()} {number}"
    program = Program(seed, f"file://{tmp_path}/store")
    try:
        program.run()
    except Exception as error:
        raise AssertionError(f"HUMMOCK_VIEW_SEED={seed!r} repeats it") from error
    finally:
        program.db.close()
