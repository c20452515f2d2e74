"""Views that join under keys whose rows exceed the budget, over random statements and restarts, against DuckDB."""

from collections import Counter

import pytest

import stream
from relational.table import scan
from stream.executor import join_side
from stream.executor.stored_partners import StoredPartners
from tests.support.drivers.seeds import amount, seeds, varied_rng
from tests.support.suites.duck import oracle

BUDGET = 2_000
ROUNDS, IDS, KEYS = amount(3, 5), 400, 3
TABLES = "CREATE TABLE a (id BIGINT PRIMARY KEY, k INT, x INT); CREATE TABLE b (id BIGINT PRIMARY KEY, k INT, y INT)"
ON = {"equal": "a.k = b.k", "condition": "a.k = b.k AND a.x < b.y"}
JOINS = {
    **{kind: f"SELECT a.id AS one, a.x, b.id AS other, b.y FROM a {kind.upper()} JOIN b ON {{on}}"
       for kind in ("inner", "left", "right", "full")},
    "semi": "SELECT a.id, a.k, a.x FROM a WHERE EXISTS (SELECT 1 FROM b WHERE {on})",
    "anti": "SELECT a.id, a.k, a.x FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE {on})",
}


def statements(rng):
    """Of one epoch; most rows have one key."""
    def value(name):
        return "NULL" if rng.random() < 0.1 else str(rng.integers(0, KEYS if name == "k" else 40))

    def key():
        return "1" if rng.random() < 0.8 else value("k")

    for table, column in (("a", "x"), ("b", "y")):
        first, last = sorted(rng.integers(0, IDS, 2).tolist())
        yield f"DELETE FROM {table} WHERE id BETWEEN {first} AND {last}"
        new = range(first, last + 1) if rng.random() < 0.7 else range(first, first + 1)
        if rng.random() < 0.8:
            rows = ", ".join(f"({at}, {key()}, {value(column)})" for at in new)
            yield f"INSERT INTO {table} VALUES {rows}"
        at = rng.integers(0, IDS)
        yield f"UPDATE {table} SET {column} = {value(column)} WHERE id BETWEEN {at} AND {at + rng.integers(0, 60)}"
        yield f"UPDATE {table} SET k = {key()} WHERE id % 50 = {rng.integers(0, 50)}"


@pytest.mark.parametrize("on", ON.values(), ids=ON)
def test_views_over_keys_beyond_the_budget_agree_with_duckdb(tmp_path, monkeypatch, on):
    monkeypatch.setattr(scan, "ROWS_AT_ONCE", 32)
    monkeypatch.setattr(join_side, "READ_ROWS", 64)
    changes, met = StoredPartners.changes, []

    def counted(partners, ops):
        met.append(partners._step.number)
        return changes(partners, ops)

    monkeypatch.setattr(StoredPartners, "changes", counted)
    for seed in seeds(1, 8):
        print("seed", seed)
        rng, duck = varied_rng(seed), oracle()
        duck.execute(TABLES)
        views = {name: text.format(on=on) for name, text in JOINS.items()}
        for number in range(ROUNDS):
            url = f"file://{tmp_path}/{seed}"
            with stream.connect(url, create=True, parallelism=1, state_cache_bytes=BUDGET) as db:
                if number == 0:
                    db.sql(TABLES)
                    for name, text in views.items():
                        db.sql(f"CREATE MATERIALIZED VIEW {name}_join AS {text}")
                for statement in (each for _ in range(2) for each in statements(rng)):
                    db.sql(statement)
                    duck.execute(statement)
                db.flush()
                for name, text in views.items():
                    found = Counter(tuple(each.values()) for each in db.sql(f"SELECT * FROM {name}_join").rows())
                    assert found == Counter(duck.sql(text).fetchall()), (seed, number, name)
                for each in (state for name in views for state in db.memory(f"{name}_join").to_pylist()):
                    if each["state"] in ("left rows", "right rows"):
                        assert each["rows"] <= 64, each
    assert set(met) == {0, 1}
