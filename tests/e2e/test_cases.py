"""Runs every `cases/*.slt` in a session, and in DuckDB to check the expected rows."""

from pathlib import Path

import pytest

import stream
from tests.e2e import runner

CASES = sorted((Path(__file__).parent / "cases").glob("*.slt"))
NEVER_MS = 3_600_000


def rows_of(table):
    """Rows as tuples of Python values; column names may repeat."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


class Hummock:
    name = "hummock"

    def __init__(self, url):
        self.url = url
        self.session = stream.connect(url, create=True, barrier_interval_ms=NEVER_MS)

    def execute(self, sql):
        return self.session.sql(sql)

    def query(self, sql):
        result = self.session.sql(sql)
        return rows_of(result.to_arrow())

    def flush(self):
        self.session.flush()

    def restart(self):
        self.session.close()
        self.session = stream.connect(self.url, create=True, barrier_interval_ms=NEVER_MS)

    def close(self):
        self.session.close()


class DuckDb:
    name = "duckdb"

    def __init__(self):
        duckdb = pytest.importorskip("duckdb")
        self.connection = duckdb.connect()
        self.connection.execute("SET TimeZone = 'UTC'")

    def execute(self, sql):
        sql = sql.replace("MATERIALIZED VIEW", "VIEW")
        cursor = self.connection.execute(sql)
        return cursor.fetchone()[0] if sql.split()[0] in ("INSERT", "UPDATE", "DELETE") else None

    def query(self, sql):
        return rows_of(self.connection.sql(sql).to_arrow_table())

    def flush(self):
        """No-op: DuckDB's views are always fresh."""

    def restart(self):
        """No-op: recovery of DuckDB is not under test."""

    def close(self):
        self.connection.close()


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_session_gives_the_expected_rows(path, tmp_path):
    engine = Hummock(f"file://{tmp_path}/store")
    try:
        assert runner.run(path, engine)
    finally:
        engine.close()


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_expected_rows_are_those_of_sql(path):
    engine = DuckDb()
    try:
        assert runner.run(path, engine)
    finally:
        engine.close()
