"""What a worker of Spark keeps of a remote store on the local disk of its executor."""

from __future__ import annotations

import pytest

import stream
from hummock.errors import InvalidOption
from hummock.spark.worker import DISK_CACHE, LOCAL_DIRECTORIES, disk_cache
from relational.spark import read_spec, scan
from relational.spark.pinned_table import PinnedTable

ROWS = 3_000


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """Workers one after the other, in this process: each call forgets what the one before had in memory."""
    monkeypatch.setenv(LOCAL_DIRECTORIES, str(tmp_path / "local"))
    (tmp_path / "local").mkdir()
    opened = []

    def begin(url):
        read_spec.files_of.cache_clear()
        opened.append(read_spec.files_of(url))
        return opened[-1]

    yield begin
    read_spec.files_of.cache_clear()
    for files in opened:
        files.close()


@pytest.fixture
def filled(s3_url, tmp_path):
    meta = f"sqlite://{tmp_path}/meta.sqlite"
    with stream.connect(s3_url, create=True, meta=meta) as session:
        session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)")
        session.table("t").insert([(number, f"value {number}") for number in range(ROWS)])
        session.flush()
    return s3_url, meta


def read(url, meta, files):
    with PinnedTable(url, "t", meta=meta) as table:
        specs = scan.specs_of(table, (0, 1), scan.plan(table, [table.key_range], 4), table.epoch, None)
    read = map(read_spec.ReadSpec.from_bytes, specs)
    return sorted(row for spec in read for chunk in read_spec.read_chunks(spec, files) for row in chunk.rows())


def test_blocks_of_a_bucket_are_read_once_by_the_workers_of_an_executor(worker, filled):
    url, meta = filled
    first = worker(url)
    expected = [(number, f"value {number}") for number in range(ROWS)]
    assert read(url, meta, first) == expected
    counts = first.disk_cache.counts
    assert counts.misses and not counts.damaged
    first.close()
    second = worker(url)
    assert read(url, meta, second) == expected
    assert second.disk_cache.counts.hits and not second.disk_cache.counts.misses


def test_two_workers_have_caches_of_their_own(worker, filled):
    url, meta = filled
    one, two = worker(url), worker(url)
    assert read(url, meta, one) == read(url, meta, two)
    assert one.disk_cache.counts.misses and two.disk_cache.counts.misses


def test_the_size_is_chosen_and_local_files_are_not_cached(worker, filled, monkeypatch, tmp_path):
    url, _ = filled
    assert disk_cache(url) == (str(tmp_path / "local" / "hummock-cache"), 1 << 30)
    assert disk_cache(f"file://{tmp_path}/store") == ("", 0)
    monkeypatch.setenv(DISK_CACHE, "64m")
    assert disk_cache(url)[1] == 64 << 20
    monkeypatch.setenv(DISK_CACHE, "0")
    assert worker(url).disk_cache is None
    monkeypatch.setenv(DISK_CACHE, "lots")
    with pytest.raises(InvalidOption, match=DISK_CACHE):
        worker(url)
    monkeypatch.delenv(LOCAL_DIRECTORIES)
    monkeypatch.delenv(DISK_CACHE)
    assert worker(url).disk_cache is None
