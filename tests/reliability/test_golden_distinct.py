"""[P13]: DISTINCT calls of a released store continue: values under the hash of their group, or under its columns.

`tests/golden_stores/distinct-<catalog format>` is such a store after the first step, with the answers after each. Plans
with hashes have version 10; `distinct-<catalog format>-columns` is a store from before it.
"""

from __future__ import annotations

import pytest

from tests.reliability.golden_store import GOLDEN, GoldenStore, known_answers, rows_and_tables

NAMES = ("by_text", "by_number", "over_all", "of_appended")
CALLS = "count(DISTINCT v) AS vs, sum(DISTINCT v) FILTER (WHERE v > 0) AS s, count(DISTINCT t) AS ts, count(*) AS n"


def rows(first: int, end: int) -> str:
    return ", ".join(f"({n}, {n % 3}, {n * 7 % 40 - 20}, 't{n % 11}', DATE '2024-01-01' + {n % 4})"
                     for n in range(first, end))


STEPS = (
    (
        "CREATE TABLE rows (id BIGINT PRIMARY KEY, g INT, v INT, t VARCHAR, day DATE)",
        "CREATE TABLE appended (id BIGINT PRIMARY KEY, g INT, v INT, t VARCHAR, day DATE) APPEND ONLY",
        f"CREATE MATERIALIZED VIEW by_text AS SELECT t || g AS k, day, {CALLS} FROM rows GROUP BY t || g, day",
        f"CREATE MATERIALIZED VIEW by_number AS SELECT g, {CALLS} FROM rows GROUP BY g",
        f"CREATE MATERIALIZED VIEW over_all AS SELECT {CALLS} FROM rows",
        f"CREATE MATERIALIZED VIEW of_appended AS SELECT t, day, {CALLS} FROM appended GROUP BY t, day",
        f"INSERT INTO rows VALUES {rows(0, 300)}",
        f"INSERT INTO appended VALUES {rows(0, 300)}",
        "FLUSH",
        "UPDATE rows SET v = v / 2 WHERE id % 4 = 1",
    ),
    ("DELETE FROM rows WHERE v < -5 OR t = 't3'", f"INSERT INTO rows VALUES {rows(300, 400)}",
     f"INSERT INTO appended VALUES {rows(300, 400)}"),
    ("DELETE FROM rows WHERE g = 1", "UPDATE rows SET v = -v, t = 't3'",
     f"INSERT INTO appended VALUES {rows(400, 900)}"),
    ("DELETE FROM rows",),
)


STORE = GoldenStore("distinct", STEPS, lambda session: rows_and_tables(session, NAMES))


def test_distinct_values_that_are_written_today_answer(tmp_path):
    found = STORE.played(tmp_path / "store")
    versions = {name: STORE.plan(tmp_path / "store", name)["version"] for name in NAMES}
    assert versions == {"by_text": 10, "by_number": 5, "over_all": 5, "of_appended": 10}
    assert [len(each["rows"]["by_number"]["rows"]) for each in found] == [3, 3, 2, 0]
    assert found[3]["rows"]["over_all"]["rows"] == ["0 | None | 0 | 0"]
    for name in known_names():
        assert [each["rows"] for each in found] == [each["rows"] for each in known_answers(name)]


def known_names() -> list[str]:
    return sorted(path.name for path in GOLDEN.glob("distinct-*"))


@pytest.mark.parametrize("name", known_names())
def test_distinct_values_of_an_older_release_go_on(name, tmp_path):
    STORE.check(name, tmp_path / "store")


@pytest.mark.skipif(not STORE.is_wanted, reason="names a new format whose store is to be written")
def test_a_golden_store_of_distinct_values_is_written(tmp_path):
    STORE.write(tmp_path / "store")
