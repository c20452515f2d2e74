"""Readers beside the session that writes: how soon they hear of a change, and what they cost it.

`latency`: from the return of `flush()` to the batch of a change feed, in the same process and in another one of the
host. `rate`: rows a second into a view, alone and beside HUMMOCK_READERS (20) processes that each ask READS_A_SECOND
queries, for HUMMOCK_READERS_SECONDS (30; the figures of the documentation are of 600) in all. Both are measured in
turns, since a machine changes its speed by more than what readers cost: a minute beside new readers, then a third of
one alone. In the middle turn the writer is killed, and another one begun; its rate of that turn is the mean of before
and after. The ratio is the mean of all turns, each compared with alone before and after it. `extra_info` has the
rates, the ratio of each turn, the seconds without a writer, the reads, their latencies in milliseconds, the share of
the machine that the readers took, and the leases that are left in the end. A reader ends with an error if a read is
not of one epoch, or of an earlier one than the read before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stream
from hummock.meta import open_meta_store
from hummock.meta.records import LEASES
from hummock.object_store import open_object_store

COMMITS = 300
READERS = int(os.environ.get("HUMMOCK_READERS", "20"))
SECONDS = float(os.environ.get("HUMMOCK_READERS_SECONDS", "30"))
READS_A_SECOND = 5.0  # of each, with which 20 took 10 % of two cores
TURNS = max(1, round(SECONDS / 60))
BESIDE = SECONDS / TURNS  # seconds of a turn, and ALONE those between turns
ALONE = max(BESIDE / 3, 5.0)
SETTLING = 5.0  # seconds after which a writer has its rate
WRITER = """
import select, sys, time, stream
with stream.connect(sys.argv[1], create=True) as db:
    db.sql('''CREATE SOURCE IF NOT EXISTS bid (auction BIGINT, bidder BIGINT, price BIGINT)
              WITH (connector = 'nexmark', events = '200000000000', splits = '2')''')
    db.sql('''CREATE MATERIALIZED VIEW IF NOT EXISTS per_auction AS
              SELECT auction % 1000 AS auction, COUNT(*) AS bids, MAX(price) AS highest FROM bid GROUP BY 1''')
    db.sql("CREATE MATERIALIZED VIEW IF NOT EXISTS whole AS SELECT SUM(bids) AS bids FROM per_auction")
    print("writes", flush=True)
    while not select.select([sys.stdin], [], [], 0.5)[0]:
        print(time.time(), sum(map(int, db.source_offsets("per_auction").values())), flush=True)
"""
FOLLOWER = """
import sys, time, stream
with stream.connect(sys.argv[1], role="reader") as reader, reader.changes("t", reader.committed_epoch) as feed:
    print("follows", flush=True)
    for batch in feed:
        print(batch["_epoch"][0].as_py(), time.time(), flush=True)
"""
READER = """
import json, sys, time, stream
QUERY = "SELECT SUM(bids) AS bids, (SELECT bids FROM whole) AS whole FROM per_auction"
url, seconds, rate, last = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
with stream.connect(url, role="reader") as reader:
    reader.query(QUERY).to_pylist()
    print("reads", flush=True)
    sys.stdin.readline()
    cpu, begun, took = time.process_time(), time.monotonic(), []
    while time.monotonic() - begun < seconds:
        at = time.monotonic()
        (row,) = reader.query(QUERY).to_pylist()
        took.append(time.monotonic() - at)
        assert row["bids"] == row["whole"] and row["bids"] >= last, row
        last = row["bids"]
        time.sleep(max(0.0, 1 / rate - took[-1]))
    print(json.dumps({"took": took, "cpu": time.process_time() - cpu, "last": int(last)}), flush=True)
