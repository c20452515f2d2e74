"""What chunks do, on one core: rows (BIGINT, DOUBLE, VARCHAR), 65,536 to a chunk, a tenth of which change hands again.

Each operation is compared with pyarrow or numpy, and with `memcpy`: the bytes of the resulting rows, copied once.
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

pytestmark = pytest.mark.benchmark(timer=time.process_time)
SEED = 20130101
ROWS, TARGETS, KEYS, SMALL = 65_536, 4, 4_096, 1_024
NAMES = ["k", "x", "name"]


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


def measure(benchmark: Any, group: str, engine: str, work: Callable[[], object], repeat: int = 10) -> None:
    benchmark.group = group
    benchmark.extra_info |= {"engine": engine, "rows": ROWS * repeat}
    benchmark.pedantic(lambda: [work() for _ in range(repeat)], rounds=15, warmup_rounds=3)


def copied(size: int) -> Callable[[], object]:
    source, target = np.ones(size, np.uint8), np.empty(size, np.uint8)
    return lambda: np.copyto(target, source)


def split_by_pyarrow() -> object:
    targets = OWNERS.targets_of(COLUMNS[:1])
    return [BATCH.filter(pa.array(targets == target)) for target in range(TARGETS)]


def split_here() -> object:
    parts = inserts().split_by_vnode([0], OWNERS)
    return [part.compact() for part in parts.values()]


def verbs() -> dict[str, dict[str, Callable[[], object]]]:
    chunk, plain = inserts(), DataChunk(COLUMNS)
    kept = KEPT.view(np.uint8)
    hidden, other = plain.filter(kept), np.roll(kept, 1)
    small = [chunk.slice(first, SMALL) for first in range(0, ROWS, SMALL)]
    batches = [BATCH.slice(first, SMALL) for first in range(0, ROWS, SMALL)]
    mask, picks, targets = pa.array(KEPT), pa.array(PICKED), OWNERS.targets_of(COLUMNS[:1])
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
        "to Arrow and back": {"hummock": lambda: StreamChunk.from_arrow(pa.record_batch(chunk))},
    }


VERBS = verbs()


@pytest.mark.parametrize(("verb", "engine"), [(verb, engine) for verb, work in VERBS.items() for engine in work])
def test_verb(benchmark: Any, verb: str, engine: str) -> None:
    measure(benchmark, verb, engine, VERBS[verb][engine])
