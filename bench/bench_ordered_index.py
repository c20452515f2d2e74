"""OrderedIndex on one core: a million live BIGINT sort keys with a stream key behind them, in memcomparable bytes.

`update` takes half the rows out and puts as many in; `rank` asks for positions; `window` reports what the same changes
do to the first 1,000 rows. It is compared with what a Python program would use: sortedcontainers.SortedList of bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hummock.columnar.binary_column import BinaryColumn
from relational.chunk.column import Column
from relational.encoding import KeyEncoder
from relational.order.order_window import update_window
from relational.order.ordered_index import OrderedIndex
from relational.types import DataType

SEED = 20130101
KEYS, CHUNK_ROWS, CHUNKS = 1_000_000, 4_096, 16
Change = tuple[BinaryColumn, BinaryColumn, np.ndarray]


def encoded(rng: np.random.Generator, rows: int, first: int) -> BinaryColumn:
    columns = [Column(pa.array(rng.integers(0, 1 << 40, rows))), Column(pa.array(np.arange(first, first + rows)))]
    return KeyEncoder([DataType.BIGINT] * 2).encode(columns)


def there_and_back() -> tuple[BinaryColumn, list[Change]]:
    """A million keys; and chunks that replace some of them, then chunks that undo it."""
    rng = np.random.default_rng(SEED)
    live = encoded(rng, KEYS, 0)
    half = CHUNK_ROWS // 2
    gone = live.to_arrow().take(rng.choice(KEYS, half * CHUNKS, replace=False))
    come = encoded(rng, half * CHUNKS, KEYS).to_arrow()
    changes = []
    for out, into in ((gone, come), (come, gone)):
        for at in range(0, half * CHUNKS, half):
            keys = BinaryColumn.from_arrow(pa.concat_arrays([out.slice(at, half), into.slice(at, half)]))
            changes.append((keys, keys, np.repeat(np.array([1, 0], np.uint8), half)))
    return live, changes


def ours(live: BinaryColumn) -> OrderedIndex:
    index = OrderedIndex()
    index.update(live, live)
    return index


def theirs(live: BinaryColumn) -> Any:
    return pytest.importorskip("sortedcontainers").SortedList(live)


def their_update(index: Any, changes: list[tuple[list[bytes], list[int]]]) -> None:
    for keys, ops in changes:
        for key, op in zip(keys, ops, strict=True):
            (index.remove if op else index.add)(key)


@pytest.mark.parametrize("engine", ["hummock", "sortedcontainers"])
def test_update(benchmark: Any, engine: str) -> None:
    live, changes = there_and_back()
    plain = [(list(keys), ops.tolist()) for keys, _, ops in changes]
    index = ours(live) if engine == "hummock" else theirs(live)
    run: Callable[[], Any] = (
        (lambda: [index.update(*change) for change in changes])
        if engine == "hummock"
        else (lambda: their_update(index, plain))
    )
    benchmark.group = "ordered index: update"
    benchmark.extra_info |= {"engine": engine, "rows": len(changes) * CHUNK_ROWS}
    benchmark.pedantic(run, rounds=3, warmup_rounds=1)


@pytest.mark.parametrize("engine", ["hummock", "sortedcontainers"])
def test_rank(benchmark: Any, engine: str) -> None:
    live, changes = there_and_back()
    asked = [list(keys) for keys, _, _ in changes]
    index = ours(live) if engine == "hummock" else theirs(live)
    run: Callable[[], Any] = (
        (lambda: [index.rank(keys) for keys, _, _ in changes])
        if engine == "hummock"
        else (lambda: [index.bisect_left(key) for keys in asked for key in keys])
    )
    benchmark.group = "ordered index: rank"
    benchmark.extra_info |= {"engine": engine, "rows": len(changes) * CHUNK_ROWS}
    benchmark.pedantic(run, rounds=3, warmup_rounds=1)


def test_window(benchmark: Any) -> None:
    live, changes = there_and_back()
    index = ours(live)
    benchmark.group = "ordered index: window of 1,000"
    benchmark.extra_info |= {"engine": "hummock", "rows": len(changes) * CHUNK_ROWS}
    benchmark.pedantic(lambda: [update_window(index, *change, 0, 1_000) for change in changes], rounds=3)