"""


def started(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def percentiles(seconds: list[float]) -> dict[str, float]:
    found = np.percentile(np.array(seconds) * 1_000, [50, 99, 100])
    return dict(zip(("p50_ms", "p99_ms", "max_ms"), found.round(2).tolist(), strict=True))


@pytest.mark.parametrize("where", ["this process", "another process"])
def test_latency(benchmark: Any, tmp_path: Path, where: str) -> None:
    url = f"file://{tmp_path}/store"
    heard: dict[int, float] = {}
    sent: dict[int, float] = {}
    with stream.connect(url, create=True, barrier_interval_ms=3_600_000) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        if where == "this process":
            feed = db.changes("t", db.committed_epoch)
            feed.start(lambda batch: heard.__setitem__(batch["_epoch"][0].as_py(), time.time()))
        else:
            follower = started(FOLLOWER, url)
            assert follower.stdout is not None and follower.stdout.readline() == "follows\n"

        def commit_all() -> None:
            for number in range(COMMITS):
                db.sql("INSERT INTO t VALUES (?)", [number])
                epoch = int(db.flush())
                sent[epoch] = time.time()
                time.sleep(0.02)

        benchmark.pedantic(commit_all, rounds=1)
        if where == "this process":
            feed.close()
        else:
            while len(heard) < COMMITS:
                epoch, at = follower.stdout.readline().split()
                heard[int(epoch)] = float(at)
                if int(epoch) == max(sent):
                    break
            follower.kill()
            follower.wait()
    benchmark.extra_info.update(percentiles([max(heard[epoch] - sent[epoch], 0.0) for epoch in sent if epoch in heard]))
    benchmark.extra_info["heard"] = len(heard)
    print(f"\nchange to follower in {where}:", benchmark.extra_info)


class Writer:
    """The process that writes; its counts of rows, by time, come from its output."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.counts: list[tuple[float, int]] = []
        self._start()

    def _start(self) -> None:
        self._process = started(WRITER, self.url)
        assert self._process.stdout is not None and self._process.stdout.readline() == "writes\n"
        self._thread = threading.Thread(target=self._read, args=(self._process,))
        self._thread.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            at, rows = line.split()
            self.counts.append((float(at), int(rows)))

    def _ended(self) -> None:
        self._process.wait()
        self._thread.join()

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._ended()

    def restart(self) -> float:
        """Kills the process and begins another one; the seconds until its view goes on."""
        begun, rows = time.time(), self.counts[-1][1]
        self._process.kill()
        self._ended()
        self._start()
        while self.counts[-1][1] <= rows:
            time.sleep(0.05)
        return time.time() - begun

    def rate(self, begin: float, end: float) -> float:
        """Rows a second between two times."""
        within = [count for count in self.counts if begin <= count[0] <= end]
        return (within[-1][1] - within[0][1]) / (within[-1][0] - within[0][0])


class Readers:
    """Processes that read for some seconds."""

    def __init__(self, url: str, seconds: float, last: int) -> None:
        self._found: list[dict[str, Any]] = []
        self._processes = [started(READER, url, seconds, READS_A_SECOND, last) for _ in range(READERS)]
        for each in self._processes:
            assert each.stdout is not None and each.stdout.readline() == "reads\n"
        self._threads = [threading.Thread(target=self._run, args=(each,)) for each in self._processes]
        for thread in self._threads:
            thread.start()

    def _run(self, process: subprocess.Popen[str]) -> None:
        self._found.append(json.loads(process.communicate("\n")[0]))

    def finish(self) -> list[dict[str, Any]]:
        """What each reader found."""
        for thread in self._threads:
            thread.join()
        assert len(self._found) == READERS, "a reader ended with an error"
        return self._found


class Turns:
    """The writer alone and beside readers, in turns."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.writer = Writer(url)
        self.alone: list[float] = []
        self.beside: list[float] = []
        self.found: list[dict[str, Any]] = []
        self.outage = 0.0
        time.sleep(SETTLING)

    def run(self) -> None:
        self._run_alone()
        for turn in range(TURNS):
            self._run_beside(killed=turn == TURNS // 2)
            self._run_alone()

    def _run_alone(self) -> None:
        begun = time.time()
        time.sleep(ALONE)
        self.alone.append(self.writer.rate(begun, time.time()))

    def _run_beside(self, *, killed: bool) -> None:
        last = max((one["last"] for one in self.found), default=0)
        readers = Readers(self._url, BESIDE, last)
        begun = time.time()
        if killed:
            time.sleep(BESIDE / 2)
            before = self.writer.rate(begun, time.time())
            self.outage = self.writer.restart()
            risen = time.time() + SETTLING
            time.sleep(max(begun + BESIDE - risen, 5.0))
            self.beside.append((before + self.writer.rate(risen, time.time())) / 2)
        else:
            time.sleep(BESIDE)
            self.beside.append(self.writer.rate(begun, time.time()))
        self.found += readers.finish()

    def ratios(self) -> list[float]:
        """Of each turn, to alone before and after it."""
        around = zip(self.alone, self.alone[1:], strict=False)
        return [beside * 2 / sum(alone) for beside, alone in zip(self.beside, around, strict=True)]


@pytest.mark.timeout(300 + 3 * SECONDS)
def test_rate(benchmark: Any, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    turns = Turns(url)
    benchmark.pedantic(turns.run, rounds=1)
    turns.writer.stop()
    meta = open_meta_store(url, object_store=open_object_store(url))
    leases = len(meta.list(LEASES))
    meta.close()
    took = [each for one in turns.found for each in one["took"]]
    share = sum(one["cpu"] for one in turns.found) / SECONDS / (os.cpu_count() or 1)
    ratios = turns.ratios()
    alone, beside, ratio = (float(np.mean(each)) for each in (turns.alone, turns.beside, ratios))
    benchmark.extra_info.update(
        alone=round(alone), beside=round(beside), ratio=round(ratio, 3), ratios=[round(each, 2) for each in ratios],
        outage_s=round(turns.outage, 1), reads=len(took), readers=READERS, readers_share=round(share, 3),
        leases=leases, **percentiles(took))
    print("\nwriter and readers:", benchmark.extra_info)
