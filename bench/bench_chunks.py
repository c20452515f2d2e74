"""What chunks do, on one core: rows (BIGINT, DOUBLE, VARCHAR), 65,536 to a chunk, a tenth of which change hands again.

Beside each verb stands what pyarrow or numpy would do, and `memcpy`: the bytes of the rows that come out, copied once.
Rows are those that went in. CPU seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from relational.chunk import DataChunk, StreamChunk, VnodeMap
from relational.chunk.chunk_builder import ChunkBuilder
from relational.chunk.grouping import group_rows, hash_rows
from relational.chunk.net_changes import net_changes
from relational.types import Schema

pytestmark = pytest.mark.benchmark(timer=time.process_time)
SEED = 20130101
ROWS, TARGETS, KEYS, SMALL = 65_536, 4, 4_096, 1_024
NAMES = ["k", "x", "name"]
SCHEMA = Schema.of(k="bigint", x="double", name="varchar")


def columns() -> list[pa.Array]:
    rng = np.random.default_rng(SEED)
    letters = "abcdefghijklmnopqrstuvwxyz"
    keys, sizes = rng.integers(0, KEYS, ROWS), rng.integers(1, 21, ROWS)
    return [pa.array(keys), pa.array(rng.normal(size=ROWS)), pa.array([letters[:size] for size in sizes.tolist()])]


COLUMNS = columns()
BATCH = pa.RecordBatch.from_arrays(COLUMNS, names=NAMES)
RNG = np.random.default_rng(SEED + 1)
KEPT = RNG.random(ROWS) < 0.5
PICKED = RNG.integers(0, ROWS, ROWS).astype(np.int32)
OWNERS = VnodeMap.even(range(TARGETS))


def inserts() -> StreamChunk:
    return StreamChunk(COLUMNS, np.zeros(ROWS, np.uint8))


def there_and_back() -> StreamChunk:
    """Each second row takes the one before away again, a tenth of the pairs is an update."""
    rows = np.repeat(np.arange(ROWS // 2), 2)
    keys = pa.array(np.arange(ROWS // 2)[rows])
    values = [column.take(pa.array(rows)) for column in COLUMNS[1:]]
    ops = np.tile(np.array([0, 1], np.uint8), ROWS // 2)
    pairs = np.flatnonzero(np.random.default_rng(SEED).random(ROWS // 2) < 0.1) * 2
    ops[pairs], ops[pairs + 1] = 3, 2
    return StreamChunk([keys, *values], ops)


def measure(benchmark: Any, group: str, engine: str, work: Callable[[], object], repeat: int = 10) -> None:
    benchmark.group = group
    benchmark.extra_info |= {"engine": engine, "rows": ROWS * repeat}
    benchmark.pedantic(lambda: [work() for _ in range(repeat)], rounds=15, warmup_rounds=3)


def copied(size: int) -> Callable[[], object]:
    source, target = np.ones(size, np.uint8), np.empty(size, np.uint8)
    return lambda: np.copyto(target, source)


def last_of_each_key(chunk: StreamChunk) -> Callable[[], object]:
    """numpy's way to the first and the last change of each key."""
    keys = chunk.arrays[0].to_numpy()

    def run() -> object:
        _, firsts = np.unique(keys, return_index=True)
        _, lasts = np.unique(keys[::-1], return_index=True)
        kept = np.zeros(len(keys), np.uint8)
        kept[firsts] = chunk.ops[firsts] & 1
        kept[len(keys) - 1 - lasts] |= ~chunk.ops[len(keys) - 1 - lasts] & 1
        return kept

    return run


def split_by_pyarrow() -> object:
    targets = OWNERS.targets_of(COLUMNS[:1])
    return [BATCH.filter(pa.array(targets == target)) for target in range(TARGETS)]


def split_here() -> object:
    parts = inserts().split_by_vnode([0], OWNERS)
    return [part.compact() for part in parts.values()]


