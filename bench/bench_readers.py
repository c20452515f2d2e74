"""Readers beside the session that writes: how soon they hear of a change, and what they cost it.

`latency`: from the return of `flush()` to the batch of a change feed, in the same process and in another one of the
host. `rate`: rows a second into a view, alone and with HUMMOCK_READERS (20) processes that each ask READS_A_SECOND
queries, for HUMMOCK_READERS_SECONDS (20) each; `extra_info` has both rates, the reads, their latencies in milliseconds,
and the share of the machine that the readers took.
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
from hummock.base.process import peak_memory_bytes

COMMITS = 300
READERS = int(os.environ.get("HUMMOCK_READERS", "20"))
SECONDS = float(os.environ.get("HUMMOCK_READERS_SECONDS", "20"))
READS_A_SECOND = 0.5
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
url, seconds, rate = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
with stream.connect(url, role="reader") as reader:
    print("reads", flush=True)
    sys.stdin.readline()
    cpu, begun, last, took = time.process_time(), time.monotonic(), 0, []
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


def test_rate(benchmark: Any, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    with stream.connect(url, create=True) as db:
        db.sql("""CREATE SOURCE bid (auction BIGINT, bidder BIGINT, price BIGINT)
                  WITH (connector = 'nexmark', events = '2000000000', splits = '2')""")
        db.sql("""CREATE MATERIALIZED VIEW per_auction AS
                  SELECT auction % 1000 AS auction, COUNT(*) AS bids, MAX(price) AS highest FROM bid GROUP BY 1""")
        db.sql("CREATE MATERIALIZED VIEW whole AS SELECT SUM(bids) AS bids FROM per_auction")
        time.sleep(3)
        alone = rate(db)
        readers = [started(READER, url, SECONDS, READS_A_SECOND) for _ in range(READERS)]
        for each in readers:
            assert each.stdout is not None and each.stdout.readline() == "reads\n"
        found: list[dict[str, Any]] = []
        threads = [threading.Thread(target=lambda each=each: found.append(json.loads(each.communicate("\n")[0])))
                   for each in readers]
        for thread in threads:
            thread.start()
        beside = benchmark.pedantic(rate, (db,), rounds=1)
        for thread in threads:
            thread.join()
        leases = [key for key, _ in db._playground.meta_store.list("hummock/lease/")]
    took = [each for one in found for each in one["took"]]
    share = sum(one["cpu"] for one in found) / SECONDS / (os.cpu_count() or 1)
    benchmark.extra_info.update(
        alone=round(alone), beside=round(beside), ratio=round(beside / alone, 3), reads=len(took),
        readers_share=round(share, 3), leases=len(leases), **percentiles(took))
    resident = peak_memory_bytes() >> 20
    print("\nwriter and readers:", benchmark.extra_info, resident, "MiB")


def rate(db: stream.Session) -> float:
    """Rows a second that the view takes within SECONDS."""
    def rows() -> int:
        return sum(map(int, db.source_offsets("per_auction").values()))

    first, begun = rows(), time.monotonic()
    time.sleep(SECONDS)
    return (rows() - first) / (time.monotonic() - begun)
