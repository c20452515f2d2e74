"""Files in queries: relations over Parquet, CSV and JSON files, in Python and in SQL, compared with DuckDB."""

from __future__ import annotations

import datetime
import gzip
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import stream
from relational.errors import BindError
from relational.types import DataType
from stream import col
from stream import functions as f
from stream.connector import file_schema, parquet_files
from stream.errors import ConnectorError, MalformedRows
from tests.support.drivers.seeds import amount, run_seed

ROWS = 20_000


@pytest.fixture
def db() -> Iterator[stream.Session]:
    with stream.connect("memory://") as session:
        yield session


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three Parquet files with random rows, in the working directory."""
    rng = random.Random(run_seed())
    monkeypatch.chdir(tmp_path)
    for number in range(3):
        rows = rng.randrange(ROWS)
        table = pa.table({
            "id": pa.array(range(rows), pa.int64()),
            "region": pa.array([rng.choice(["EUROPE", "ASIA", None]) for _ in range(rows)]),
            "price": pa.array([rng.uniform(-9, 9) for _ in range(rows)]),
        })
        pq.write_table(table, tmp_path / f"part-{number}.parquet", row_group_size=rng.randrange(100, ROWS))
    return tmp_path


def test_a_query_of_parquet_files_equals_duckdb(db: stream.Session, files: Path) -> None:
    query = """SELECT region, count(*) AS n, min(id) AS low, max(id) AS high FROM read_parquet('part-*.parquet')
               WHERE price > 1 GROUP BY region"""
    expected = duckdb.sql(query).fetchall()
    assert Counter(db.sql(query).fetchall()) == Counter(expected)
    fluent = db.read_parquet("part-*.parquet").filter(col("price") > 1).group_by("region").agg(
        n=f.count(), low=f.min("id"), high=f.max("id"))
    assert Counter(fluent.fetchall()) == Counter(expected)
    joined = """SELECT count(*) FROM 'part-0.parquet' AS a JOIN 'part-1.parquet' AS b ON a.id = b.id
                WHERE a.region = b.region"""
    assert db.sql(joined).fetchall() == duckdb.sql(joined).fetchall()


def test_row_groups_that_a_condition_excludes_are_not_read(
    db: stream.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, read = random.Random(run_seed()), []
    rows = sorted(rng.randrange(-1_000, 1_000) for _ in range(10_000))
    table = pa.table({"n": pa.array(rows, pa.int32()), "x": [value / 7 for value in rows],
                      "day": [datetime.date(2024, 1, 1) + datetime.timedelta(days=value) for value in rows]})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=500)
    whole = parquet_files.ParquetFile.read
    monkeypatch.setattr(parquet_files.ParquetFile, "read",
                        lambda self, group, names: read.append(group) or whole(self, group, names))
    for _ in range(amount(8, 30)):
        least, most = sorted(rng.choices(rows, k=2))
        for where in (f"n = {least}", f"n >= {least} AND n < {most}", f"{most} >= n AND x > {least / 7}",
                      f"day > DATE '2024-01-01' + {most}", f"n < {least} OR n > {most}",
                      f"x <= {most} AND n <> {least}"):
            query = f"SELECT count(*), sum(x * 7) FROM '{tmp_path}/t.parquet' WHERE {where}"
            (found,), (expected,) = db.sql(query).fetchall(), duckdb.sql(query).fetchall()
            assert found[0] == expected[0] and found[1] == pytest.approx(expected[1])
    read.clear()
    assert db.read_parquet(tmp_path / "t.parquet").filter(col("n") == rows[-1]).select("day").fetchall()
    assert 0 < len(read) < 20
    assert "where n equal 5" in db.explain(f"SELECT day FROM '{tmp_path}/t.parquet' WHERE n = 5")


def test_a_relation_is_lazy_and_reads_the_files_that_are_there(db: stream.Session, files: Path) -> None:
    rows = db.read_parquet(str(files / "part-*.parquet"))
    before = len(rows)
    pq.write_table(pq.read_table("part-0.parquet").slice(0, 5), "part-9.parquet")
    assert len(rows) == before + min(5, pq.read_metadata("part-0.parquet").num_rows)
    assert len(db.read_parquet(files)) == len(rows) == len(db.read_parquet(files.as_uri()))
    assert len(db.read_parquet(Path("part-9.parquet"))) == len(rows) - before


def test_a_text_is_bound_again_to_other_columns(db: stream.Session, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for names in ("a", "a,b", "b", "a,b,c"):
        path.write_text(f"{names}\n{','.join('1' for _ in names.split(','))}\n")
        for _ in range(3):
            assert db.query(f"SELECT * FROM '{path}'").to_arrow().column_names == names.split(",")
            assert db.sql(f"SELECT * FROM read_csv('{path}')").columns == tuple(names.split(","))


def test_types_of_csv_columns(db: stream.Session, tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    text = 'i,d,s,b,day,at,none,zip\n1,1.5,"x, ""y""",true,2024-01-31,2024-01-31 10:00:00,,007\n,,"",,,,,\n'
    path.write_bytes(gzip.compress(text.encode()))
    rows = db.read_csv(path, types={"zip": "varchar"})
    assert [str(field.data_type) for field in rows.schema] == [
        "BIGINT", "DOUBLE", "VARCHAR", "BOOLEAN", "DATE", "TIMESTAMP", "VARCHAR", "VARCHAR"]
    assert rows.fetchall() == [
        (1, 1.5, 'x, "y"', True, datetime.date(2024, 1, 31), datetime.datetime(2024, 1, 31, 10), None, "007"),
        (None, None, "", None, None, None, None, None)]
    named = db.sql(f"SELECT * FROM read_csv('{path}', types => 'zip VARCHAR, i SMALLINT')")
    assert [named.schema.types[at] for at in (0, 7)] == [DataType.SMALLINT, DataType.VARCHAR]


