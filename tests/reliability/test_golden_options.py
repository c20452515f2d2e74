"""[P13]: tables with options of a released store continue: rows, vnodes, row formats, rules in the store.

`tests/golden_stores/options-<catalog format>` is such a store after the first step, with the answers after each.
"""

from __future__ import annotations

from typing import Any

import pytest

import stream
from hummock.base.table_rules import tables_to_json
from tests.reliability.golden_store import GoldenStore, rows_of

NAMES = ("events", "wide", "keyless", "extremes")
STEPS = (
    (
        "CREATE TABLE events (id BIGINT PRIMARY KEY, at TIMESTAMP) APPEND ONLY ON CONFLICT IGNORE "
        "WITH (ttl = '36500 days', vnode_count = 1)",
        "CREATE TABLE wide (id BIGINT PRIMARY KEY, a VARCHAR, b DOUBLE, c BIGINT[], d BIGINT) "
        "WITH (row_format = 'cell', vnode_count = 7)",
        "CREATE TABLE keyless (w VARCHAR) WITH (vnode_count = 32768)",
        "CREATE MATERIALIZED VIEW extremes WITH (vnode_count = 1024) AS "
        "SELECT d, min(a) AS lo, max(b) AS hi, count(*) AS n FROM wide GROUP BY d",
        "INSERT INTO events VALUES (1, '2020-01-01'), (2, NULL)",
        "INSERT INTO wide VALUES (1, 'a', 1.5, ARRAY[1::BIGINT], 1), (2, NULL, NULL, NULL, 1), (3, 'c', -0.0, NULL, 2)",
        "INSERT INTO keyless VALUES ('x'), ('y'), (NULL)",
        "FLUSH",
        "UPDATE wide SET d = 2, b = b + 1 WHERE id = 1",
        "DELETE FROM wide WHERE id = 3",
    ),
    (
        "INSERT INTO events VALUES (2, '2021-01-01'), (3, '2022-01-01')",
        "UPDATE wide SET a = 'z' WHERE id = 2",
        "INSERT INTO wide VALUES (3, 'b', 9, ARRAY[7::BIGINT], NULL), (4, 'a', 7, NULL, 1)",
        "INSERT INTO keyless VALUES ('z')",
    ),
    ("DELETE FROM wide WHERE b > 2", "DELETE FROM keyless WHERE w = 'x'", "ALTER TABLE wide DROP COLUMN c"),
    ("DELETE FROM wide",),
)


def answers(session: stream.Session) -> dict[str, Any]:
    """The rows of each object, what creates it, and the rules of the store."""
    version = session._playground.manager.version
    kinds = dict.fromkeys(NAMES, "TABLE") | {"extremes": "MATERIALIZED VIEW"}
    shown = {name: session.sql(f"SHOW CREATE {kind} {name}")["definition"][0].as_py() for name, kind in kinds.items()}
    return {"rows": rows_of(session, NAMES), "definitions": shown, "rules": tables_to_json(version.tables)}


STORE = GoldenStore("options", STEPS, answers)


def test_tables_with_options_that_are_written_today_answer(tmp_path):
    found = STORE.played(tmp_path / "store")
    assert [len(each["rows"]["wide"]["rows"]) for each in found] == [2, 4, 1, 0]
    assert [each["rows"]["events"]["rows"][0] for each in found] == ["1 | 2020-01-01 00:00:00"] * 4
    assert found[1]["rows"]["extremes"]["rows"] == ["1 | a | 7.0 | 2", "2 | a | 2.5 | 1", "None | b | 9.0 | 1"]
    assert len(found[0]["rules"]) == 4 and all(each["rules"] == found[0]["rules"] for each in found)
    assert "row_format = 'cell', vnode_count = '7'" in found[2]["definitions"]["wide"]


@pytest.mark.parametrize("name", STORE.formats)
def test_tables_with_options_of_an_older_release_answer_and_continue(name, tmp_path):
    STORE.check(name, tmp_path / "store")


@pytest.mark.skipif(not STORE.is_wanted, reason="names a new format whose store is to be written")
def test_a_golden_store_of_options_is_written(tmp_path):
    STORE.write(tmp_path / "store")
