"""NUMERIC: arithmetic over a column beside Arrow's kernels, where those take the types, and SUM by group.

Sums: an epoch of a million changes on a million live groups, flushed; over values of 18 digits, of 38 that add up to
less than 128 bits, and of 38 that do not. "hummock" is the first of these.

CPU seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from relational.agg import AggGroups, AggSpec
from relational.chunk import DataChunk, StreamChunk
from relational.expr.bind import ExprBinder, Scope
from relational.expr.eval import evaluate
from relational.expr.unbound import apply, col
from relational.types import DataType, Field, Schema

pytestmark = pytest.mark.benchmark(timer=time.process_time)
SEED, ROWS, GROUPS, CHUNK = 20130101, 1 << 20, 1_000_000, 65_536
ARROW: dict[str, Callable[..., pa.Array]] = {"add": pc.add, "multiply": pc.multiply, "divide": pc.divide}


def decimals(rng: np.random.Generator, data_type: DataType, least: int, most: int, rows: int) -> pa.Array:
    """Unscaled values from `least` to `most`, 64-bit numbers."""
    words = np.zeros((rows, 2), np.int64)
    words[:, 0] = rng.integers(least, most, rows)
    words[:, 1] = words[:, 0] >> 63
    return pa.Array.from_buffers(data_type.arrow, rows, [None, pa.py_buffer(words.reshape(-1))])


@pytest.mark.parametrize("engine", ["hummock", "pyarrow"])
@pytest.mark.parametrize("operation", ARROW)
def test_arithmetic(benchmark: Any, operation: str, engine: str) -> None:
    rng, data_type = np.random.default_rng(SEED), DataType.numeric(15, 2)
    x, y = (decimals(rng, data_type, 1, 10**9, ROWS) for _ in range(2))
    schema = Schema((Field("x", data_type), Field("y", data_type)))
    expression = ExprBinder(Scope(schema)).bind(apply(operation, col("x"), col("y")))
    chunk = DataChunk([x, y])
    benchmark.group = f"NUMERIC(15, 2) {operation}"
    benchmark.extra_info |= {"engine": engine, "rows": ROWS}
    run = (lambda: evaluate(expression, chunk)) if engine == "hummock" else (lambda: ARROW[operation](x, y))
    benchmark.pedantic(run, rounds=9, warmup_rounds=1)


def sums(data_type: DataType, arrays: list[pa.Array]) -> tuple[AggGroups, list[StreamChunk]]:
    """A million live groups, and the chunks of an epoch."""
    rng = np.random.default_rng(SEED)
    total = DataType.numeric(38, data_type.scale or 0)
    groups = AggGroups([0], [DataType.BIGINT], [AggSpec("sum", 1, data_type, total)])
    keys = [pa.array(part) for part in np.array_split(rng.permutation(GROUPS), len(arrays))]
    chunks = [
        StreamChunk([key, array.slice(0, len(key))], np.zeros(len(key), np.uint8))
        for key, array in zip(keys, arrays, strict=True)
    ]
    for chunk in chunks:
        groups.apply(chunk, groups.locate(chunk).ids)
    list(groups.flush())
    return groups, chunks


@pytest.mark.parametrize("engine", ["hummock", "38 digits", "192 bits"])
def test_sums(benchmark: Any, engine: str) -> None:
    data_type = DataType.numeric(18, 2) if engine == "hummock" else DataType.NUMERIC
    rng = np.random.default_rng(SEED)
    arrays = [decimals(rng, data_type, -(10**9), 10**9, CHUNK) for _ in range(-(-GROUPS // CHUNK))]
    if engine == "192 bits":
        most = pa.array([10**28 - 1], pa.decimal128(28, 0)).cast(data_type.arrow)
        arrays = [pa.concat_arrays([most, array.slice(1)]) for array in arrays]
    groups, chunks = sums(data_type, arrays)

    def epoch() -> int:
        for chunk in chunks:
            groups.apply(chunk, groups.locate(chunk).ids)
        return sum(change.state.capacity for change in groups.flush() if change.state is not None)

    benchmark.group = "SUM, 1e6 live groups, flushed"
    benchmark.extra_info |= {"engine": engine, "rows": GROUPS}
    benchmark.pedantic(epoch, rounds=9, warmup_rounds=1)
