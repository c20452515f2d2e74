"""Reads where bench_storage.py does not look: overlapping runs, growing data, and a cache that holds a tenth.

    python -m bench.bench_reads [rows ...]            default: 1000000 10000000
    python -m bench.bench_reads fill FOLDER [rows ...]
    python -m bench.bench_reads growth FOLDER [rows ...]    default: 1000000 10000000 50000000

Every line is by CPU seconds of the whole process, the median of five rounds, beside RocksDB at the same cache, block
size and codec. With a cache of a tenth the two take turns, and each round asks for other keys, uniform ones, after
both engines' files were read once in their order, so that the page cache has them. RocksDB counts hits only at a
price, so its hit rate is that of another store, which is filled and asked in the same way beside the clock.

`growth` is ours alone, warm, at several sizes that take turns, in stores that `fill` made: what a call costs and how
many times that of the first size, beside what one dependent read of memory costs among as many bytes as the filters
have (a miss reads one line there), and among as many as the rows have.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
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
BLOCK_ROWS = 400                                # fewer than a block has


class HummockRuns(Hummock):
    """Left in as many overlapping runs as there were commits."""

    name = "hummock, 8 runs"

    def __init__(self, folder: Path, cache_bytes: int):
        super().__init__(folder, cache_bytes, compaction=False)

    def ingest(self, batches) -> None:  # type: ignore[no-untyped-def]
        batches = list(batches)
        for part in range(8):
            super().ingest(batches[part::8])


Work = tuple[str, Callable[[], object], int]    # what it is called, a round of it, what a round does of it


def rates(works: Sequence[Work]) -> list[tuple[str, float]]:
    """How many of each a CPU second does; they take turns, after one round for warmth."""
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(ROUNDS + 1):
        for (_, work, _), spent in zip(works, seconds, strict=True):
            begun = time.process_time()
            work()
            spent.append(time.process_time() - begun)
    return [(name, count / median(spent[1:])) for (name, _, count), spent in zip(works, seconds, strict=True)]


def warm(engine: Engine, data: KeyValueRows) -> Iterator[tuple[str, float]]:
    for work in [*asked(engine, data.present, data.absent), ("scan to Arrow", engine.scan, data.rows)]:
        yield from rates([work])


def asked(engine: Engine, present: pa.BinaryArray, absent: pa.BinaryArray) -> list[Work]:
    hits, misses = present.to_pylist(), absent.to_pylist()
    calls = [present[start : start + CALL_ROWS] for start in range(0, len(hits), CALL_ROWS)]
    short = calls[: SHORT_SCANS // CALL_ROWS]
    return [
        ("get hit", lambda: engine.get(hits), len(hits)),
        ("get miss", lambda: engine.get(misses), len(misses)),
        (f"get_many({CALL_ROWS:,})", lambda: [engine.get_many(call) for call in calls], len(hits)),
        (f"{SHORT_ROWS}-row scans", lambda: [engine.scan_short(call, SHORT_ROWS) for call in short], SHORT_SCANS),
    ]


def cold_rounds(data: KeyValueRows) -> Iterator[pa.BinaryArray]:
    """Other keys for each round."""
    return (data.present[start : start + COLD_GETS] for start in range(0, (ROUNDS + 1) * COLD_GETS, COLD_GETS))


def get_each(engine: Engine, keys: pa.BinaryArray) -> None:
    engine.get(keys.to_pylist())


def get_by_calls(engine: Engine, keys: pa.BinaryArray) -> None:
    for start in range(0, len(keys), CALL_ROWS):
        engine.get_many(keys[start : start + CALL_ROWS])


COLD = {"get, cache of a tenth": get_each, "get_many, cache of a tenth": get_by_calls}


def cold(engines: Sequence[Engine], data: KeyValueRows) -> list[dict[str, float]]:
    """The rates of each engine, which take turns."""
    found: list[dict[str, float]] = [{} for _ in engines]
    for name, ask in COLD.items():
        works = [(name, partial(ask_next, ask, engine, cold_rounds(data)), COLD_GETS) for engine in engines]
        for of_one, (_, value) in zip(found, rates(works), strict=True):
            of_one[name] = value
    return found


def ask_next(ask: Callable, engine: Engine, rounds: Iterator[pa.BinaryArray]) -> None:
    ask(engine, next(rounds))


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
        engine = filled(kind, Path(folder), data, cache_bytes, compact)
        found = dict(what(engine, data))
        engine.close()
    return found


def filled(kind: Callable[[Path, int], Engine], folder: Path, data: KeyValueRows, cache_bytes: int,
           compact: bool = True) -> Engine:
    engine = kind(folder / "db", cache_bytes)
    engine.ingest(data.batches)
    if compact:
        engine.compact()
    read_in_order(folder)
    return engine


def in_turns(data: KeyValueRows, cache_bytes: int) -> list[dict[str, float]]:
    """Ours and RocksDB's rates from a cache too small for the rows."""
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
        engines = [filled(Hummock, Path(ours), data, cache_bytes), filled(RocksDb, Path(theirs), data, cache_bytes)]
        found = cold(engines, data)
        for engine in engines:
            engine.close()
    return found


