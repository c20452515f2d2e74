"""Tiny commits, each durable when its call returns: acknowledged calls a second, by one thread and by eight, beside
RocksDB and SQLite; and what a commit costs a store of many files.

By wall, since a commit waits for the disk; CPU milliseconds a call are in `extra_info`. Keys and values are of
different lengths, and each call writes other keys. RocksDB writes to its log with `sync`, SQLite in WAL mode with
synchronous=FULL, one connection a thread.
"""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import pytest

import hummock
from hummock.epoch import EpochGenerator
from hummock.sstable.info import SstableInfo

SECONDS = 3.0
FILES, COMMITS = 10_000, 200
Rows = list[tuple[bytes, bytes]]


def rows_of(rng: random.Random, count: int) -> Rows:
    """Rows under random keys, ascending, with values of 20 to 400 bytes."""
    keys = sorted({hummock.user_key(1, rng.randrange(256), rng.randbytes(rng.randrange(8, 24))) for _ in range(count)})
    return [(key, rng.randbytes(rng.randrange(20, 400))) for key in keys]


class Committer(ABC):
    """A store whose `write` returns when the rows are durable. `write` may be called by any thread."""

    @abstractmethod
    def __init__(self, folder: Path): ...

    @abstractmethod
    def write(self, rows: Rows) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class HummockCommitter(Committer):
    def __init__(self, folder: Path):
        self.store = hummock.open(folder, role="writer")

    def write(self, rows: Rows) -> None:
        self.store.write(hummock.WriteBatch(rows))

    def close(self) -> None:
        self.store.close()


class RocksDbCommitter(Committer):
    def __init__(self, folder: Path):
        self.rocksdict = pytest.importorskip("rocksdict")
        self.db = self.rocksdict.Rdict(str(folder), options=self.rocksdict.Options(raw_mode=True))
        self.options = self.rocksdict.WriteOptions()
        self.options.sync = True

    def write(self, rows: Rows) -> None:
        batch = self.rocksdict.WriteBatch(raw_mode=True)
        for key, value in rows:
            batch.put(key, value)
        self.db.write(batch, self.options)

    def close(self) -> None:
        self.db.close()


class SqliteCommitter(Committer):
    def __init__(self, folder: Path):
        folder.mkdir()
        self.path, self.local, self.opened = folder / "rows.db", threading.local(), []
        self._connection().execute("CREATE TABLE rows (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")

    def _connection(self) -> sqlite3.Connection:
        found = getattr(self.local, "connection", None)
        if found is None:
            found = self.local.connection = sqlite3.connect(
                self.path, isolation_level=None, check_same_thread=False, timeout=60)
            found.execute("PRAGMA journal_mode = WAL")
            found.execute("PRAGMA synchronous = FULL")
            self.opened.append(found)
        return found

    def write(self, rows: Rows) -> None:
        connection = self._connection()
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?)", rows)
        connection.execute("COMMIT")

    def close(self) -> None:
        for connection in self.opened:
            connection.close()


ENGINES = {"hummock": HummockCommitter, "rocksdb": RocksDbCommitter, "sqlite": SqliteCommitter}


def written(store: Committer, threads: int, rows: int) -> list[int]:
    """How many calls each thread made in SECONDS."""
    counts, until = [0] * threads, time.monotonic() + SECONDS

    def work(number: int) -> None:
        rng = random.Random(number)
        while time.monotonic() < until:
            store.write(rows_of(rng, rows))
            counts[number] += 1

    started = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return counts


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rows", [1, 100])
@pytest.mark.parametrize("threads", [1, 8])
def test_commits(benchmark: Any, tmp_path: Path, engine: str, threads: int, rows: int) -> None:
    benchmark.group, store = f"commits of {rows} by {threads}", ENGINES[engine](tmp_path / "store")
    try:
        cpu = time.process_time()
        counts = benchmark.pedantic(written, args=(store, threads, rows), rounds=1)
        each = (time.process_time() - cpu) / sum(counts) * 1e3
    finally:
        store.close()
    benchmark.extra_info.update(engine=engine, rows=sum(counts), cpu_ms=round(each, 3))
    rate = sum(counts) / benchmark.stats.stats.mean
    print(f"\n{engine}, {threads} threads, {rows} rows a commit: {rate:,.0f} calls/s, {each:.2f} ms of CPU each")


@pytest.mark.parametrize("files", [10, FILES])
def test_cost_beside_many_files(benchmark: Any, tmp_path: Path, files: int) -> None:
    """CPU of a commit of one row where the version holds so many files, which nobody opens."""
    rng, epochs = random.Random(files), EpochGenerator()
    with hummock.open(tmp_path / "store", role="writer", compaction=False) as store:
        epoch, keys = epochs.next(), sorted(rng.randbytes(12) for _ in range(2 * files))
        infos = [SstableInfo(rng.randbytes(16).hex(), hummock.user_key(1, 0, keys[2 * at]),
                             hummock.user_key(1, 0, keys[2 * at + 1]), 1_000, 64 << 20, 64 << 20, (1,), epoch, epoch,
                             meta_bytes=1_000, meta_digest=rng.randbytes(16).hex()) for at in range(files)]
        store.meta_client.commit_epoch(store.session, epoch, infos)

        def commit() -> None:
            for _ in range(COMMITS):
                store.write(hummock.WriteBatch([(hummock.user_key(2, 0, rng.randbytes(12)), b"v" * 100)]))

        cpu = time.process_time()
        benchmark.pedantic(commit)
        each = (time.process_time() - cpu) / COMMITS * 1e3
    benchmark.extra_info.update(files=files, cpu_ms=round(each, 3))
    print(f"\n{files} files: {each:.2f} ms of CPU a commit")
