"""COPY: files into tables and tables into files. What is written is read again as it was; what fails changes nothing,
or says what it has taken."""

from __future__ import annotations

import datetime
import decimal
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import stream
from relational.errors import BindError, ParseError
from stream.errors import (
    ConnectorError,
    CopyInterrupted,
    DuplicateKey,
    InvalidStatement,
    MalformedRows,
    ReadOnlySession,
    TransactionTooLarge,
)
from tests.support.drivers.seeds import run_seed
from tests.support.worlds.timed_session import NEVER_MS

SHAPE = """(id BIGINT PRIMARY KEY, name VARCHAR, price NUMERIC(12, 3), x DOUBLE, day DATE, at TIMESTAMP,
            zoned TIMESTAMPTZ, is_good BOOLEAN, small SMALLINT)"""
TEXTS = ["", " ", "a", "NULL", '"', ";,", "a\nb", "\r", "\\.", "ä€😀", "'", "x" * 300, None]


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[stream.Session]:
    """Its working directory is new."""
    monkeypatch.chdir(tmp_path)
    with stream.connect("memory://", barrier_interval_ms=NEVER_MS) as session:
        yield session


def random_row(rng: random.Random, number: int) -> tuple[Any, ...]:
    moment = datetime.datetime(2024, 1, 1) + datetime.timedelta(microseconds=rng.randrange(10**15))
    row = (
        rng.choice(TEXTS), decimal.Decimal(rng.randrange(-10**11, 10**11)).scaleb(-3), rng.uniform(-1e9, 1e9),
        moment.date(), moment, moment.replace(tzinfo=datetime.UTC), rng.random() < 0.5, rng.randrange(-32768, 32768),
    )
    return number, *(None if rng.random() < 0.2 else value for value in row)


def filled(db: stream.Session, rows: int) -> list[tuple[Any, ...]]:
    rng = random.Random(run_seed())
    made = [random_row(rng, number) for number in range(rows)]
    db.sql(f"CREATE TABLE t {SHAPE}")
    db.table("t").insert(made)
    db.flush()
    return made


@pytest.mark.parametrize(("path", "options"), [
    ("t.parquet", ""),
    ("t.parquet", "(COMPRESSION none)"),
    ("t.arrow", ""),
    ("t.csv", ""),
    ("t.csv.gz", "(DELIMITER ';', NULL 'NULL')"),
    ("t.txt", "WITH (FORMAT csv, HEADER false, QUOTE '''', NULL 'a')"),
    ("t.json", ""),
    ("t.data", "(FORMAT json)"),
])  # fmt: skip
def test_what_is_written_is_read_again(db: stream.Session, path: str, options: str) -> None:
    made = filled(db, 6_000)
    assert db.sql(f"COPY t TO '{path}' {options}") == len(made)
    db.sql(f"CREATE TABLE again {SHAPE}")
    reading = "" if "COMPRESSION" in options else options
    assert db.sql(f"COPY again FROM '{path}' {reading}") == len(made)
    db.flush()
    assert Counter(db.table("again").fetchall()) == Counter(made)
    assert [each.name for each in Path.cwd().iterdir()] == [path]


def test_other_engines_read_what_is_written(db: stream.Session) -> None:
    made = filled(db, 2_000)
    query = "SELECT id, name, price, day, is_good FROM t WHERE small > 0"
    expected = Counter(db.sql(query).fetchall())
    for path in ("o.parquet", "o.csv", "o.json"):
        db.sql(f"COPY ({query}) TO '{path}'")
    types = "{'id': 'BIGINT', 'name': 'VARCHAR', 'price': 'DECIMAL(12,3)', 'day': 'DATE', 'is_good': 'BOOLEAN'}"
    assert Counter(duckdb.sql("FROM 'o.parquet'").fetchall()) == expected
    assert Counter(duckdb.sql(f"FROM read_json('o.json', columns = {types})").fetchall()) == expected
    of_csv = f"FROM read_csv('o.csv', header = true, columns = {types}, force_not_null = ['name'])"
    of_texts = Counter((row[0], row[1] or "", *row[2:]) for row in expected.elements())
    assert Counter((row[0], row[1] or "", *row[2:]) for row in duckdb.sql(of_csv).fetchall()) == of_texts
    assert len(made) > sum(expected.values()) > 0


def test_a_table_a_view_and_columns_of_them(db: stream.Session) -> None:
    db.sql("CREATE TABLE t (a INT, b VARCHAR); INSERT INTO t VALUES (1, 'x'); FLUSH")
    db.sql("CREATE VIEW v AS SELECT b, a + 1 AS c FROM t")
    db.sql("COPY t TO 'a.csv'; COPY t (b) TO 'b.csv'; COPY v (c, b) TO 'c.csv' (HEADER false)")
    assert [Path(f"{name}.csv").read_text() for name in "abc"] == ["a,b\n1,x\n", "b\nx\n", "2,x\n"]
    assert db.sql("COPY (SELECT 1 AS one WHERE false) TO 'empty.parquet'") == 0
    assert pq.read_table("empty.parquet").schema.names == ["one"]


