"""Upsert records and Debezium envelopes: the ops that they become, and the rows that a table has after them."""

from __future__ import annotations

import json
import random

import pytest

import stream
from relational.types import Schema
from stream.connector.change_formats import CHANGE_FORMATS
from stream.connector.ndjson_files import NdjsonFilesConnector
from stream.errors import ConnectorError, MalformedRows
from tests.support.drivers.seeds import run_seed
from tests.support.drivers.waiting import eventually
from tests.support.suites.connector_suite import ConnectorSuite

SCHEMA = Schema.of(id="bigint", name="varchar", doc="jsonb")


class KeyedConnector(NdjsonFilesConnector):
    """As for a table with the primary key id."""

    def __init__(self, options, schema):
        super().__init__(options, schema)
        self._key = ("id",)


def connector(path, format, schema=SCHEMA):
    return KeyedConnector({"path": str(path), "format": format}, schema)


def changes(path, format, lines, max_rows=100):
    (path / "a.json").write_text("\n".join(lines))
    reader = connector(path, format).open_split("a.json", range(3))
    found = []
    while not reader.is_finished:
        try:
            chunk = reader.next_chunk(max_rows)
            found += [] if chunk is None else chunk.to_pretty().split("\n")
        except MalformedRows as error:
            found.append(error.reason.split(": ", 1)[1])
    return found


def test_upserts(tmp_path):
    assert changes(tmp_path, "upsert", [
        '{"key": {"id": 1}, "value": {"id": 7, "name": "a", "doc": {"x": []}}}', '{"key": {"id": 1}, "value": null}',
        '{"key": {"id": 2}}', '{"value": {"name": "a"}}', "null", '{"key": {"id": "x"}, "value": {"name": "a"}}',
    ]) == ['+ 1 a {"x":[]}', "- 1 . .", "- 2 . .", "it has no key", "it is no object",
           "Column(/key/id) changed from number to string"]


def test_debezium_envelopes(tmp_path):
    row = '{"id": 1, "name": "a", "doc": 1}'
    assert changes(tmp_path, "debezium", [
        f'{{"op": "c", "after": {row}}}', "null",
        f'{{"op": "r", "before": null, "after": {row}, "source": {{"x": 1}}}}',
        f'{{"op": "u", "before": {row}, "after": {{"id": 1}}}}', f'{{"op": "u", "after": {row}}}',
        f'{{"op": "d", "before": {row}, "after": null}}',
        f'{{"schema": {{}}, "payload": {{"op": "d", "before": {row}}}}}',
        '{"op": "d", "before": null}', '{"op": "c"}', '{"op": "t"}', f'{{"after": {row}}}',
        f'{{"op": "c", "after": {row}, "payload": {{"op": "c", "after": {row}}}}}', f'{{"op": "c", "after": {row}}}',
    ]) == ["+ 1 a 1", "+ 1 a 1", "U- 1 a 1", "U+ 1 . .", "U- 1 . .", "U+ 1 a 1", "- 1 a 1", "- 1 a 1",
           "before is missing, so the deleted row is unknown", "after is missing", "op 't' is not one of c, r, u, d",
           "it has no op", "+ 1 a 1", "+ 1 a 1"]


def test_a_pair_is_not_split(tmp_path):
    lines = ['{"op": "u", "before": {"id": 1}, "after": {"id": 1, "name": "b"}}'] * 3
    assert changes(tmp_path, "debezium", lines, 3) == ["U- 1 . .", "U+ 1 b ."] * 3
    reader = connector(tmp_path, "debezium").open_split("a.json", range(3))
    assert reader.next_chunk(1) is None and reader.offset == "0:0" and not reader.is_finished
    assert reader.next_chunk(2).capacity == 2


def history(rng, count):
    """Debezium changes that alternate legally by key, and the rows that they leave."""
    rows: dict[int, dict] = {}
    lines = []
    for number in range(count):
        key = rng.randrange(40)
        new = {"id": key, "name": rng.choice(["a", None, "b"]), "doc": rng.choice([None, {"n": number}])}
        if key in rows and rng.random() < 0.4:
            change = {"op": "d", "before": rows.pop(key)}
        elif key in rows:
            before = rng.choice([rows[key], None, {"id": key}])
            change, rows[key] = {"op": "u", "before": before, "after": new}, new
        else:
            change, rows[key] = {"op": rng.choice("cr"), "after": new}, new
        lines.append(json.dumps({"payload": change} if number % 2 else change))
        if rng.random() < 0.1:
            lines.append("null")
    return lines, rows


@pytest.mark.parametrize("format", CHANGE_FORMATS)
class TestSuite:
    @pytest.fixture
    def suite(self):
        return ConnectorSuite()

    @pytest.fixture
    def opened(self, tmp_path, format):
        rng = random.Random(5)
        lines = history(rng, 500)[0] if format == "debezium" else [
            json.dumps({"key": {"id": rng.randrange(9)}, "value": rng.choice([None, {"name": "x", "doc": [n]}])})
            for n in range(500)]
        (tmp_path / "a.json").write_text("\n".join(lines))
        return lambda: connector(tmp_path, format)

    def test_offsets(self, suite, opened):
        suite.test_the_same_offset_always_leads_to_the_same_rows(opened, SCHEMA)
        suite.test_the_offset_after_every_chunk_is_exact(opened, SCHEMA)
        suite.test_offsets_of_others_and_unknown_splits_are_refused(opened, SCHEMA)

    def test_a_source_or_a_table_without_a_key_is_refused(self, tmp_path, format):
        options = f"WITH (connector = 'ndjson', path = '{tmp_path}', format = '{format}')"
        with stream.connect("memory://") as db:
            with pytest.raises(ConnectorError, match="need stored rows"):
                db.sql(f"CREATE SOURCE s (id BIGINT) {options}")
            with pytest.raises(ConnectorError, match="need stored rows"):
                db.sql(f"CREATE TABLE t (id BIGINT) {options}")
            if format == "upsert":
                with pytest.raises(ConnectorError, match="declare the table with ON CONFLICT OVERWRITE"):
                    db.sql(f"CREATE TABLE t (id BIGINT PRIMARY KEY) {options}")
            assert db.names() == ()


