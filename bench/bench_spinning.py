"""Compaction, scan to Arrow and sync, alone and beside a thread that only runs Python, by the clock on the wall.

`keeps`: the share of its speed that each keeps, medians of the same run, at a switch interval of 0.5 ms and at Python's
own 5 ms. The thread takes a core too: a process that spins shows what is lost to that alone. Wants a quiet machine.
"""

from __future__ import annotations

import itertools
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hummock
from bench.bench_compaction import ROW_BYTES, SHAPES, Runs
from bench.datasets import SEED, keys, values
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import Epoch, EpochGenerator
from hummock.opening import MaintainedStorage

ROWS = int(os.environ.get("HUMMOCK_SPINNING_ROWS", "3000000"))      # of each run: 700 MB, files of 64 MB
BATCH_ROWS = 50_000
SCANS = 8                       # of a round: one is over before another thread has had its turn
ROUNDS, WARM_ROUNDS = 5, 2
BESIDE = ("nothing", "process", "0.5 ms", "5 ms")


@contextmanager
def spinning(interval_seconds: float) -> Iterator[None]:
    """A thread that only runs Python, at that switch interval."""
    done = threading.Event()

    def spin() -> None:
        while not done.is_set():
            sum(range(100))

    before = sys.getswitchinterval()
    sys.setswitchinterval(interval_seconds)
    thread = threading.Thread(target=spin)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(before)


@contextmanager
def spinning_process() -> Iterator[None]:
    code = "print(flush=True)\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield
    finally:
        process.kill()
        process.communicate()


def beside(what: str) -> Any:
    if what == "nothing":
        return nullcontext()
    return spinning_process() if what == "process" else spinning(float(what.split()[0]) / 1_000)


def measure(benchmark: Any, name: str, rows: int, work: Callable[[], float]) -> None:
    """`work` gives the seconds that count. The benchmark's own figure is the round beside nothing."""
    taken: dict[str, list[float]] = {what: [] for what in BESIDE}
    for number in range(WARM_ROUNDS + ROUNDS):          # in turns, so that a slow minute of the machine meets all
        for what in BESIDE if number >= WARM_ROUNDS else BESIDE[:1]:
            with beside(what):
                taken[what].append(work())
    seconds = {what: statistics.median(each[-ROUNDS:]) for what, each in taken.items()}
    benchmark.group = f"beside a busy thread: {name}"
    benchmark.pedantic(work, rounds=1)
    keeps = {what: round(seconds["nothing"] / seconds[what], 3) for what in BESIDE[1:]}
    benchmark.extra_info.update(engine="hummock", rows=rows, keeps=keeps, mega_rows_per_second={
        what: round(rows / taken / 1e6, 3) for what, taken in seconds.items()})
    print(f"\n{name}: {rows / seconds['nothing'] / 1e6:.2f} M rows/s alone; keeps "
          + ", ".join(f"{share:.0%} beside {what}" for what, share in keeps.items()))


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


@pytest.mark.parametrize("shape", SHAPES)
def test_compaction(benchmark: Any, shape: str, tmp_path: Path) -> None:
    runs = Runs(tmp_path, shape, rows=ROWS)

    def compact() -> float:
        seconds = timed(runs.compact)
        runs.remove_outputs()
        return seconds

    measure(benchmark, f"compaction {shape} of {2 * ROWS * ROW_BYTES >> 20} MiB", 2 * ROWS, compact)


def batches() -> list[WriteBatch]:
    rng = np.random.default_rng(SEED)
    order = rng.permutation(ROWS).astype(np.uint64) * 2
    return [WriteBatch(keys(part := np.sort(order[at:at + BATCH_ROWS])), values(len(part), rng))
            for at in range(0, ROWS, BATCH_ROWS)]


def opened(folder: Path, **options: Any) -> MaintainedStorage:
    """A writer that compacts nothing and holds all rows until a sync is requested."""
    return hummock.open(folder.as_uri(), role="writer", compaction=False, shared_buffer_bytes=4 << 30, **options)


def ingested(store: MaintainedStorage, written: list[WriteBatch]) -> Epoch:
    epoch = EpochGenerator().next()
    for batch in written:
        store.ingest_batch(batch, epoch)
    return epoch


def test_sync(benchmark: Any, tmp_path: Path) -> None:
    """From the call to durable and committed; batches in random order, so it merges too."""
    written, numbers = batches(), itertools.count()

    def sync() -> float:
        folder = tmp_path / f"{next(numbers)}"
        store = opened(folder)
        epoch = ingested(store, written)
        seconds = timed(lambda: store.commit(epoch))
        store.close()
        shutil.rmtree(folder)
        return seconds

    measure(benchmark, f"sync of {ROWS * ROW_BYTES >> 20} MiB", ROWS, sync)


@pytest.mark.parametrize("cache", ["warm", "too small"])
def test_scan_to_arrow(benchmark: Any, cache: str, tmp_path: Path) -> None:
    """One sorted run; with a cache of all blocks, or one of a few, so that files are read and decoded."""
    store = opened(tmp_path, block_cache_bytes=(1 << 30) if cache == "warm" else (16 << 20))
    epoch = ingested(store, batches())
    store.commit(epoch)

    def scan() -> float:
        def whole() -> None:
            for _ in range(SCANS):
                with store.scan(hummock.KeyRange.table(1), epoch) as rows:
                    assert rows.to_arrow().num_rows == ROWS

        return timed(whole)

    with store.scan(hummock.KeyRange.table(1), epoch) as rows:
        probes = rows.to_arrow()["key"]
    store.get_many(probes.combine_chunks(), epoch)      # scans pass the cache by, gets fill it
    measure(benchmark, f"scan, cache {cache}", SCANS * ROWS, scan)
    store.close()
