"""A session whose files and metadata are in a bucket ends, and a later session continues from its state."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import stream
from tests.support.servers.s3_server import ENVIRONMENT, make_bucket, s3_server

pytest.importorskip("boto3")
pytest.importorskip("moto")


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with s3_server() as endpoint:
        yield f"s3://{make_bucket(endpoint)}/shop?endpoint={endpoint}&path_style=true"


def test_a_view_in_a_bucket_outlives_its_session(url: str) -> None:
    with stream.connect(url, create=True, l0_runs=2, history_ms=0) as db:
        db.sql("CREATE TABLE orders (id BIGINT PRIMARY KEY, region VARCHAR, amount BIGINT)")
        db.sql("CREATE MATERIALIZED VIEW revenue AS SELECT region, SUM(amount) AS r FROM orders GROUP BY region")
        for number in range(6):
            db.sql(f"INSERT INTO orders VALUES ({number}, 'EUROPE', 1)")
            db.sql("FLUSH")
    with stream.connect(url, create=True) as db:
        assert [int(row["r"]) for row in db.sql("SELECT r FROM revenue").rows()] == [6]
        db.sql("DELETE FROM orders WHERE id = 3")
        db.sql("FLUSH")
        assert [int(row["r"]) for row in db.sql("SELECT r FROM revenue").rows()] == [5]
