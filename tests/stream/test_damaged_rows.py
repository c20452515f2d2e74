"""Corrupt stored rows: errors name table, key and column, and a delete by key works."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

import stream
from relational.catalog.names import ObjectName
from relational.chunk import Column, DataChunk
from relational.errors import DamagedRow
from relational.types import DataType
from stream.errors import InvalidStatement

DAMAGED = '{"b":1, "a":2}'      # not canonical; written by releases without validation


@pytest.fixture
def url(tmp_path):
    """A store with a table whose row (2, 'x') cannot be read."""
    url = f"file://{tmp_path / 'store'}"
    with stream.connect(url, create=True) as db:
        db.sql("CREATE TABLE t (id BIGINT, k VARCHAR, n BIGINT, j JSONB, PRIMARY KEY (id, k))")
        documents = pa.ExtensionArray.from_storage(DataType.JSONB.arrow, pa.array(["{}", DAMAGED, "[1]"]))
        columns = [Column(pa.array([1, 2, 3]), DataType.BIGINT), Column(pa.array(["x"] * 3), DataType.VARCHAR),
                   Column(pa.array([10, 20, 30]), DataType.BIGINT), Column(documents, DataType.JSONB)]
        table = db._playground.catalog.resolve(ObjectName("t"))
        assert db._queries.insert_rows(table, DataChunk(columns)) == 3
    return url


@pytest.mark.parametrize("query", ["SELECT * FROM t", "SELECT j FROM t WHERE id = 2 AND k = 'x'"])
def test_the_error_names_table_key_and_column(url, query):
    with stream.connect(url) as db, pytest.raises(DamagedRow, match="JSON in its canonical form") as caught:
        db.sql(query).to_arrow()
    error = caught.value
    assert (error.table, error.key, error.column_name) == ("t", (2, "x"), "j")
    assert "the row with the key 2, 'x', column 'j'" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and again.key == error.key


def test_columns_that_are_well_are_read(url):
    with stream.connect(url, create=True) as db:
        assert db.sql("SELECT SUM(n) AS n FROM t").rows() == [{"n": 60}]


@pytest.mark.parametrize("condition", ["id = 2", "id > 1 AND k = 'x' AND id < 3"])
def test_a_delete_by_the_key_needs_no_other_column(url, condition):
    with stream.connect(url, create=True) as db:
        assert db.sql(f"DELETE FROM t WHERE {condition}") == 1
        db.flush()
        assert [row["id"] for row in db.sql("SELECT * FROM t ORDER BY id").rows()] == [1, 3]
    with stream.connect(url, create=True) as db:
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT id, j FROM t")
        assert db.sql("DELETE FROM t") == 2
        db.flush()
        assert db.sql("SELECT * FROM v").to_arrow().num_rows == 0


def test_all_rows_can_be_deleted(url):
    with stream.connect(url, create=True) as db:
        assert db.sql("DELETE FROM t") == 3
        db.flush()
        assert db.sql("SELECT * FROM t").rows() == []


def test_what_needs_the_row_is_refused_with_what_helps(url):
    with stream.connect(url, create=True) as db:
        for statement in ("DELETE FROM t WHERE n = 20", "DELETE FROM t WHERE id = 2 AND j IS NULL"):
            with pytest.raises(InvalidStatement, match="over the primary key alone"):
                db.sql(statement)
        with pytest.raises(InvalidStatement, match="the row with the key 2, 'x'"):
            db.sql("UPDATE t SET n = 0")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT id, n FROM t")
        with pytest.raises(InvalidStatement, match="no view or index reads the table"):
            db.sql("DELETE FROM t WHERE id = 2")
        db.flush()
        assert db.sql("SELECT COUNT(*) AS c FROM v").rows() == [{"c": 3}]
        db.sql("DROP MATERIALIZED VIEW v")
        assert db.sql("DELETE FROM t WHERE id = 2") == 1
