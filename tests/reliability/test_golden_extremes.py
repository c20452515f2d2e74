"""[P13]: minima and maxima of a released store continue: values in states, overflow tables, kept inputs.

`tests/golden_stores/extremes-<catalog format>` is such a store after the first step, with the answers after each. Plans
with overflow tables have version 3; `views-*` and `options-*` are stores from before it.
"""

from __future__ import annotations

import pytest

from tests.reliability.golden_store import GoldenStore, rows_and_tables

NAMES = ("by_group", "over_all", "of_counts")


def inserted(first: int, end: int) -> str:
    """Rows of three groups; each has more values of each type than a state keeps."""
    rows = (f"({n}, {n % 3}, {n * 7 % 1_000 - 500}, {n * 11 % 997 / 8}, DATE '2024-01-01' + {n % 200}, 't{n % 50:02}')"
            for n in range(first, end))
    return f"INSERT INTO t VALUES {', '.join(rows)}"


STEPS = (
    (
        "CREATE TABLE t (id BIGINT PRIMARY KEY, g INT, v INT, d DOUBLE, day DATE, s VARCHAR)",
        "CREATE MATERIALIZED VIEW by_group AS SELECT g, min(v) AS lo, max(v) AS hi, "
        "max(d) FILTER (WHERE v > 0) AS top, min(day) AS first, min(s) AS s, count(*) AS n FROM t GROUP BY g",
        "CREATE MATERIALIZED VIEW over_all AS SELECT max(v) AS hi, min(d) AS least FROM t",
        "CREATE MATERIALIZED VIEW of_counts AS SELECT n, min(g) AS g FROM by_group GROUP BY n",
        inserted(0, 600),
        "FLUSH",
        "DELETE FROM t WHERE v > 400",
    ),
    ("DELETE FROM t WHERE v < -100 OR day < '2024-03-01'", inserted(600, 700)),
    ("DELETE FROM t WHERE g = 1", "UPDATE t SET d = -d", inserted(700, 900)),
    ("DELETE FROM t",),
)


STORE = GoldenStore("extremes", STEPS, lambda session: rows_and_tables(session, NAMES))


def test_extremes_that_are_written_today_answer(tmp_path):
    found = STORE.played(tmp_path / "store")
    plan = STORE.plan(tmp_path / "store", "by_group")
    assert plan["version"] == 3 and "by_group.agg0.overflow0" in found[0]["tables"]["by_group"]
    assert [len(each["rows"]["by_group"]["rows"]) for each in found] == [3, 3, 3, 0]
    assert found[3]["rows"]["over_all"]["rows"] == ["None | None"]


@pytest.mark.parametrize("name", STORE.formats)
def test_extremes_of_an_older_release_go_on(name, tmp_path):
    STORE.check(name, tmp_path / "store")


@pytest.mark.skipif(not STORE.is_wanted, reason="names a new format whose store is to be written")
def test_a_golden_store_of_extremes_is_written(tmp_path):
    STORE.write(tmp_path / "store")
