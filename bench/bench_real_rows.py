"""The store beside RocksDB on rows as tables have them: 256 vnodes, keys (bigint, varchar), values of 20 to 400 bytes,
ten epochs, deletes; by wall, with CPU microseconds beside it in `extra_info`.

Each round asks for other keys, of a store that has rested for REST_SECONDS after the last epoch. 1,000,000 operations
unless HUMMOCK_REAL_ROWS says otherwise. Both engines have 64 KB blocks, lz4, a bloom filter of 10 bits, a block cache
of CACHE_BYTES, and compact beside all that is measured. Where fresh memory is measured, free pages are backed before.
`limit in C` (limits.py) reads one run of the rows that are left, in memory: with lz4 to scan it, without to look up.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bench import limits
from bench.datasets import SEED, RealRows, real_keys, real_rows, real_values
from bench.latencies import milliseconds
from bench.peers import Engine, engine_class

ROWS = int(os.environ.get("HUMMOCK_REAL_ROWS", "1000000"))
ROUNDS, ROUND_KEYS, CALL_KEYS = 5, 20_000, 1_000
SHORT_SCANS, SHORT_ROWS = 2_000, 100
REST_SECONDS = 3.0 + ROWS / 1e6     # in which a store may merge what is there
CACHE_SHARE = 10
SYNCED_ROWS = 100_000
FIRST_GETS = 3_000
INGEST_SECONDS = float(os.environ.get("HUMMOCK_REAL_SECONDS", "10"))
INGEST_ROWS, INGEST_BATCHES = 2_000, 50
NAMES = ["hummock", "rocksdb"]


@pytest.fixture(scope="module")
def data() -> RealRows:
    return real_rows(ROWS)


@pytest.fixture(scope="module", params=NAMES)
def store(
    request: pytest.FixtureRequest, data: RealRows, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Engine, Path]]:
    kind, folder = engine_class(request.param), tmp_path_factory.mktemp(request.param) / "db"
    engine = kind(folder)
    for epoch in data.epochs:
        engine.ingest([epoch])
    time.sleep(REST_SECONDS)
    yield engine, folder
    engine.close()


@pytest.fixture(scope="module")
def left(data: RealRows) -> pa.Table:
    """The newest version of each key that is not deleted, by key."""
    versions = pa.concat_tables([pa.table([*columns, pa.repeat(epoch, len(columns[0]))], ["key", "value", "epoch"])
                                 for epoch, columns in enumerate(data.epochs)])
    ordered = versions.sort_by([("key", "ascending"), ("epoch", "descending")]).combine_chunks()
    found = ordered["key"].combine_chunks()
    is_newest = np.concatenate([[True], pc.not_equal(found[1:], found[:-1]).to_numpy(zero_copy_only=False)])
    return ordered.filter(pc.and_(pa.array(is_newest), ordered["value"].is_valid())).select([0, 1]).combine_chunks()


def one_run(data: RealRows, codec: str) -> limits.Stored:
    """All epochs, compacted by the limit itself."""
    return limits.Compaction([limits.stored(epoch, codec) for epoch in reversed(data.epochs)], codec).run()


def noted(benchmark: Any, engine: Engine | type[limits.Limit], group: str, of_round: int, work: Callable[[int], object],
          rounds: int = ROUNDS, prepare: Callable[[], object] = lambda: None) -> None:
    """Measures `work(number of the round)`, of which each does so many. `prepare`: before each, not measured."""
    spent: list[float] = []
    numbers = iter(range(rounds + 1))

    def once() -> None:
        begun = time.process_time()
        work(next(numbers))
        spent.append((time.process_time() - begun) / of_round * 1e6)

    benchmark.group = group
    benchmark.pedantic(once, setup=prepare, rounds=rounds, warmup_rounds=1 if rounds > 1 else 0)
    benchmark.extra_info.update(engine=engine.name, rows=of_round, settings=engine.settings,
                                cpu_us=round(float(np.median(spent)), 3))


def fresh(keys: pa.BinaryArray, number: int, count: int = ROUND_KEYS) -> pa.BinaryArray:
    first = number * count % (len(keys) - count)
    return keys[first : first + count]


@pytest.mark.parametrize("kind", ["hit", "miss"])
def test_get(benchmark: Any, store: tuple[Engine, Path], data: RealRows, kind: str) -> None:
    engine, keys = store[0], data.present if kind == "hit" else data.absent
    asked = [fresh(keys, number).to_pylist() for number in range(ROUNDS + 1)]
    expected = ROUND_KEYS if kind == "hit" else 0

    def work(number: int) -> None:
        assert engine.get(asked[number]) == expected

    engine.get(keys.to_pylist()[: 5 * ROUND_KEYS])          # so that blocks are in the cache
    noted(benchmark, engine, f"get {kind}", ROUND_KEYS, work)


def test_get_many(benchmark: Any, store: tuple[Engine, Path], data: RealRows) -> None:
    engine = store[0]

    def work(number: int) -> None:
        keys = fresh(data.present, number + ROUNDS)
        for first in range(0, ROUND_KEYS, CALL_KEYS):
            assert engine.get_many(keys[first : first + CALL_KEYS]).null_count == 0

    noted(benchmark, engine, "get_many of 1,000", ROUND_KEYS, work)


def test_get_many_limit(benchmark: Any, data: RealRows, left: pa.Table) -> None:
    """`miss_ns`: of a key that is not there, of which nearly all end at the filter."""
    lookup = limits.Lookup(one_run(data, "none"), CALL_KEYS, CALL_KEYS * 512)

    def calls(keys: pa.BinaryArray) -> list[limits.Rows]:
        return [limits.Rows.of(part, part)
                for part in (keys[first : first + CALL_KEYS] for first in range(0, ROUND_KEYS, CALL_KEYS))]

    asked = [calls(fresh(data.present, number + ROUNDS)) for number in range(ROUNDS + 1)]
    absent = calls(data.absent[:ROUND_KEYS])
    keys = data.present[:CALL_KEYS]
    assert lookup.run(limits.Rows.of(keys, keys)) == CALL_KEYS
    assert lookup.out.column("value", CALL_KEYS).equals(
        left["value"].take(pc.index_in(keys, left["key"])).combine_chunks())

    def work(number: int) -> None:
        assert sum(map(lookup.run, asked[number])) == ROUND_KEYS

    noted(benchmark, limits.Limit, "get_many of 1,000", ROUND_KEYS, work)
    begun = time.perf_counter()
    assert sum(map(lookup.run, absent)) == 0
    benchmark.extra_info["miss_ns"] = round((time.perf_counter() - begun) / ROUND_KEYS * 1e9, 1)
    print(f"\n{limits.Limit.name}: {benchmark.extra_info['miss_ns']} ns a key that is not there")


def test_scan(benchmark: Any, store: tuple[Engine, Path], data: RealRows) -> None:
    engine = store[0]

    def work(number: int) -> None:
        assert engine.scan().num_rows == len(data.present)

    noted(benchmark, engine, "scan to Arrow", len(data.present), work)


@pytest.mark.parametrize("codec", ["lz4", "none"])
def test_scan_limit(benchmark: Any, data: RealRows, left: pa.Table, codec: str) -> None:
    sizes = (len(limits.binary_parts(left[name].combine_chunks())[1]) for name in ("key", "value"))
    scan = limits.Scan(one_run(data, codec), codec, *sizes)
    assert scan.run() == left.num_rows
    assert all(scan.out.column(name, left.num_rows).equals(left[name].combine_chunks()) for name in ("key", "value"))
    noted(benchmark, limits.Limit, "scan to Arrow", left.num_rows, lambda number: scan.run())
    if codec == "none":
        benchmark.extra_info["engine"] = "limit, no lz4"


def test_scan_to_fresh_memory(benchmark: Any, store: tuple[Engine, Path], data: RealRows) -> None:
    """Each result is kept, so that the next one is in memory that the process has not used before."""
    engine = store[0]
    kept: list[pa.Table] = []

    def work(number: int) -> None:
        kept.append(engine.scan())
        assert kept[-1].num_rows == len(data.present)

    noted(benchmark, engine, "scan to Arrow, fresh memory", len(data.present), work,
          prepare=lambda: back_free_pages(4 * data.bytes))


def test_pairs(benchmark: Any, store: tuple[Engine, Path], data: RealRows) -> None:
    engine = store[0]

    def work(number: int) -> None:
        assert sum(1 for _ in engine.pairs(b"", ROWS)) == len(data.present)

    noted(benchmark, engine, "scan to Python pairs", len(data.present), work)


def test_short_scans(benchmark: Any, store: tuple[Engine, Path], data: RealRows) -> None:
    """One by one; microseconds are those of a scan."""
    engine = store[0]
    asked = [fresh(data.present, number, SHORT_SCANS).to_pylist() for number in range(ROUNDS + 1)]

    def work(number: int) -> None:
        for start in asked[number]:
            list(engine.pairs(start, SHORT_ROWS))

    noted(benchmark, engine, f"scans of {SHORT_ROWS} rows as pairs", SHORT_SCANS, work)


@pytest.mark.timeout(INGEST_SECONDS + 300)
@pytest.mark.usefixtures("prepared_process")
@pytest.mark.parametrize("asked", ["get", "scan"])
def test_reads_beside_ingest(benchmark: Any, store: tuple[Engine, Path], data: RealRows, asked: str) -> None:
    """Single gets, or scans of SHORT_ROWS rows as pairs, by a thread while another commits INGEST_ROWS rows at a time:
    milliseconds of both, by percentile."""
    engine, rng = store[0], np.random.default_rng(SEED + 1)
    parts = []
    for _ in range(INGEST_BATCHES):
        keys = real_keys(np.unique(rng.integers(ROWS, 1 << 40, INGEST_ROWS) * 2))
        keys = keys.take(pc.sort_indices(keys))
        parts.append((keys, real_values(len(keys), rng, np.zeros(len(keys), bool))))
    probes = data.present.to_pylist()[:100_000]
    answers, commits = array("f"), array("f")      # seconds
    is_over = threading.Event()

    def ask() -> None:
        number = 0
        while not is_over.is_set():
            key = probes[number % len(probes)]
            begun = time.perf_counter()
            found = engine.get([key]) if asked == "get" else len(list(engine.pairs(key, SHORT_ROWS)))
            answers.append(time.perf_counter() - begun)
            assert found >= 1
            number += 1

    def ingest() -> None:
        until = time.monotonic() + INGEST_SECONDS
        while time.monotonic() < until:
            begun = time.perf_counter()
            engine.ingest([parts[len(commits) % INGEST_BATCHES]])
            commits.append(time.perf_counter() - begun)

    benchmark.group = f"commits beside {asked}s"
    asking = threading.Thread(target=ask)
    asking.start()
    try:
        benchmark.pedantic(ingest, rounds=1)
    finally:
        is_over.set()
        asking.join()
    found = milliseconds(**{asked: answers}, commit=commits)
    benchmark.extra_info.update(engine=engine.name, rows=len(commits) * INGEST_ROWS, ms=found)
    benchmark.extra_info[f"{asked}s"] = len(answers)
    print(f"\n{engine.name}: {len(commits)} commits, {len(answers)} {asked}s, ms: {found}")


@pytest.mark.parametrize("pages", ["warm", "cold"])
@pytest.mark.parametrize("name", NAMES)
def test_first_gets(benchmark: Any, data: RealRows, tmp_path: Path, name: str, pages: str) -> None:
    """After opening, with nothing in the block cache; `cold`: nor in the page cache of the system."""
    kind, folder = engine_class(name), tmp_path / "db"
    engine = kind(folder)
    for epoch in data.epochs:
        engine.ingest([epoch])
    engine.compact()
    engine.close()
    if pages == "cold":
        forget_pages(folder)
    engine, keys = kind(folder), data.present[:FIRST_GETS].to_pylist()
    if name == "hummock":
        engine.epoch = engine.store.committed_epoch         # type: ignore[attr-defined]

    def work(number: int) -> None:
        assert engine.get(keys) == FIRST_GETS

    noted(benchmark, engine, f"first gets, {pages} pages", FIRST_GETS, work, rounds=1,
          prepare=lambda: back_free_pages(4 * data.bytes))
    engine.close()


@pytest.mark.parametrize("how", ["one by one", "many"])
@pytest.mark.parametrize("name", NAMES)
def test_gets_by_a_small_cache(benchmark: Any, data: RealRows, tmp_path: Path, name: str, how: str) -> None:
    """With a block cache of a tenth of the rows; the system's page cache has all files."""
    engine = engine_class(name)(tmp_path / "db", cache_bytes=data.bytes // CACHE_SHARE)
    for epoch in data.epochs:
        engine.ingest([epoch])
    engine.compact()
    asked = [fresh(data.present, number) for number in range(ROUNDS + 1)]
    keys = [each.to_pylist() for each in asked]

    def one_by_one(number: int) -> None:
        assert engine.get(keys[number]) == ROUND_KEYS

    def many(number: int) -> None:
        for first in range(0, ROUND_KEYS, CALL_KEYS):
            assert engine.get_many(asked[number][first : first + CALL_KEYS]).null_count == 0

    engine.get(data.present.to_pylist()[: 5 * ROUND_KEYS])
    noted(benchmark, engine, f"gets by a small cache, {how}", ROUND_KEYS, many if how == "many" else one_by_one)
    engine.close()


@pytest.mark.parametrize("name", NAMES)
def test_ingest(benchmark: Any, data: RealRows, tmp_path: Path, name: str) -> None:
    """Durable each SYNCED_ROWS rows, with compaction beside it; `settled_s`: until nothing is due any more."""
    engine = engine_class(name)(tmp_path / "db")
    parts = [(keys[at : at + SYNCED_ROWS], values[at : at + SYNCED_ROWS])
             for keys, values in data.epochs for at in range(0, len(keys), SYNCED_ROWS)]
    back_free_pages(4 * data.bytes)
    begun = time.perf_counter()

    def work(number: int) -> None:
        for part in parts:
            engine.ingest([part])

    noted(benchmark, engine, "ingest", ROWS, work, rounds=1)
    if name == "hummock":
        engine.store.wait_compacted(600)                    # type: ignore[attr-defined]
    benchmark.extra_info["settled_s"] = round(time.perf_counter() - begun, 2)
    engine.close()


@pytest.mark.parametrize("name", NAMES)
def test_space_at_rest(benchmark: Any, data: RealRows, tmp_path: Path, name: str) -> None:
    """Bytes on disk for each byte of the rows that are left, compacted; the clock has the ingest and the compaction.

    `write_amplification`: bytes that the process passed to the system's write calls meanwhile, logs included, for each
    byte of the keys and values that were put in.
    """
    kind, folder = engine_class(name), tmp_path / "db"
    put = sum(len(limits.binary_parts(column)[1]) for epoch in data.epochs for column in epoch)
    engine, before = kind(folder), written_bytes()

    def work(number: int) -> None:
        for epoch in data.epochs:
            engine.ingest([epoch])
        engine.compact()

    noted(benchmark, engine, "ten epochs, and compaction", ROWS, work, rounds=1)
    if name == "hummock":
        engine.store.vacuum()                               # type: ignore[attr-defined]
    amplification = (written_bytes() - before) / put
    stored = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    engine.close()
    benchmark.extra_info.update(space=round(stored / data.bytes, 3), write_amplification=round(amplification, 3))
    print(f"\n{name}: {stored / data.bytes:.2f} bytes on disk a byte of rows, {amplification:.2f} written a byte put")


def written_bytes() -> int:
    """`wchar` of this process: unlike `write_bytes`, it also counts what is written to a tmpfs, or deleted at once."""
    return int(Path("/proc/self/io").read_text().partition("wchar: ")[2].split()[0])


def back_free_pages(size: int) -> None:
    """Free pages of the system that the host of a virtual machine has backed with memory: one that takes them back
    after seconds needs milliseconds for each two megabytes, whichever engine asks."""
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as pages:
        pages.madvise(mmap.MADV_HUGEPAGE)
        for at in range(0, size, mmap.PAGESIZE):
            pages[at] = 1


def forget_pages(folder: Path) -> None:
    """Drops the files' pages from the system's cache."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
