"""The columns of files that a query reads: types that lose nothing, names of any kind, and what is refused."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import stream
from stream.connector.files import GroupReader
from stream.errors import ConnectorError, MalformedRows

LARGE = [2**64 - 1, 2**64 - 2]
UTC = dt.UTC


@pytest.fixture(scope="module")
def db() -> Iterator[stream.Session]:
    with stream.connect("memory://") as session:
        yield session


def written(path: Path, rows: list[dict]) -> Path:
    """As JSON or CSV, by the suffix."""
    if path.suffix == ".json":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("suffix", [".json", ".csv"])
def test_whole_numbers_beyond_bigint_stay_apart(db, tmp_path, suffix):
    path = written(tmp_path / f"t{suffix}", [{"id": number, "x": 0.5} for number in LARGE])
    assert db.query(f"SELECT count(DISTINCT id) FROM '{path}'").fetchone() == (2,)
    found = db.query(f"SELECT id, x FROM '{path}'")
    assert found.schema.types == [pa.decimal128(38, 0), pa.float64()]
    assert [row.id for row in found] == LARGE
    mixed = written(tmp_path / f"mixed{suffix}", [{"id": 2**53 + 1}, {"id": 1.5}])
    assert [row.id for row in db.query(f"SELECT id FROM '{mixed}'")] == [2**53 + 1, Decimal("1.5")]
    named = db.query(f"SELECT id FROM read_{suffix[1:]}('{mixed}', types => 'id DOUBLE')")
    assert [row.id for row in named] == [2.0**53, 1.5]


def test_numbers_that_no_type_of_numbers_holds(db, tmp_path):
    longest = 10**40
    path = written(tmp_path / "t.csv", [{"id": longest}, {"id": 1}])
    assert [row.id for row in db.query(f"SELECT id FROM '{path}'")] == [str(longest), "1"]
    path = written(tmp_path / "t.json", [{"id": longest}, {"id": 1}])
    with pytest.raises(ConnectorError, match=r"column 'id'.* types => 'id DOUBLE'"):
        db.query(f"SELECT id FROM '{path}'")
    assert db.query(f"SELECT id FROM read_json('{path}', types => 'id DOUBLE')").fetchall() == [(1e40,), (1.0,)]
    assert db.query(f"SELECT id FROM read_json('{path}', types => 'id JSONB')").fetchall() == [("1e+40",), ("1",)]


def test_moments_of_json_have_the_types_that_they_have_in_csv(db, tmp_path):
    row = {"zoned": "2020-01-01T10:00:00+02:00", "exact": "2020-01-01T10:00:00.123Z", "plain": "2020-01-01T10:00:00.5",
           "text": "2020"}
    moment = dt.datetime(2020, 1, 1, 10)
    expected = (moment.replace(hour=8, tzinfo=UTC), moment.replace(microsecond=123_000, tzinfo=UTC),
                moment.replace(microsecond=500_000))
    for suffix in (".json", ".csv"):
        path = written(tmp_path / f"t{suffix}", [row])
        assert db.query(f"SELECT zoned, exact, plain FROM '{path}'").fetchall() == [expected], suffix
    path = written(tmp_path / "u.json", [{"k": 1, "at": {"x": [row["exact"]]}, "z": row["zoned"]}, {"k": 2}])
    found = db.query(f"SELECT * FROM '{path}'")
    assert found.column_names == ["k", "at", "z"]
    assert found.fetchall() == [(1, {"x": [expected[1]]}, expected[0]), (2, None, None)]


def test_names_with_dots_are_quoted_identifiers(db, tmp_path):
    rows = pa.table({"user": [{"name": "nested", "n": 9}], "user.name": ["flat"], "n": [3]})
    pq.write_table(rows, tmp_path / "t.parquet")
    with pa.ipc.new_file(tmp_path / "t.arrow", rows.schema) as file:
        file.write_table(rows)
    for suffix in ("parquet", "arrow"):
        source = f"read_{suffix}('{tmp_path}/t.{suffix}')"
        for columns in ('"user.name"', '"user", "user.name"', '"user.name", "user"', "n"):
            wanted = [name.strip('"') for name in columns.split(", ")]
            expected = [tuple(rows.select(wanted).to_pylist()[0].values())]
            for where in ("""WHERE "user.name" = 'flat'""", "WHERE n = 3", ""):
                assert db.query(f"SELECT {columns} FROM {source} {where}").fetchall() == expected
        assert db.query(f"""SELECT n FROM {source} WHERE "user.name" = 'nested'""").fetchall() == []
    for suffix in (".json", ".csv"):
        path = written(tmp_path / f"t{suffix}", [{"user.name": "x", "b": 1}])
        assert db.query(f'SELECT "user.name", b FROM \'{path}\'').fetchall() == [("x", 1)]


def test_row_groups_are_excluded_by_the_right_column(db, tmp_path, monkeypatch):
    """Behind columns with parts, one of which has the path of the column."""
    parts = {"a": [{"b": 1, "c": [1, 2]}], "m": pa.array([[("x", 1)]], pa.map_(pa.utf8(), pa.int8())),
             "f": pa.array([[1, 2]], pa.list_(pa.int8(), 2))}
    low, high = (pa.table({**parts, "a.b": [value], "z": [-value]}) for value in (10, 20))
    pq.write_table(pa.concat_tables([low, high]), tmp_path / "t.parquet", row_group_size=1)
    read, opened = [], GroupReader._open_group
    monkeypatch.setattr(GroupReader, "_open_group",
                        lambda self, group: read.append(self._group_rows) or opened(self, group))
    for where in ('"a.b" = 20', "z = -20", '"a.b" > 15 AND z < -15'):
        assert db.query(f"SELECT \"a.b\" FROM '{tmp_path}/t.parquet' WHERE {where}").fetchall() == [(20,)]
    assert db.query(f"SELECT z FROM '{tmp_path}/t.parquet' WHERE \"a.b\" = 1").fetchall() == []
    assert read.count(0) >= 4, "the first group was passed without being read"


def test_a_column_without_a_name_is_called_by_its_position(db, tmp_path):
    path = tmp_path / "t.csv"
    pd.DataFrame({"a": [1, 2], "id": LARGE}, index=[7, 8]).to_csv(path)
    found = db.query(f"SELECT * FROM '{path}'")
    assert found.column_names == ["column0", "a", "id"]
    assert found.fetchall() == [(7, 1, LARGE[0]), (8, 2, LARGE[1])]
    named = f"read_csv('{path}', types => 'column0 VARCHAR')"
    assert db.query(f"SELECT a FROM {named} WHERE column0 = '8'").fetchall() == [(2,)]
    db.sql("CREATE TABLE copied (column0 INT, a INT, id NUMERIC(20, 0))")
    assert db.execute(f"COPY copied FROM '{path}'", flush=True) == 2
    path.write_text("column1,\n1,2\n")
    with pytest.raises(ConnectorError, match="two columns are called 'column1'"):
        db.read_csv(path)
    pq.write_table(pa.table({"": [1]}), tmp_path / "t.parquet")
    with pytest.raises(ConnectorError, match="column 1 has no name"):
        db.read_parquet(tmp_path / "t.parquet")


def test_texts_of_another_encoding_are_named(db, tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("id,name\n1,Müller\n".encode("latin-1"))
    with pytest.raises(ConnectorError, match="column 'name' are not UTF-8: convert the file"):
        db.query(f"SELECT id FROM '{path}'")
    with pytest.raises((ConnectorError, MalformedRows), match="UTF8"):
        db.query(f"SELECT name FROM read_csv('{path}', types => 'name VARCHAR')")
    path.write_bytes("id,größe\n1,2\n".encode("latin-1"))
    with pytest.raises(ConnectorError, match=r"the names of the columns of .* are not UTF-8"):
        db.query(f"SELECT id FROM '{path}'")


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_nanoseconds_of_files_are_truncated_as_those_of_frames(db, tmp_path, suffix):
    key = uuid.uuid4()
    rows = pa.table({
        "at": pa.array([1_000_000_001_001, -1, None], pa.timestamp("ns")),
        "zoned": pa.array([1_001, -1, None], pa.timestamp("ns", "UTC")),
        "clock": pa.array([1_001, 999, None], pa.time64("ns")),
        "span": pa.array([86_400_000_001_001, -1, None], pa.duration("ns")),
        "nested": pa.array([[{"x": 1_001}], [], None], pa.list_(pa.struct([("x", pa.timestamp("ns"))]))),
        "key": pa.array([key, None, None], pa.uuid()),
        "none": pa.nulls(3),
    })
    if suffix == "parquet":
        pq.write_table(rows, tmp_path / "t.parquet", version="2.6")
    else:
        with pa.ipc.new_file(tmp_path / "t.arrow", rows.schema) as file:
            file.write_table(rows)
    source = f"read_{suffix}('{tmp_path}/t.{suffix}')"
    found, expected = db.query(f"SELECT * FROM {source}"), db.query("SELECT * FROM rows", frames={"rows": rows})
    assert found.to_arrow() == expected.to_arrow()
    assert found.fetchone().at == dt.datetime(1970, 1, 1, 0, 16, 40, 1)
    assert found["key"].to_pylist() == [str(key), None, None]
    assert found["span"].to_pylist()[0] == pa.MonthDayNano([0, 1, 1_000])
    moment = "TIMESTAMP '1970-01-01 00:16:40.000001'"
    assert db.query(f"SELECT count(*) FROM {source} WHERE at = {moment}").fetchone() == (1,)
    as_number = db.query(f"SELECT at FROM read_{suffix}('{tmp_path}/t.{suffix}', types => 'at BIGINT')")
    assert as_number.fetchall()[0] == (1_000_000_001_001,)


def test_a_column_that_no_type_holds_is_named_with_what_to_do(db, tmp_path):
    pq.write_table(pa.table({"a": [1], "b": pa.array([Decimal(5)], pa.decimal256(50, 0))}), tmp_path / "t.parquet")
    with pytest.raises(ConnectorError, match=r"column 'b'.* types => 'b NUMERIC'"):
        db.read_parquet(tmp_path / "t.parquet")
    source = f"read_parquet('{tmp_path}/t.parquet', types => 'b NUMERIC(38, 0)')"
    assert db.query(f"SELECT * FROM {source}").fetchall() == [(1, 5)]
