"""Newline-delimited JSON as a source: the suite of connectors, types, and records that are none."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from relational.types import Schema
from stream.connector import text_files
from stream.connector.ndjson_files import NdjsonFilesConnector
from stream.errors import ConnectorError, MalformedRows
from tests.stream.connector.test_csv_files import values
from tests.support.suites.connector_suite import ConnectorSuite

SCHEMA = Schema.of(id="bigint", name="varchar", tags="varchar[]", day="date", doc="jsonb")


def connector(path, schema=SCHEMA, **options):
    return NdjsonFilesConnector({"path": str(path), **options}, schema)


def rows(count, first=0):
    return [(number, (None, "", "a", 'q"', "zwölf\n")[number % 5], None if number % 3 == 0 else ["x"] * (number % 4),
             date(2024, 1, 1 + number % 28), None if number % 4 == 0 else json.dumps({"n": number}).replace(" ", ""))
            for number in range(first, first + count)]


def line(row):
    record = dict(zip(SCHEMA.names, row, strict=True)) | {"ignored": [row[0]]}
    record["day"] = record["day"].isoformat()
    record["doc"] = None if record["doc"] is None else json.loads(record["doc"])
    return json.dumps({name: value for name, value in record.items() if value is not None or row[0] % 2},
                      ensure_ascii=row[0] % 2 == 0)


class TestNdjson(ConnectorSuite):
    @pytest.fixture
    def schema(self):
        return SCHEMA

    @pytest.fixture
    def connector(self, tmp_path, monkeypatch):
        monkeypatch.setattr(text_files, "BLOCK_BYTES", 4_096)
        for number, count in enumerate((1_000, 3, 0)):
            text = "\n".join(map(line, rows(count, first=number * 5_000)))
            (tmp_path / f"{number}.ndjson").write_text(text.replace("\n", "\n \n" if number else "\n"))
        return lambda: connector(tmp_path)

    @pytest.fixture
    def add_split(self, tmp_path, connector):
        def add():
            (tmp_path / "0a.jsonl").write_text("\n".join(map(line, rows(40))))
            return "0a.jsonl"

        return add

    @pytest.fixture
    def malformed(self, tmp_path):
        good = rows(60)
        lines = list(map(line, good))
        bad = {10: ("id", '{"id": "1"}'), 11: (None, "null"), 12: (None, '{"id": 1'), 20: (None, "[1]"),
               30: ("day", '{"day": "2024-02-30"}'), 31: ("tags", '{"tags": {"x": 1}}'), 32: ("tags", '{"tags": [1]}'),
               40: (None, '{"id": 1}{"id": 2}'), 50: (None, '{"zz":'), 51: (None, '{"id": 1}}'),
               65: ("id", '{"id": 9223372036854775808}')}
        for number, (_, text) in sorted(bad.items()):
            lines.insert(number, text)
        directory = tmp_path / "malformed"
        directory.mkdir()
        (directory / "bad.ndjson").write_text("\n".join(lines))
        faults = [column for _, (column, _) in sorted(bad.items())]
        faults[7] = "doc"       # the first column that is read by itself, and needs one object
        return connector(directory), "bad.ndjson", good, faults

    def test_all_rows_are_there(self, connector):
        opened = connector()
        read = [row for split in opened.enumerator().list_splits() for row in
                values(opened.open_split(split, range(5)))]
        assert read == rows(1_000) + rows(3, 5_000)


def test_values_of_each_type(tmp_path):
    schema = Schema.of(b="boolean", s="smallint", n="numeric(38,2)", r="real", x="double", v="varchar", d="date",
                       t="timestamp", z="timestamptz", j="jsonb", l="struct<a date, b numeric(5,1)[]>[]")
    first = {"b": True, "s": -5, "n": "1.5", "r": 1, "x": 1e-3, "v": "é", "d": "2024-02-29",
             "t": "2024-01-01 10:00:00.5", "z": "2024-01-01T00:00:00+02:00", "j": {"b": 1, "a": [None]},
             "l": [{"a": "2024-01-01", "b": [1.5, None]}, None]}
    others = '{"n": 12345678901234567890123456789.25, "j": null}\n{"j": "x"}\n'
    (tmp_path / "a.json").write_text(f"{json.dumps(first)}\n{others}")
    found = values(connector(tmp_path, schema).open_split("a.json", range(11)))
    assert found[0][:8] == (True, -5, Decimal("1.50"), 1.0, 0.001, "é", date(2024, 2, 29),
                            datetime(2024, 1, 1, 10, 0, 0, 500_000))
    assert found[0][8:] == (datetime(2023, 12, 31, 22, tzinfo=UTC), '{"a":[null],"b":1}',
                            [{"a": date(2024, 1, 1), "b": [Decimal("1.5"), None]}, None])
    assert found[1][2] == Decimal("12345678901234567890123456789.25") and found[1][9] is None
    assert found[2][9] == '"x"' and found[2][:9] == (None,) * 9


@pytest.mark.parametrize(("column", "text"), [
    ("s", "70000"), ("s", "1.5"), ("n", "1.234"), ("r", "1e39"), ("v", "1"), ("d", '"x"'), ("t", "0"), ("b", "1"),
    ("l", '[{"a": 1}]'),
])
def test_values_that_are_none(tmp_path, column, text):
    schema = Schema.of(b="boolean", s="smallint", n="numeric(38,2)", r="real", v="varchar", d="date", t="timestamp",
                       l="struct<a date>[]")
    (tmp_path / "a.json").write_text(f'{{}}\n{{"{column}": {text}}}\n{{}}\n')
    reader = connector(tmp_path, schema).open_split("a.json", range(8))
    assert len(reader.next_chunk(10)) == 1
    with pytest.raises(MalformedRows, match=r"record 2 of .*a\.json") as caught:
        reader.next_chunk(10)
    assert caught.value.column == column
    assert len(reader.next_chunk(10)) == 1 and reader.is_finished


@pytest.mark.parametrize("kind", ["interval", "bytea", "time[]", "struct<a jsonb>", "jsonb[]"])
def test_types_without_a_json_form_are_refused(tmp_path, kind):
    with pytest.raises(ConnectorError, match="column 'x': no JSON value is read as"):
        connector(tmp_path, Schema.of(x=kind))


def test_a_format_that_is_none_is_refused(tmp_path):
    with pytest.raises(ConnectorError, match="the option format is append or upsert or debezium, not 'avro'"):
        connector(tmp_path, format="avro")