def rows_of(db):
    found = db.sql("SELECT id, name, doc FROM t ORDER BY id").rows()
    return {row["id"]: row | {"doc": None if row["doc"] is None else json.loads(row["doc"])} for row in found}


def is_read(db, path):
    db.flush()
    sizes = {each.name: each.stat().st_size for each in path.iterdir()}
    return {split: int(offset.split(":")[0]) for split, offset in db.source_offsets("t").items()} == sizes


def test_a_table_has_the_rows_that_debezium_changes_leave(tmp_path):
    rng = random.Random(run_seed())
    lines, expected = history(rng, 2_000)
    files, store = tmp_path / "files", tmp_path / "store"
    files.mkdir()
    (files / "0.json").write_text("\n".join(lines))
    with stream.connect(f"file://{store}", create=True, barrier_interval_ms=5, chunk_rows=64) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR, doc JSONB NOT NULL) "
               f"WITH (connector = 'ndjson', path = '{files}', format = 'debezium', malformed = 'skip')")
        db.sql("DROP TABLE t")
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR, doc JSONB) "
               f"WITH (connector = 'ndjson', path = '{files}', format = 'debezium')")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT name, count(*) AS n, max(id) AS top FROM t GROUP BY name")
        eventually(lambda: is_read(db, files))
        assert rows_of(db) == expected
        view = {(row["name"], row["n"], row["top"]) for row in db.sql("SELECT * FROM v").rows()}
        direct = db.sql("SELECT name, count(*) AS n, max(id) AS top FROM t GROUP BY name").rows()
        assert view == {(row["name"], row["n"], row["top"]) for row in direct}


@pytest.mark.parametrize(("rule", "kept"), [("OVERWRITE", "last"), ("IGNORE", "first")])
def test_repeated_changes_follow_the_rule_of_the_table(tmp_path, rule, kept):
    lines = [json.dumps({"op": "c", "after": {"id": 1, "name": name}}) for name in ("first", "last")]
    (tmp_path / "0.json").write_text("\n".join(lines))
    with stream.connect("memory://", barrier_interval_ms=5) as db:
        db.sql(f"CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR, doc JSONB) ON CONFLICT {rule} "
               f"WITH (connector = 'ndjson', path = '{tmp_path}', format = 'debezium')")
        eventually(lambda: is_read(db, tmp_path))
        assert db.sql("SELECT name FROM t").rows() == [{"name": kept}]


def test_a_repeated_insert_fails_a_table_that_takes_none(tmp_path):
    lines = [json.dumps({"op": "c", "after": {"id": 1, "name": name}}) for name in ("first", "last")]
    with stream.connect("memory://", barrier_interval_ms=5, split_discovery_ms=5, recovery_backoff_ms=1) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR, doc JSONB) "
               f"WITH (connector = 'ndjson', path = '{tmp_path}', format = 'debezium')")
        (tmp_path / "part").write_text("\n".join(lines))
        (tmp_path / "part").rename(tmp_path / "0.json")
        seen = {}
        eventually(lambda: seen.update(db.sql("SHOW JOBS").to_pylist()[0]) or seen["state"] == "FAILED")
        assert "DuplicateKey" in seen["reason"]  # of the same moment: it is tried again, and then there is none


def test_upserts_replace_and_remove_rows_and_new_files_go_on(tmp_path):
    rng = random.Random(run_seed())
    expected: dict[int, dict] = {}
    with stream.connect("memory://", barrier_interval_ms=5, split_discovery_ms=5) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR NOT NULL, doc JSONB) ON CONFLICT OVERWRITE "
               f"WITH (connector = 'ndjson', path = '{tmp_path}', format = 'upsert')")
        for number in range(4):
            lines = []
            for _ in range(200):
                key, name = rng.randrange(30), rng.choice("abc")
                value = None if rng.random() < 0.3 else {"name": name, "doc": [number]}
                lines.append(json.dumps({"key": {"id": key}, "value": value}))
                expected.pop(key, None)
                if value is not None:
                    expected[key] = {"id": key, **value}
            part = tmp_path / "part"
            part.write_text("\n".join(lines))
            part.rename(tmp_path / f"{number}.json")
            eventually(lambda: is_read(db, tmp_path))
            assert rows_of(db) == expected


def test_a_malformed_change_is_skipped_and_counted(tmp_path):
    lines = ['{"key": {"id": 1}, "value": {"name": "a"}}', '{"key": {"id": null}, "value": {"name": "a"}}',
             '{"key": {"id": 2}, "value": {"name": null}}', '{"key": {"id": 1}}', "x",
             '{"key": {"id": 3}, "value": {"name": "c"}}']
    (tmp_path / "0.json").write_text("\n".join(lines))
    with stream.connect("memory://", barrier_interval_ms=5) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR(3) NOT NULL, doc JSONB) ON CONFLICT OVERWRITE WITH "
               f"(connector = 'ndjson', path = '{tmp_path}', format = 'upsert', malformed = 'skip')")
        eventually(lambda: is_read(db, tmp_path))
        assert rows_of(db) == {3: {"id": 3, "name": "c", "doc": None}}
        errors = {row["reason"]: row["rows"] for row in db.sql("SHOW ERRORS").to_pylist()}
        assert errors == {"malformed column id": 1, "malformed column name": 1, "malformed record": 1}
