"""[P13]: sources with watermarks, and views of windows over them, of a released store continue.

`tests/golden_stores/watermarks-<catalog format>` is such a store after the first step, with the answers after each.
"""

from __future__ import annotations

from typing import Any

import pytest

import stream
from relational.table.storage_table import StorageTable
from tests.reliability.golden_store import GoldenStore, rows_of

ROWS = 3_000
MARKED = {"w.agg0.groups", "lows.agg0.groups", "lows.agg0.overflow0", "tens.agg0.groups"}
KNOWN = MARKED | {"lows.agg0.call0"}       # as earlier releases call one of them
FIELDS = ("fields.at.kind = 'sequence', fields.at.step = 1000000, fields.k.min = 0, fields.k.max = 3, "
          "fields.v.seed = 7")
STEPS = (
    (
        "CREATE SOURCE e (at TIMESTAMP, k INT, v BIGINT, WATERMARK FOR at AS at - INTERVAL '20 seconds') "
        f"WITH (connector = 'datagen', rows = {ROWS}, {FIELDS})",
        "CREATE TABLE kept (n BIGINT, v BIGINT, WATERMARK FOR n AS n - 100) APPEND ONLY "
        f"WITH (connector = 'datagen', rows = {ROWS}, fields.n.kind = 'sequence', fields.v.seed = 9)",
        "CREATE MATERIALIZED VIEW w AS SELECT k, date_trunc('minute', at) AS minute, count(*) AS n, max(v) AS most "
        "FROM e GROUP BY k, date_trunc('minute', at)",
        "CREATE MATERIALIZED VIEW lows AS SELECT minute, min(most) AS low FROM w GROUP BY minute",
        "CREATE MATERIALIZED VIEW tens AS SELECT n / 10 AS ten, sum(v) AS s FROM kept GROUP BY n / 10",
    ),
    ("CREATE MATERIALIZED VIEW hours AS SELECT date_trunc('hour', minute) AS h, sum(n) AS n FROM w "
     "GROUP BY date_trunc('hour', minute)",),
    ("DROP MATERIALIZED VIEW lows", "CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM e"),
)


def settled(session: stream.Session) -> None:
    """Commits epochs until every job has read its source to the end."""
    for name, query in (("w", "sum(n)"), ("kept", "count(*)"), ("v", "max(n)")):
        if name in session.names():
            while session.sql(f"SELECT {query} AS n FROM {name}").rows()[0]["n"] != ROWS:
                session.flush()
    session.flush()


def answers(session: stream.Session) -> dict[str, Any]:
    """The rows of each view, the tables of the first step with a watermark in the store, the states of sources: after
    all sources are read to the end."""
    settled(session)
    names = [name for name in ("w", "lows", "tens", "hours", "v") if name in session.names()]
    playground = session._playground
    tables = playground.catalog.snapshot.tables
    rules = playground.manager.version.tables
    found = {}
    for table in tables.values():
        if table.name.endswith(".watermark"):
            rows = StorageTable(table, playground.storage).scan(session.committed_epoch)
            found[table.name] = sorted(row for chunk in rows for row in chunk.rows())
    return {
        "rows": rows_of(session, names),
        "marked": sorted({tables[each].name for each, rule in rules.items() if rule.watermarks} & KNOWN),
        "known": found,
        "definition": session.sql("SHOW CREATE TABLE kept")["definition"][0].as_py(),
    }


STORE = GoldenStore("watermarks", STEPS, answers, parallelism=1)


def test_watermarks_that_are_written_today_answer(tmp_path):
    found = STORE.played(tmp_path / "store")
    assert [len(each["rows"]["w"]["rows"]) for each in found] == [200] * 3
    assert found[1]["rows"]["hours"]["rows"] == ["2024-01-01 00:00:00 | 3000"] and "lows" not in found[2]["rows"]
    assert set(found[0]["marked"]) == MARKED
    assert [set(each["known"]) for each in found] == [{"w.watermark", "kept.watermark"}] * 2 + [
        {"w.watermark", "kept.watermark", "v.watermark"}]


@pytest.mark.parametrize("name", STORE.formats)
def test_watermarks_of_an_older_release_go_on(name, tmp_path):
    STORE.check(name, tmp_path / "store")


@pytest.mark.skipif(not STORE.is_wanted, reason="names a new format whose store is to be written")
def test_a_golden_store_of_watermarks_is_written(tmp_path):
    STORE.write(tmp_path / "store")