def rebuilt(chunks: list[StreamChunk]) -> int:
    builder = ChunkBuilder(SCHEMA, 4 * SMALL)
    return sum(len(builder.append_chunk(chunk)) for chunk in chunks)


def verbs() -> dict[str, dict[str, Callable[[], object]]]:
    chunk, plain = inserts(), DataChunk(COLUMNS)
    kept = KEPT.view(np.uint8)
    hidden, other = plain.filter(kept), np.roll(kept, 1)
    back = there_and_back()
    small = [chunk.slice(first, SMALL) for first in range(0, ROWS, SMALL)]
    batches = [BATCH.slice(first, SMALL) for first in range(0, ROWS, SMALL)]
    mask, picks, targets = pa.array(KEPT), pa.array(PICKED), OWNERS.targets_of(COLUMNS[:1])
    keys = COLUMNS[0].to_numpy()
    half = sum(column.filter(mask).nbytes for column in COLUMNS)
    return {
        "hide": {"hummock": lambda: hidden.filter(other), "numpy": lambda: kept & other, "memcpy": copied(ROWS)},
        "filter": {
            "hummock": lambda: plain.filter(kept).compact(),
            "pyarrow": lambda: BATCH.filter(mask),
            "memcpy": copied(half),
        },
        "take": {
            "hummock": lambda: plain.take(PICKED),
            "pyarrow": lambda: BATCH.take(picks),
            "memcpy": copied(BATCH.nbytes),
        },
        "concat": {
            "hummock": lambda: StreamChunk.concat(small),
            "pyarrow": lambda: pa.concat_batches(batches),
            "memcpy": copied(BATCH.nbytes),
        },
        "split by vnode": {
            "hummock": lambda: chunk.split_by_vnode([0], OWNERS),
            "numpy, targets known": lambda: [targets == target for target in range(TARGETS)],
            "memcpy": copied(8 * ROWS + TARGETS * ROWS),
        },
        "split by vnode, compacted": {
            "hummock": split_here,
            "pyarrow, our hash": split_by_pyarrow,
            "memcpy": copied(BATCH.nbytes),
        },
        "group ids": {
            "hummock": lambda: group_rows(plain, [0]),
            "pyarrow": lambda: COLUMNS[0].dictionary_encode(),
            "numpy": lambda: np.unique(keys, return_inverse=True),
            "memcpy": copied(12 * ROWS),
        },
        "group ids by text": {
            "hummock": lambda: group_rows(plain, [2]),
            "pyarrow": lambda: COLUMNS[2].dictionary_encode(),
            "memcpy": copied(COLUMNS[2].nbytes + 4 * ROWS),
        },
        "hash of rows": {
            "hummock": lambda: hash_rows(plain.columns, ROWS),
            "memcpy": copied(BATCH.nbytes + 8 * ROWS),
        },
        "cancel out": {"hummock": lambda: net_changes(back, [0]), "numpy": last_of_each_key(back)},
        "inverse": {
            "hummock": chunk.inverse,
            "pyarrow": lambda: BATCH.take(pa.array(np.arange(ROWS - 1, -1, -1, dtype=np.int32))),
            "memcpy": copied(BATCH.nbytes),
        },
        "chunk builder": {"hummock": lambda: rebuilt(small), "memcpy": copied(BATCH.nbytes)},
        "to Arrow and back": {"hummock": lambda: StreamChunk.from_arrow(pa.record_batch(chunk))},
    }


VERBS = verbs()


@pytest.mark.parametrize(("verb", "engine"), [(verb, engine) for verb, work in VERBS.items() for engine in work])
def test_verb(benchmark: Any, verb: str, engine: str) -> None:
    measure(benchmark, verb, engine, VERBS[verb][engine])


def test_polars_hashes_rows(benchmark: Any) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.from_arrow(BATCH)
    measure(benchmark, "hash of rows", "polars", frame.hash_rows)
