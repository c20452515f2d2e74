from dataclasses import fields
from typing import get_type_hints

import pyarrow.parquet as pq
import pytest

import stream
from hummock.errors import InvalidOption, UnknownOption
from hummock.options import CompactionOptions, StorageOptions
from relational.errors import QueryTooLarge
from stream.options import RANGES, SessionKeywords, StreamOptions


def test_defaults_are_valid():
    assert StreamOptions().barrier_interval_ms == 1_000


@pytest.mark.parametrize("field", ["chunk_rows", "in_flight_barriers", "state_write_bytes"])
def test_zero_is_refused_and_the_field_is_named(field):
    with pytest.raises(ValueError, match=field):
        StreamOptions(**{field: 0})


NUMBERS = [name for name, default in ((each.name, each.default) for each in fields(StreamOptions))
           if type(default) is int]


def test_every_number_has_a_range():
    assert list(RANGES) == NUMBERS


@pytest.mark.parametrize("value", [-1, 0, 1, 1 << 70, 1.5, "7", None, True, False])
@pytest.mark.parametrize("name", [each.name for each in fields(StreamOptions)])
def test_a_value_is_refused_by_name_or_a_session_works_with_it(name, value):
    try:
        session = stream.connect("memory://", **{name: value})
    except InvalidOption as error:
        assert error.name == name and name in str(error)
        return
    with session as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        db.sql("CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n FROM t GROUP BY v")
        table = db.table("t")
        for first in range(0, 5, 1 if name == "statement_rows" else 5):
            table.insert([(number, 0) for number in range(first, first + (1 if name == "statement_rows" else 5))])
        assert db.sql("UPDATE t SET v = id % 2") == 5
        db.flush()
        assert db.sql("SELECT v, n FROM m ORDER BY v").to_arrow().to_pylist() == [{"v": 0, "n": 3}, {"v": 1, "n": 2}]


def test_the_keywords_of_connect_are_the_options_and_their_types():
    kinds = (StreamOptions, StorageOptions, CompactionOptions)
    expected = {name: kind for each in kinds for name, kind in get_type_hints(each).items()}
    assert get_type_hints(SessionKeywords) == expected


@pytest.mark.parametrize(("name", "message"), [
    ("barier_interval_ms", "there is no option 'barier_interval_ms'; did you mean 'barrier_interval_ms'?"),
    ("blok_bytes", "there is no option 'blok_bytes'; did you mean 'block_bytes'?"),
    ("zzz", "there is no option 'zzz'; there are "),
])  # fmt: skip
def test_an_unknown_option_is_named_with_the_nearest_one(name, message):
    with pytest.raises(UnknownOption) as caught:
        stream.connect("memory://", **{name: 1})
    assert str(caught.value).startswith(message) and caught.value.name == name and "l0_runs" in caught.value.known


def test_a_chunk_that_holds_no_update_is_refused():
    with pytest.raises(InvalidOption, match="chunk_rows is 1: must be an integer between 2 and"):
        StreamOptions(chunk_rows=1)
    with stream.connect("memory://", chunk_rows=2) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT); INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
        assert db.sql("UPDATE t SET v = v + 1") == 3


def test_zero_checkpoint_rows_means_never():
    assert StreamOptions(checkpoint_rows=0).checkpoint_rows == 0


def test_queries_go_on_in_files_of_the_directory_that_a_session_names(tmp_path):
    options = {"query_memory_bytes": 1 << 20, "query_directory": str(tmp_path / "spilled"), "column_cache_bytes": 0}
    (tmp_path / "spilled").mkdir()
    query = "SELECT count(*) AS n, sum(c) AS c FROM (SELECT k, count(*) AS c FROM t GROUP BY k) AS g"
    with stream.connect(f"file://{tmp_path}/store", create=True, **options) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT)")
        db.table("t").insert([(number, number // 2) for number in range(60_000)], flush=True)
        expected = [{"n": 30_000, "c": 60_000}]
        assert db.query(query).rows() == db.sql(query).rows() == expected
        written = db.metrics["hummock_store_query_spilled_bytes_total"]
        with db.at() as snapshot:
            assert snapshot.sql(query).rows() == expected
        assert db.metrics["hummock_store_query_spilled_bytes_total"] > written > 0
        assert db.metrics["hummock_store_query_disk_bytes"] == db.metrics["hummock_store_query_memory_bytes"] == 0
        pairs = "SELECT * FROM t AS a CROSS JOIN (SELECT id AS b FROM t LIMIT 10) AS b"
        with pytest.raises(QueryTooLarge, match="the result of a query beyond the limit of 1,048,576"):
            db.query(pairs)
        db.sql(f"COPY ({pairs}) TO '{tmp_path}/x.parquet'")
        assert pq.read_metadata(tmp_path / "x.parquet").num_rows == 600_000
    with stream.connect(f"file://{tmp_path}/store", role="reader", **options) as reader:
        assert reader.query(query).rows() == expected
        assert reader.metrics["hummock_store_query_spilled_bytes_total"] > 0
    assert not list((tmp_path / "spilled").iterdir())