def test_a_null_is_no_empty_line(db: stream.Session) -> None:
    db.sql("CREATE TABLE t (a VARCHAR); INSERT INTO t VALUES ('x'), (NULL), (''); FLUSH")
    with pytest.raises(ConnectorError, match="NULL 'NA'"):
        db.sql("COPY t TO 't.csv'")
    assert db.sql("COPY t TO 't.csv' (NULL 'NA')") == 3
    db.sql("CREATE TABLE u (a VARCHAR); COPY u FROM 't.csv' (NULL 'NA'); FLUSH")
    assert Counter(db.table("u").fetchall()) == Counter([("x",), (None,), ("",)])


def test_defaults_hidden_keys_and_column_lists(db: stream.Session) -> None:
    db.sql("CREATE TABLE t (a INT, b VARCHAR DEFAULT 'none', c INT)")
    Path("t.csv").write_text("c,a\n3,1\n4,2\n")
    assert db.sql("COPY t (a, c) FROM 't.csv'") == 2
    assert db.execute("COPY t (c, a) FROM 't.csv' (HEADER, FORMAT csv)") == 2
    db.flush()
    assert sorted(db.table("t").fetchall()) == [(1, "none", 3), (1, "none", 3), (2, "none", 4), (2, "none", 4)]


@pytest.mark.parametrize(("text", "error", "told"), [
    ("id,n\n1,2\nx,2\n", MalformedRows, "record 2 of "),
    ("id,n\n1,2\n3,\n", InvalidStatement, "row 2 of "),
    ("id,n\n1,2\n1,3\n", DuplicateKey, r"\(1,\)"),
    ("id,n\n1,2\n0,3\n", DuplicateKey, r"\(0,\)"),
    ("id,n\n1,2\n,3\n", InvalidStatement, "row 2 of .*column 'id'"),
    ("id,n\n1,2\n3,123456\n", MalformedRows, "column 'n'"),
    ("id\n1\n", ConnectorError, "no column 'n'"),
])  # fmt: skip
def test_bad_input_changes_nothing(db: stream.Session, text: str, error: type[Exception], told: str) -> None:
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, n SMALLINT NOT NULL); INSERT INTO t VALUES (0, 0); FLUSH")
    Path("t.csv").write_text(text)
    with pytest.raises(error, match=told):
        db.sql("COPY t FROM 't.csv'")
    db.flush()
    assert db.table("t").fetchall() == [(0, 0)]


def test_many_rows_are_several_statements_and_an_error_says_how_many_were_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with stream.connect("memory://", barrier_interval_ms=NEVER_MS, statement_rows=1_000) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY); CREATE TABLE u (id BIGINT PRIMARY KEY)")
        pq.write_table(pa.table({"id": range(10_500)}), "t.parquet")
        assert db.sql("COPY t FROM 't.parquet'") == 10_500
        ids = [*range(4_321), "x", *range(5_000, 9_000)]
        Path("u.csv").write_text("id\n" + "".join(f"{number}\n" for number in ids))
        taken = r"first (\S+) rows of u\.csv were taken, then: .*record 4322"
        with pytest.raises(CopyInterrupted, match=taken) as raised:
            db.sql("COPY u FROM 'u.csv'")
        assert isinstance(raised.value.cause, MalformedRows)
        db.flush()
        assert sorted(db.table("u").fetchall()) == [(number,) for number in range(raised.value.rows)]
        assert len(db.table("t")) == 10_500


def test_in_a_transaction_all_rows_are_taken_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"id": range(5_000)}), "t.parquet")
    with stream.connect("memory://", barrier_interval_ms=NEVER_MS, statement_rows=1_000) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t VALUES (4999); FLUSH")
        with pytest.raises(DuplicateKey), db.transaction():
            assert db.sql("COPY t FROM 't.parquet'") == 5_000
        db.flush()
        assert len(db.table("t")) == 1
        with db.transaction():
            db.sql("DELETE FROM t")
            db.sql("COPY t FROM 't.parquet'")
        db.flush()
        assert len(db.table("t")) == 5_000
        with pytest.raises(InvalidStatement, match="read-only"), db.transaction(read_only=True):
            db.sql("COPY t FROM 't.parquet'")
        with db.transaction(read_only=True):
            assert db.sql("COPY t TO 'u.csv'") == 5_000
    with stream.connect("memory://", transaction_bytes=10_000) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        with pytest.raises(TransactionTooLarge), db.transaction():
            db.sql("COPY t FROM 't.parquet'")
        assert db.sql("COPY t FROM 't.parquet'") == 5_000


