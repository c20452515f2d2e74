"""Tables whose keys are generated, through SQL: their vnodes are bits of the ids, and so are those of views that keep
the ids; what older releases stored by the hash stays there.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

import stream
from hummock.base.key import KeyRange, vnode_of
from relational.catalog.objects import TableCatalog
from relational.errors import BindError
from relational.sql.ddl import create
from relational.types import VnodeRule

ROWS = 3_000


@pytest.fixture
def folder(tmp_path):
    return f"file://{tmp_path}/store"


def catalogs(db) -> dict[str, TableCatalog]:
    return {table.name: table for table in db._playground.catalog.snapshot.tables.values()}


def vnodes_of_rows(db, name: str) -> Counter[int]:
    """How many stored rows of a table have each vnode in their keys."""
    store, table = db._playground.storage, catalogs(db)[name]
    with store.scan(KeyRange.table(table.id), store.committed_epoch) as rows:
        return Counter(vnode_of(key) for key, _ in rows)


def insert(db, name: str, first: int, rows: int = ROWS) -> None:
    numbers = pa.array(range(first, first + rows), pa.int64())
    db.table(name).insert(pa.table({"a": numbers, "b": numbers.cast(pa.string())}))


@pytest.mark.parametrize("clause", ["", " APPEND ONLY"])
def test_rows_with_generated_keys_are_stored_by_the_bits_of_their_ids(folder, clause):
    with stream.connect(folder, create=True) as db:
        db.sql(f"CREATE TABLE t (a BIGINT, b VARCHAR){clause}")
        db.sql("CREATE MATERIALIZED VIEW kept AS SELECT b, a FROM t WHERE a >= 0")
        db.sql("CREATE MATERIALIZED VIEW counted AS SELECT a % 10 AS digit, count(*) AS rows FROM t GROUP BY a % 10")
        insert(db, "t", 0)
        db.flush()
        insert(db, "t", ROWS)
        db.flush()
        known = catalogs(db)
        assert [known[name].vnode_rule for name in ("t", "kept", "counted")] == [
            VnodeRule.ROW_ID, VnodeRule.ROW_ID, VnodeRule.HASH]
        assert known["t"].inserts_new_keys == known["kept"].inserts_new_keys == bool(clause)
        spread = vnodes_of_rows(db, "t")
        assert spread == vnodes_of_rows(db, "kept") and spread.total() == 2 * ROWS and len(spread) >= 40
    with stream.connect(folder, create=True) as db:
        insert(db, "t", 2 * ROWS)
        db.flush()
        assert db.sql("SELECT count(*), sum(a) FROM t").rows() == db.sql("SELECT count(*), sum(a) FROM kept").rows()
        assert {row["rows"] for row in db.sql("SELECT * FROM counted").rows()} == {3 * ROWS // 10}
        assert vnodes_of_rows(db, "t").total() == vnodes_of_rows(db, "kept").total() == 3 * ROWS
        row = db.sql("SELECT _row_id, a FROM t WHERE a = 4321").rows()[0]
        assert db.sql(f"SELECT a FROM t WHERE _row_id = {row['_row_id']}").rows() == [{"a": 4321}]


def test_rows_with_generated_keys_are_updated_and_deleted_unless_the_table_is_append_only(folder):
    with stream.connect(folder, create=True) as db:
        db.sql("CREATE TABLE t (a BIGINT, b VARCHAR)")
        db.sql("CREATE TABLE log (a BIGINT, b VARCHAR) APPEND ONLY")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT a FROM t")
        for name in ("t", "log"):
            insert(db, name, 0, 500)
        db.sql("DELETE FROM t WHERE a < 100")
        db.sql("UPDATE t SET a = a + 1000 WHERE a < 200")
        db.flush()
        expected = sorted([*range(200, 500), *range(1_100, 1_200)])
        for query in ("SELECT a FROM t", "SELECT a FROM v"):
            assert sorted(row["a"] for row in db.sql(query).rows()) == expected
        for statement in ("DELETE FROM log", "UPDATE log SET a = 1"):
            with pytest.raises(BindError, match="append-only"):
                db.sql(statement)


def test_a_table_of_an_older_release_stays_hashed(folder, monkeypatch):
    real = create.table_of
    monkeypatch.setattr(create, "table_of", lambda *args: replace(
        real(*args), vnode_rule=VnodeRule.HASH, version=3))
    with stream.connect(folder, create=True) as db:
        db.sql("CREATE TABLE t (a BIGINT, b VARCHAR) APPEND ONLY")
        insert(db, "t", 0)
        db.flush()
    monkeypatch.undo()
    with stream.connect(folder, create=True) as db:
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT a FROM t")
        insert(db, "t", ROWS)
        db.flush()
        assert {catalogs(db)[name].vnode_rule for name in ("t", "v")} == {VnodeRule.HASH}
        assert db.sql("SELECT count(*) AS n FROM t").rows() == [{"n": 2 * ROWS}]
        assert db.sql("SELECT count(*) AS n FROM v").rows() == [{"n": 2 * ROWS}]
        assert len(vnodes_of_rows(db, "t")) == len(vnodes_of_rows(db, "v")) == 256
