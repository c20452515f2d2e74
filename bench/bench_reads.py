"""Reads where bench_storage.py does not look: overlapping runs, growing data, and a cache that holds a tenth.

    python -m bench.bench_reads [rows ...]            default: 1000000 10000000
    python -m bench.bench_reads growth [rows ...]     default: 1000000 10000000 50000000

Every line is by CPU seconds of the whole process, the median of five rounds, beside RocksDB at the same cache, block
size and codec. With a cache of a tenth each round asks for other keys, uniform ones, after both engines' files were
read once in their order, so that the page cache has them. RocksDB counts hits only at a price, so its hit rate is
that of another store, which is filled and asked in the same way beside the clock.

`growth` is ours alone, warm, at several sizes: what a call costs and how many times that of the first size, beside
what one dependent read of memory costs among as many bytes as the filters have (a miss reads one line there), and
among as many as the rows have.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from bench.datasets import SEED, KeyValueRows, key_value_rows, keys, values
from bench.memory_chase import chase_ns
from bench.peers import Engine, Hummock, RocksDb

ROW_BYTES, FILTER_BITS, PROBES = 116, 10, 100_000
BATCH_ROWS, CALL_ROWS, SHORT_ROWS, SHORT_SCANS = 10_000, 1_000, 100, 5_000
COLD_GETS = 16_000
ROUNDS = 5
PART_ROWS, RUN_ROWS = 5_000_000, 100_000        # of a commit, and of a batch, where rows come in the order of keys
BLOCK_ROWS = 100                                # fewer than a block has


class HummockRuns(Hummock):
    """Left in as many overlapping runs as there were commits."""

    name = "hummock, 8 runs"

    def __init__(self, folder: Path, cache_bytes: int):
        super().__init__(folder, cache_bytes, compaction=False)

    def ingest(self, batches) -> None:  # type: ignore[no-untyped-def]
        batches = list(batches)
        for part in range(8):
            super().ingest(batches[part::8])


def rate(work: Callable[[], object], count: int) -> float:
    """How many of `count` a CPU second does, after one round for warmth."""
    seconds = []
    for _ in range(ROUNDS + 1):
        begun = time.process_time()
        work()
        seconds.append(time.process_time() - begun)
    return count / median(seconds[1:])


def warm(engine: Engine, data: KeyValueRows) -> Iterator[tuple[str, float]]:
    yield from asked(engine, data.present, data.absent)
    yield "scan to Arrow", rate(engine.scan, data.rows)


def asked(engine: Engine, present: pa.BinaryArray, absent: pa.BinaryArray) -> Iterator[tuple[str, float]]:
    hits, misses = present.to_pylist(), absent.to_pylist()
    calls = [present[start : start + CALL_ROWS] for start in range(0, len(hits), CALL_ROWS)]
    short = calls[: SHORT_SCANS // CALL_ROWS]
    yield "get hit", rate(lambda: engine.get(hits), len(hits))
    yield "get miss", rate(lambda: engine.get(misses), len(misses))
    yield f"get_many({CALL_ROWS:,})", rate(lambda: [engine.get_many(call) for call in calls], len(hits))
    yield f"{SHORT_ROWS}-row scans", rate(lambda: [engine.scan_short(call, SHORT_ROWS) for call in short], SHORT_SCANS)


def cold_rounds(data: KeyValueRows) -> Iterator[pa.BinaryArray]:
    """Other keys for each round."""
    return (data.present[start : start + COLD_GETS] for start in range(0, (ROUNDS + 1) * COLD_GETS, COLD_GETS))


def get_each(engine: Engine, keys: pa.BinaryArray) -> None:
    engine.get(keys.to_pylist())


def get_by_calls(engine: Engine, keys: pa.BinaryArray) -> None:
    for start in range(0, len(keys), CALL_ROWS):
        engine.get_many(keys[start : start + CALL_ROWS])


COLD = {"get, cache of a tenth": get_each, "get_many, cache of a tenth": get_by_calls}


def cold(engine: Engine, data: KeyValueRows) -> Iterator[tuple[str, float]]:
    for name, ask in COLD.items():
        rounds = cold_rounds(data)
        yield name, rate(lambda ask=ask, rounds=rounds: ask(engine, next(rounds)), COLD_GETS)  # type: ignore[misc]


def hit_rates(engine: Engine, data: KeyValueRows) -> Iterator[tuple[str, float]]:
    for name, ask in COLD.items():
        for number, part in enumerate(cold_rounds(data)):
            if number == 1:                         # the first fills the cache
                hits, misses = engine.lookups()
            ask(engine, part)
        more_hits, more_misses = engine.lookups()
        yield name, (more_hits - hits) / (more_hits - hits + more_misses - misses)


def read_in_order(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                while file.read(1 << 20):
                    pass


def measured(
    kind: Callable[[Path, int], Engine], data: KeyValueRows, cache_bytes: int, what: Callable, compact: bool = True
) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        engine = kind(Path(folder) / "db", cache_bytes)
        engine.ingest(data.batches)
        if compact:
            engine.compact()
        read_in_order(Path(folder))
        found = dict(what(engine, data))
        engine.close()
    return found


def show(title: str, ours: dict[str, float], theirs: dict[str, float], hits: Sequence[dict[str, float]] = ()) -> None:
    print(title)
    for name, value in ours.items():
        other = theirs[name]
        told = "   hit rates " + " and ".join(f"{of[name]:.1%}" for of in hits) if hits else ""
        print(f"  {name:28} {value / 1e6:9.3f} M/s   RocksDB {other / 1e6:9.3f} M/s   {value / other:5.2f}x{told}")


def grown(rows: int) -> dict[str, float]:
    """The rates of a store of so many rows, ingested in the order of their keys, all of it in the cache."""
    ids = np.arange(rows, dtype=np.uint64) * 2
    rng = np.random.default_rng(SEED)
    probes = rng.choice(ids, size=min(rows, PROBES), replace=False)
    with tempfile.TemporaryDirectory() as folder:
        engine = Hummock(Path(folder) / "db", 2 * rows * ROW_BYTES)
        for part in range(0, rows, PART_ROWS):
            ends = range(part, min(part + PART_ROWS, rows), RUN_ROWS)
            engine.ingest((keys(ids[at : at + RUN_ROWS]), values(len(ids[at : at + RUN_ROWS]), rng)) for at in ends)
        engine.compact()
        for _ in range(2):
            for at in range(0, rows, BLOCK_ROWS * RUN_ROWS):
                engine.get_many(keys(ids[at : at + BLOCK_ROWS * RUN_ROWS : BLOCK_ROWS]))
        found = dict(asked(engine, keys(probes), keys(probes + 1)))
        engine.close()
    return found


def growth(sizes: list[int]) -> None:
    print(f"{'all in the cache, compacted':40}" + "".join(f"{rows:>24,} rows" for rows in sizes))
    memory = {"a dependent read among the filters": chase_ns([rows * FILTER_BITS // 8 for rows in sizes]),
              "a dependent read among the rows": chase_ns([rows * ROW_BYTES for rows in sizes])}
    each = [grown(rows) for rows in sizes]
    for name, costs in (memory | {name: [1e9 / of[name] for of in each] for name in each[0]}).items():
        print(f"{name:40}" + "".join(f"{cost:17.0f} ns {cost / costs[0]:7.2f}x" for cost in costs), flush=True)


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["growth"]:
        growth([int(size) for size in arguments[1:]] or [1_000_000, 10_000_000, 50_000_000])
    else:
        beside_rocksdb([int(size) for size in arguments] or [1_000_000, 10_000_000])


def beside_rocksdb(sizes: list[int]) -> None:
    print(f"hummock: {Hummock.settings}\nRocksDB: {RocksDb.settings}")
    for rows in sizes:
        data = key_value_rows(rows, BATCH_ROWS, shuffled=True)
        whole, tenth = 2 * rows * ROW_BYTES, rows * ROW_BYTES // 10
        theirs = measured(RocksDb, data, whole, warm)
        show(f"{rows:,} rows, compacted, all in the cache", measured(Hummock, data, whole, warm), theirs)
        show(f"{rows:,} rows in 8 overlapping runs", measured(HummockRuns, data, whole, warm, False), theirs)
        show(f"{rows:,} rows, compacted, cache of {tenth >> 20} MiB",
             measured(Hummock, data, tenth, cold), measured(RocksDb, data, tenth, cold),
             [measured(kind, data, tenth, hit_rates) for kind in (Hummock, partial(RocksDb, counts=True))])


if __name__ == "__main__":
    main(sys.argv[1:])
