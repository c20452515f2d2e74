"""Options of sources and connector tables in SQL: rate limits, where a new view begins, filters, pause and resume."""

from __future__ import annotations

import os
import time

import pyarrow.parquet as pq
import pytest

import stream
from stream.connector.parquet_files import ParquetFile
from stream.errors import ConnectorError
from tests.stream.connector.test_files import write
from tests.stream.test_sources import ROWS, bids, connected, create_source, is_read
from tests.support.drivers.waiting import eventually


@pytest.fixture
def files(tmp_path):
    directory = tmp_path / "bids"
    directory.mkdir()
    for number in range(3):
        write(directory / f"{number}.arrow", bids(first=number * ROWS), 700)
        os.utime(directory / f"{number}.arrow", (1_000_000_000 + number, 1_000_000_000 + number))
    return directory


@pytest.fixture
def db(tmp_path):
    with connected(tmp_path / "store", split_discovery_ms=5) as session:
        yield session


def delivered(db, name):
    db.flush()
    return db.sql(f"SELECT inserted FROM {name}").rows()[0]["inserted"]


def source(db, files, options, kind="SOURCE"):
    db.sql(f"CREATE {kind} bid (id BIGINT, bidder BIGINT, price BIGINT, url VARCHAR) "
           f"WITH (connector = 'arrow', path = '{files}', {options})")


def test_a_rate_limit_bounds_the_rows_of_each_second(db, files):
    source(db, files, "rate_limit = 2000")
    began = time.monotonic()
    db.sql("CREATE SINK s AS SELECT id FROM bid WITH (connector = 'blackhole')")
    counts = []
    while (count := delivered(db, "s")) < 2_000:
        counts.append(count)
        assert count <= 2_000 * (time.monotonic() - began) + 1_000
        time.sleep(0.02)
    assert time.monotonic() - began > 0.4 and len(set(counts)) > 1


def test_a_table_of_a_connector_has_a_rate_limit_too(db, files):
    began = time.monotonic()
    source(db, files, "rate_limit = 1", "TABLE")
    time.sleep(0.3)
    assert db.sql("SELECT count(*) AS n FROM bid").rows()[0]["n"] <= 2 + time.monotonic() - began


def test_a_view_that_begins_latest_sees_what_is_added_only(tmp_path, db, files):
    source(db, files, "start = 'latest'")
    db.sql("CREATE SINK s AS SELECT id FROM bid WITH (connector = 'blackhole')")
    assert is_read(db, "s", files) and delivered(db, "s") == 0
    write(tmp_path / "part", bids(10), 700)
    (tmp_path / "part").rename(files / "9.arrow")
    eventually(lambda: is_read(db, "s", files))
    assert delivered(db, "s") == 10
    db.sql("CREATE SINK later AS SELECT id FROM bid WITH (connector = 'blackhole')")
    assert delivered(db, "later") == 0


def test_a_view_that_begins_at_a_moment_sees_the_files_written_since(tmp_path, files):
    with connected(tmp_path / "store") as db:
        source(db, files, "start = '2001-09-09 01:46:41'")
        db.sql("CREATE SINK s AS SELECT id FROM bid WITH (connector = 'blackhole')")
        db.sql("CREATE SINK t AS SELECT id FROM bid WITH (connector = 'blackhole')")
    with connected(tmp_path / "store") as db:
        for name in "st":
            eventually(lambda name=name: is_read(db, name, files))
            assert delivered(db, name) == 2 * ROWS


def test_an_empty_directory_has_begun_with_its_view(tmp_path):
    files = tmp_path / "files"
    files.mkdir()
    with connected(tmp_path / "store") as db:
        source(db, files, "start = 'latest'")
        db.sql("CREATE SINK s AS SELECT id FROM bid WITH (connector = 'blackhole')")
        db.flush()
        assert db.source_offsets("s") == {} and db.sql("SHOW JOBS").to_pylist()[0]["offsets"] == "{}"
    write(files / "0.arrow", bids(10), 700)
    with connected(tmp_path / "store") as db:
        eventually(lambda: is_read(db, "s", files))
        assert delivered(db, "s") == 10


def test_row_groups_that_a_view_filters_out_are_not_read(tmp_path, db, monkeypatch):
    directory = tmp_path / "parquet"
    directory.mkdir()
    for number in range(3):
        pq.write_table(bids(first=number * ROWS), directory / f"{number}.parquet", row_group_size=500)
    read, real = [], ParquetFile.read
    monkeypatch.setattr(ParquetFile, "read", lambda file, group, names: read.append(group) or real(file, group, names))
    db.sql("CREATE SOURCE bid (url VARCHAR, price BIGINT, id BIGINT) "
           f"WITH (connector = 'parquet', path = '{directory}')")
    ends = {f"{number}.parquet": "10:0" for number in range(3)}
    condition = f"id >= {ROWS} AND {ROWS + 1_100} > id AND url <> ''"
    db.sql(f"CREATE SINK s AS SELECT price, count(*) AS n FROM bid WHERE {condition} GROUP BY price "
           "WITH (connector = 'digest')")
    db.sql(f"CREATE MATERIALIZED VIEW v AS SELECT id FROM bid WHERE id < {ROWS} + 0 AND id = 7")
    for name in "sv":
        eventually(lambda name=name: db.source_offsets(name) == ends)
    assert sorted(read) == [0, 0, 1, 2]
    assert db.sql("SELECT id FROM v").rows() == [{"id": 7}]
    wanted = bids(1_100, ROWS).filter(bids(1_100, ROWS)["url"].is_valid())
    assert db.sql("SELECT inserted - deleted AS n FROM s").rows()[0]["n"] == len(set(wanted["price"].to_pylist()))


def test_sources_pause_and_resume(db, files):
    db.pause()
    create_source(db, files)
    db.sql("CREATE SINK s AS SELECT id FROM bid WITH (connector = 'blackhole')")
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM bid")
    time.sleep(0.05)
    assert delivered(db, "s") == 0 and db.sql("SELECT n FROM v").rows() == [{"n": 0}]
    assert {row["name"]: row["state"] for row in db.sql("SHOW JOBS").to_pylist()} == {"s": "PAUSED", "v": "PAUSED"}
    db.resume()
    for name in "sv":
        eventually(lambda name=name: is_read(db, name, files))
    assert delivered(db, "s") == 3 * ROWS and db.sql("SELECT n FROM v").rows() == [{"n": 3 * ROWS}]


def test_reading_stops_in_the_middle_when_sources_pause(tmp_path, files):
    with stream.connect(f"file://{tmp_path}/store", create=True, barrier_interval_ms=10, chunk_rows=16) as db:
        create_source(db, files)
        db.sql("CREATE SINK s AS SELECT id FROM bid WITH (connector = 'blackhole')")
        db.pause()
        stopped = delivered(db, "s")
        time.sleep(0.05)
        assert delivered(db, "s") == stopped
        db.resume()
        eventually(lambda: is_read(db, "s", files))
        assert delivered(db, "s") == 3 * ROWS


@pytest.mark.parametrize(("options", "fault"), [
    ("rate_limit = -1", "rate_limit is a whole number"), ("rate_limit = 'fast'", "rate_limit is a whole number"),
    ("start = 'yesterday'", "start is earliest, latest or a timestamp"), ("malformed = 'ignore'", "refuse or skip"),
])
def test_invalid_options_are_refused(db, files, options, fault):
    with pytest.raises(ConnectorError, match=fault):
        source(db, files, options)
    with pytest.raises(ConnectorError, match=fault):
        source(db, files, options, "TABLE")
    assert db.names() == ()
