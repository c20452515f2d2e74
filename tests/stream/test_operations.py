"""Backup and restore of stores with tables, views, sources, sinks, cursors and requests, by URL and as commands."""

from __future__ import annotations

import json
import random
import threading
from contextlib import closing

import pyarrow as pa
import pytest
from click.testing import CliRunner

import stream
from hummock.errors import BackupNotFound, BackupRefused, StoreExists, StoreNotFound
from hummock.meta import open_meta_store
from hummock.meta.leases import read_leases
from relational.errors import RequestUnanswered
from relational.inbox.client import Inbox
from relational.inbox.records import REQUESTS
from stream.cli.main import main
from tests.stream.connector.test_files import write
from tests.stream.test_sources import bids
from tests.support.drivers.seeds import run_seed

NEVER_MS = 3_600_000


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/store"


@pytest.fixture
def target(tmp_path):
    return f"file://{tmp_path}/backups"


@pytest.fixture
def copy(tmp_path):
    return f"file://{tmp_path}/copy"


def rows(db, query):
    return sorted((tuple(row.values()) for row in db.sql(query).rows()), key=repr)


def test_a_backup_of_a_busy_session_is_restored_as_of_its_epoch(url, target, copy):
    """Views over what another thread changes, at short intervals; each backup is compared with a read of its epoch."""
    rng, is_over, failures = random.Random(run_seed()), threading.Event(), []
    queries = ("SELECT * FROM t", "SELECT * FROM v", "SELECT * FROM w")
    with stream.connect(url, create=True, barrier_interval_ms=10, l0_runs=2, history_ms=NEVER_MS) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, g INT, v BIGINT)")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT g, COUNT(*) AS n, SUM(v) AS v FROM t GROUP BY g")
        db.sql("CREATE MATERIALIZED VIEW w AS SELECT t.id, v.n FROM t JOIN v ON t.g = v.g WHERE t.v > 500")

        def change():
            try:
                while not is_over.is_set():
                    key = rng.randrange(200)
                    db.sql(f"DELETE FROM t WHERE id = {key}")
                    db.sql(f"INSERT INTO t VALUES ({key}, {key % 7}, {rng.randrange(1_000)})")
            except BaseException as error:
                failures.append(error)

        writer = threading.Thread(target=change)
        writer.start()
        try:
            reports = []
            for _ in range(2):
                db.flush()
                reports.append(stream.backup(url, target))
        finally:
            is_over.set()
            writer.join()
        assert not failures
        expected = []
        for report in reports:
            with db.at(report.info.epoch) as snapshot:
                expected.append([rows(snapshot, query) for query in queries])
    for at, report in enumerate(reports):
        assert stream.restore(target, f"{copy}-{at}", epoch=report.info.epoch).info == report.info
        with stream.connect(f"{copy}-{at}", barrier_interval_ms=NEVER_MS) as db:
            assert [rows(db, query) for query in queries] == expected[at]
            db.sql("DELETE FROM t; INSERT INTO t VALUES (1, 1, 1000)")
            db.flush()
            assert [rows(db, query) for query in queries] == [[(1, 1, 1000)], [(1, 1, 1000)], [(1, 1)]]


def test_sources_go_on_from_their_offsets_and_cursors_from_their_epochs(url, target, copy, tmp_path):
    directory = tmp_path / "bids"
    directory.mkdir()
    write(directory / "0.arrow", bids(), 700)
    with stream.connect(url, create=True, barrier_interval_ms=10, split_discovery_ms=20) as db:
        db.sql(f"""CREATE TABLE bids (id BIGINT, bidder BIGINT, price BIGINT, url VARCHAR)
                   WITH (connector = 'arrow', path = '{directory}')""")
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        while rows(db, "SELECT COUNT(*) FROM bids") != [(5_000,)]:
            db.flush()
        db.sql("INSERT INTO t VALUES (1)")
        db.flush()
        with db.changes("t", cursor="follower", follow=False) as feed:
            given = [row["id"] for batch in feed for row in batch.to_pylist()]
        db.sql("INSERT INTO t VALUES (2)")
        stream.backup(url, target, epoch=db.flush())
        db.sql("INSERT INTO t VALUES (99)")
        write(directory / "1.arrow", bids(first=5_000), 700)
        while rows(db, "SELECT COUNT(*) FROM bids") != [(10_000,)]:
            db.flush()
        db.flush()
    assert given == [1]
    stream.restore(target, copy)
    with stream.connect(copy, barrier_interval_ms=10, split_discovery_ms=20) as db:
        while rows(db, "SELECT COUNT(*) FROM bids") != [(10_000,)]:
            db.flush()
        assert rows(db, "SELECT COUNT(DISTINCT id), MIN(id), MAX(id) FROM bids") == [(10_000, 0, 9_999)]
        db.sql("INSERT INTO t VALUES (3)")
        db.flush()
        with db.changes("t", cursor="follower", follow=False) as feed:
            found = [row["id"] for batch in feed for row in batch.to_pylist()]
        assert [each for each in found if each not in given] == [2, 3]
        assert rows(db, "SELECT * FROM t") == [(1,), (2,), (3,)]
        leases = {lease.node for lease in read_leases(db._playground.meta_store)}
        assert leases == {"cursor-follower", db._playground.node_name}