def test_options_of_csv_files(db: stream.Session, tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("1;'a;b';NULL\n2;c;3\n")
    rows = db.read_csv(path, header=False, names=["id", "name", "n"], delimiter=";", quote="'", null="NULL")
    assert rows.rows() == [{"id": 1, "name": "a;b", "n": None}, {"id": 2, "name": "c", "n": 3}]
    text = "read_csv(?, header => false, delimiter => ';', quote => '''', null => 'NULL')"
    assert db.sql(f"SELECT f2 AS n FROM {text} WHERE f0 = 2", [str(path)]).fetchall() == [(3,)]
    with pytest.raises(ConnectorError, match="no option 'delim'"):
        db.sql("SELECT * FROM read_csv('t.txt', delim => ';')")
    with pytest.raises(ConnectorError, match="header => false"):
        db.read_csv(path, names=["a"])


def test_json_files_have_an_object_a_line(db: stream.Session, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"id": 1, "tags": ["a"], "at": {"x": 1.5}, "none": null}\n\n{"tags": [], "more": "no"}\n')
    rows = db.read_json(path, types={"id": "smallint"})
    assert rows.rows() == [{"id": 1, "tags": ["a"], "at": {"x": 1.5}, "none": None, "more": None},
                           {"id": None, "tags": [], "at": None, "none": None, "more": "no"}]
    with pytest.raises(ConnectorError, match="no option 'format'"):
        db.sql(f"SELECT * FROM read_json('{path}', format => 'debezium')")
    path.write_text('[{"id": 1}]')
    with pytest.raises(ConnectorError, match="an object a line"):
        db.read_json(path)


def test_errors_name_the_file_the_record_and_the_column(
    db: stream.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,n\n" + "1,2\n" * 99 + "1,x\n" + "1,2\n" * 99)
    with monkeypatch.context() as patched:
        patched.setattr(file_schema, "SAMPLE_BYTES", 100)
        rows = db.read_csv(path)
    for _ in range(2):
        with pytest.raises(MalformedRows, match=rf"record 100 of {path}: .*types => 'n …'") as raised:
            rows.to_arrow()
        assert raised.value.column == "n"
    assert db.read_csv(path).schema.types == (DataType.BIGINT, DataType.VARCHAR)
    with pytest.raises(ConnectorError, match="has no column 'm'; it has id, n"):
        db.read_csv(path, types={"m": "int"})
    for missing in ("none.csv", "none/*.csv", "*.nothing"):
        with pytest.raises(ConnectorError, match=r"there is no|cannot be listed"):
            db.read_csv(tmp_path / missing)
    with pytest.raises(ConnectorError, match="last name of a path"):
        db.read_csv(tmp_path / "*" / "t.csv")
    with pytest.raises(ConnectorError, match="cannot be read"):
        db.read_parquet(path)
    for arguments in ("NULL", "'a', 'b'", ""):
        with pytest.raises(BindError, match=r"read_csv takes"):
            db.sql(f"SELECT * FROM read_csv({arguments})")


def test_columns_that_cannot_be_told_apart_are_refused(db: stream.Session, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,a\n1,2\n")
    with pytest.raises(ConnectorError, match="two columns are called 'a'"):
        db.read_csv(tmp_path / "t.csv")


def test_other_files_of_a_directory_need_the_same_columns(db: stream.Session, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,n\n1,2\n")
    (tmp_path / "b.csv").write_text("n,id,more\n4,3,5\n")
    assert db.read_csv(tmp_path).fetchall() == [(1, 2), (3, 4)]
    (tmp_path / "c.csv").write_text("id\n5\n")
    with pytest.raises(ConnectorError, match=r"c\.csv has no column 'n'"):
        db.read_csv(tmp_path).to_arrow()
    assert db.read_csv(tmp_path).select("id").fetchall() == [(1,), (3,), (5,)]


def test_views_do_not_read_files(db: stream.Session, files: Path) -> None:
    for create in ("MATERIALIZED VIEW", "VIEW"):
        for relation in ("read_parquet('part-0.parquet')", "'part-0.parquet'"):
            with pytest.raises(BindError, match="CREATE SOURCE"):
                db.sql(f"CREATE {create} v AS SELECT id FROM {relation}")
    rows = db.read_parquet("part-0.parquet").select("id")
    for create_view in (db.create_view, db.create_materialized_view):
        with pytest.raises(BindError, match="CREATE SOURCE"):
            create_view("v", rows)
    assert db.names() == ()


def test_tables_are_made_of_files_and_take_their_rows(db: stream.Session, files: Path) -> None:
    rows = db.read_parquet("part-0.parquet")
    made = db.create_table("made", rows, primary_key="id")
    same = db.create_table_as("same", rows, primary_key="id")
    taken = db.create_table("taken", {"id": "bigint", "price": "double", "region": "varchar"})
    assert taken.insert(rows) == len(rows)
    assert db.sql("INSERT INTO taken SELECT id, price, region FROM 'part-0.parquet'") == len(rows)
    db.flush()
    expected = Counter(rows.fetchall())
    assert Counter(made.fetchall()) == Counter(same.fetchall()) == expected
    assert Counter(taken.select("id", "region", "price").fetchall()) == expected + expected
    deleted = db.sql("DELETE FROM made WHERE id IN (SELECT id FROM 'part-0.parquet' WHERE price > 0)")
    assert deleted == len(rows.filter(col("price") > 0))


def test_a_table_with_the_name_of_a_file_comes_first(db: stream.Session, files: Path) -> None:
    db.sql('CREATE TABLE "part-0.parquet" (a INT); INSERT INTO "part-0.parquet" VALUES (7); FLUSH')
    assert db.sql('SELECT * FROM "part-0.parquet"').fetchall() == [(7,)]


def test_readers_read_files_too(files: Path, tmp_path: Path) -> None:
    with stream.connect(tmp_path / "store", create=True) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t VALUES (1), (2); FLUSH")
        with stream.connect(tmp_path / "store", role="reader") as reader:
            query = "SELECT count(*) FROM t JOIN 'part-0.parquet' AS p ON p.id = t.id"
            assert reader.sql(query).fetchall() == db.sql(query).fetchall()
            assert len(reader.read_parquet("part-0.parquet")) == pq.read_metadata("part-0.parquet").num_rows