def test_a_file_appears_whole_or_not_at_all(db: stream.Session) -> None:
    db.sql("CREATE TABLE t (a INT); FLUSH")
    db.table("t").insert([(number,) for number in range(70_000)])
    db.flush()
    Path("o.csv").write_text("old")
    with pytest.raises(Exception, match="division by zero"):
        db.sql("COPY (SELECT 1 / (a - 69999) AS b FROM t) TO 'o.csv'")
    assert [each.name for each in Path.cwd().iterdir()] == ["o.csv"] and Path("o.csv").read_text() == "old"
    db.sql("COPY t TO 'o.csv'")
    assert Path("o.csv").read_text().count("\n") == 70_001
    for place in ("none/o.csv", ".", "/dev/null"):
        with pytest.raises(ConnectorError, match="cannot be written"):
            db.sql(f"COPY t TO '{place}' (FORMAT csv)")
    for form in ("parquet", "json", "arrow"):
        with pytest.raises(Exception, match="division by zero"):
            db.sql(f"COPY (SELECT 1 / (a - 69999) AS b FROM t) TO 'bad.{form}'")
    Path("link.csv").symlink_to("o.csv")
    assert db.sql("COPY (SELECT 1 AS a) TO 'link.csv'") == 1
    assert Path("o.csv").read_text() == "a\n1\n" and Path("link.csv").is_symlink()
    assert sorted(each.name for each in Path.cwd().iterdir()) == ["link.csv", "o.csv"]
    assert Path("/dev/null").is_char_device()
    with pytest.raises(ConnectorError, match="Parquet has no values of INTERVAL"):
        db.sql("COPY (SELECT INTERVAL '1 day' AS i) TO 'i.parquet'")


@pytest.mark.s3
def test_a_bucket_takes_and_gives_files(db: stream.Session, s3_url: str) -> None:
    made = filled(db, 500)
    base, _, query = s3_url.partition("?")
    for name in ("o.parquet", "o.csv.gz", "o.json"):
        url = f"{base}/{name}?{query}"
        for _ in range(2):  # the second file replaces the first one
            assert db.sql(f"COPY t TO '{url}'") == len(made)
        db.sql(f"CREATE TABLE u {SHAPE}")
        assert db.sql(f"COPY u FROM '{url}'") == len(made)
        db.flush()
        assert Counter(db.table("u").fetchall()) == Counter(made)
        db.sql("DROP TABLE u")
    assert len(db.read_parquet(f"{base}/*.parquet?{query}")) == len(db.read_json(f"{base}/o.json?{query}")) == len(made)
    with pytest.raises(ConnectorError):
        db.read_csv(f"{base}/none.csv?{query}")
    with pytest.raises(Exception, match="division by zero"):
        db.sql(f"COPY (SELECT 1 / (id - 499) AS b FROM t) TO '{base}/bad.csv?{query}'")
    with pytest.raises(ConnectorError):
        db.read_csv(f"{base}/bad.csv?{query}")


def test_readers_write_files_and_take_none(db: stream.Session, tmp_path: Path) -> None:
    with stream.connect(tmp_path / "store", create=True) as writer:
        writer.sql("CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (1), (2); FLUSH")
        with stream.connect(tmp_path / "store", role="reader") as reader:
            assert reader.sql("COPY (SELECT a FROM t ORDER BY a) TO 'o.csv'") == 2
            with pytest.raises(ReadOnlySession):
                reader.sql("COPY t FROM 'o.csv'")
    assert Path("o.csv").read_text() == "a\n1\n2\n"


def test_an_implicit_flush_commits_a_copy(db: stream.Session) -> None:
    db.sql("CREATE TABLE t (a INT PRIMARY KEY); SET implicit_flush = true")
    Path("t.csv").write_text("a\n1\n")
    assert db.sql("COPY t FROM 't.csv'") == 1
    assert db.sql("SELECT a FROM t").fetchall() == [(1,)]


@pytest.mark.parametrize(("text", "error", "told"), [
    ("COPY t FROM t.csv", ParseError, "in quotes"),
    ("COPY t FROM 't'", BindError, "FORMAT csv"),
    ("COPY t FROM 't.csv' (FORMAT text)", ConnectorError, "no format"),
    ("COPY t FROM 't.csv' (HEADER, HEADER)", ParseError, "twice"),
    ("COPY t FROM 't.csv' (NOTHING)", ConnectorError, "no option 'nothing'"),
    ("COPY t FROM 't.csv' (PATH 'u.csv')", ConnectorError, "no option 'path'"),
    ("COPY t FROM 't.csv' (TYPES 'a INT')", ConnectorError, "no option 'types'"),
    ("COPY t TO 't.csv' (NOTHING)", ConnectorError, "no option 'nothing'"),
    ("COPY t TO 't.csv' (DELIMITER '')", ConnectorError, "delimiter"),
    ("COPY t (nope) FROM 't.csv'", BindError, "nope"),
    ("COPY nope FROM 't.csv'", BindError, "nope"),
    ("COPY v FROM 't.csv'", BindError, "a view"),
    ("COPY (SELECT 1 AS a FROM 'x.csv' TO 't.csv'", ParseError, "too early"),
    ("COPY t 't.csv'", ParseError, "TO is expected"),
    ("COPY t FROM 't.csv' more", ParseError, r"\( is expected"),
])  # fmt: skip
def test_mistakes_are_told(db: stream.Session, text: str, error: type[Exception], told: str) -> None:
    db.sql("CREATE TABLE t (a INT); CREATE VIEW v AS SELECT a FROM t")
    with pytest.raises(error, match=told):
        db.sql(text)
    assert not list(Path.cwd().iterdir())