def test_open_requests_stay_behind_and_batches_of_writers_are_known(url, target, copy):
    rows_sent = pa.table({"id": [1, 2]})
    with stream.connect(url, create=True, barrier_interval_ms=10, inbox_poll_ms=20) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        with Inbox(url) as inbox:
            inbox.ingest("t", rows_sent, writer="loader", checkpoint="c", batch_id=0)
    with Inbox(url, timeout_ms=0) as inbox, pytest.raises(RequestUnanswered):
        inbox.insert("t", pa.table({"id": [3]}))
    stream.backup(url, target)
    stream.restore(target, copy)
    with closing(open_meta_store(copy, create=False)) as meta_store:
        assert not meta_store.list(REQUESTS)
    with stream.connect(copy, barrier_interval_ms=10, inbox_poll_ms=20) as db, Inbox(copy) as inbox:
        assert inbox.ingest("t", rows_sent, writer="loader", checkpoint="c", batch_id=0).outcome == "repeated"
        assert rows(db, "SELECT * FROM t") == [(1,), (2,)]


def test_a_mistyped_location_is_named_and_nothing_is_made(url, target, copy, tmp_path):
    with pytest.raises(StoreNotFound):
        stream.backup(url, target)
    with pytest.raises(BackupNotFound):
        stream.restore(target, copy)
    assert not list(tmp_path.iterdir())
    with stream.connect(url, create=True) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    stream.backup(url, target)
    with pytest.raises(StoreExists):
        stream.restore(target, url)
    with pytest.raises(BackupRefused, match="holds files"):
        stream.restore(target, target)
    assert not (tmp_path / "backups" / "meta.sqlite").exists() and not (tmp_path / "copy").exists()


def test_the_commands(url, target, copy):
    with stream.connect(url, create=True) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t VALUES (1)")
        epoch = db.flush()

    def run(*arguments, status=0):
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == status, result.output
        return result

    assert run("backup", url, target).stdout.startswith(f"backed up {url} to {target}: epoch ")
    record = json.loads(run("backup", url, target, "--epoch", str(epoch), "--json").stdout)
    assert record["epoch"] >= epoch and record["copied"]["files"] == 0
    missing = run("restore", target, copy, "--epoch", "5", status=1)
    assert missing.stdout == "" and f"of epoch 5; there are those of {record['epoch']}" in missing.stderr
    assert run("restore", target, copy).stdout.startswith(f"restored {copy} from {target}: epoch ")
    assert "StoreExists" in run("restore", target, copy, status=1).stderr
    with stream.connect(copy, role="reader") as db:
        assert rows(db, "SELECT * FROM t") == [(1,)]


@pytest.mark.s3
def test_a_store_in_a_directory_becomes_one_in_a_bucket_and_one_with_its_metadata_in_postgres(
    url, copy, s3_url, postgres_server
):
    bucket, _, options = s3_url.partition("?")
    target, other = f"{bucket}/backups?{options}", f"{bucket}/store?{options}"
    with stream.connect(url, create=True) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t SELECT * FROM generate_series(1, 1000)")
        report = stream.backup(url, target, epoch=db.flush())
    assert stream.restore(target, other).copied.files == report.info.files
    meta = f"{postgres_server}?schema=restored"
    assert stream.restore(target, copy, meta=meta).info == report.info
    for location, database in ((other, None), (copy, meta)):
        with stream.connect(location, meta=database) as db:
            assert rows(db, "SELECT COUNT(*), SUM(id) FROM t") == [(1_000, 500_500)]
            db.sql("INSERT INTO t VALUES (0)")
            db.flush()
            assert rows(db, "SELECT COUNT(*) FROM t") == [(1_001,)]
    with pytest.raises(StoreExists):
        stream.restore(target, copy, meta=meta)
    with pytest.raises(BackupRefused, match="another store"):
        stream.backup(other, target)