def show(title: str, ours: dict[str, float], theirs: dict[str, float], hits: Sequence[dict[str, float]] = ()) -> None:
    print(title)
    for name, value in ours.items():
        other = theirs[name]
        rates = "   hit rates " + " and ".join(f"{of[name]:.1%}" for of in hits) if hits else ""
        print(f"  {name:28} {value / 1e6:9.3f} M/s   RocksDB {other / 1e6:9.3f} M/s   {value / other:5.2f}x{rates}")


def fill(folder: Path, sizes: list[int]) -> None:
    """Stores of so many rows, ingested in the order of their keys and compacted."""
    for rows in sizes:
        rng = np.random.default_rng(SEED)
        engine = Hummock(folder / str(rows))
        for part in range(0, rows, PART_ROWS):
            engine.ingest((keys(ids), values(len(ids), rng)) for ids in even_numbers(part, min(part + PART_ROWS, rows)))
        engine.compact()
        engine.close()


def even_numbers(first: int, end: int, step: int = 1) -> Iterable[np.ndarray]:
    """Every `step`th of the ids from number `first` up to `end`, in arrays."""
    for at in range(first, end, step * RUN_ROWS):
        yield np.arange(at, min(at + step * RUN_ROWS, end), step, dtype=np.uint64) * 2


def opened(folder: Path, rows: int) -> Hummock:
    """The store with all its blocks in the cache."""
    engine = Hummock(folder / str(rows), 2 * rows * ROW_BYTES)
    engine.epoch = engine.store.committed_epoch
    for ids in even_numbers(0, rows, BLOCK_ROWS):
        engine.get_many(keys(ids))
    return engine


def growth(folder: Path, sizes: list[int]) -> None:
    print(f"{'all in the cache, compacted':40}" + "".join(f"{rows:>24,} rows" for rows in sizes), flush=True)
    memory = {"a dependent read among the filters": chase_ns([rows * FILTER_BITS // 8 for rows in sizes]),
              "a dependent read among the rows": chase_ns([rows * ROW_BYTES for rows in sizes])}
    engines = [opened(folder, rows) for rows in sizes]
    rng = np.random.default_rng(SEED)
    probes = [2 * rng.integers(0, rows, PROBES, np.uint64) for rows in sizes]
    works = [asked(engine, keys(ids), keys(ids + 1)) for engine, ids in zip(engines, probes, strict=True)]
    for name, costs in memory.items():
        show_growth(name, costs)
    for same in zip(*works, strict=True):
        found = rates(same)
        show_growth(found[0][0], [1e9 / value for _, value in found])
    for engine in engines:
        engine.close()


def show_growth(name: str, costs: list[float]) -> None:
    print(f"{name:40}" + "".join(f"{cost:17.0f} ns {cost / costs[0]:7.2f}x" for cost in costs), flush=True)


def main(arguments: list[str]) -> None:
    if arguments[:1] in (["fill"], ["growth"]):
        work = fill if arguments[0] == "fill" else growth
        work(Path(arguments[1]), [int(size) for size in arguments[2:]] or [1_000_000, 10_000_000, 50_000_000])
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
        ours, others = in_turns(data, tenth)
        show(f"{rows:,} rows, compacted, cache of {tenth >> 20} MiB", ours, others,
             [measured(kind, data, tenth, hit_rates) for kind in (Hummock, partial(RocksDb, counts=True))])


if __name__ == "__main__":
    main(sys.argv[1:])
