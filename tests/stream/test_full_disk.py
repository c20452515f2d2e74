"""A full disk: the next flush raises DiskFull and the session ends; committed rows survive."""

import errno

import pytest

import stream
from hummock.errors import DiskFull
from tests.support.servers.file_calls import between

NEVER_MS = 3_600_000


def full_disk():
    return between(lambda name, real, *arguments: -errno.ENOSPC if name == "pwrite" else real(*arguments))


def test_a_flush_names_the_full_disk_and_not_the_statements_it_cost(tmp_path):
    url = f"file://{tmp_path}/store"
    db = stream.connect(url, create=True, barrier_interval_ms=NEVER_MS, inline_bytes=0)
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
    db.sql("INSERT INTO t VALUES (1)")
    db.flush()
    db.sql("INSERT INTO t VALUES (2)")
    with full_disk():
        for _ in range(2):
            with pytest.raises(DiskFull, match=r"(?s)the disk of .* is full.*ENOSPC"):
                db.flush()
        with pytest.raises(DiskFull):
            db.close()
    with stream.connect(url, create=True, barrier_interval_ms=NEVER_MS) as db:
        assert db.sql("SELECT id FROM t").to_arrow().to_pylist() == [{"id": 1}]
        db.sql("INSERT INTO t VALUES (2)")
        db.flush()
        assert db.sql("SELECT count(*) AS n FROM t").to_arrow().to_pylist() == [{"n": 2}]
