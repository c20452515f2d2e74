"""Keys, values and vnodes: rows to bytes and back, a chunk of 4,096 rows at a time, on one core.

Peers do the nearest thing: polars' row format orders as keys do, but it is not for storing;
numpy swaps the bytes of one column and writes no tags.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from relational.chunk import Column, vnodes_of
from relational.encoding import KeyEncoder, ValueEncoder
from relational.types import DataType

CHUNK_ROWS, CHUNKS, ROUNDS = 4_096, 50, 20
SEED = 20130101


def columns() -> dict[str, Column]:
    """4,096 random rows of each type used here; strings of 1 to 20 letters."""
    rng = np.random.default_rng(SEED)
    letters = "abcdefghijklmnopqrstuvwxyz"
    return {
        "bigint": Column(pa.array(rng.integers(-(2**62), 2**62, CHUNK_ROWS))),
        "double": Column(pa.array(rng.normal(size=CHUNK_ROWS))),
        "varchar": Column(pa.array([letters[: int(size)] for size in rng.integers(1, 21, CHUNK_ROWS)])),
        "numeric": Column(pa.array(rng.integers(-(10**9), 10**9, CHUNK_ROWS)).cast(pa.decimal128(19, 0))),
    }


COLUMNS = columns()
SHAPES = {
    "bigint": ("bigint",),
    "bigint, varchar": ("bigint", "varchar"),
    "numeric": ("numeric",),
    "bigint, double, varchar": ("bigint", "double", "varchar"),
}


def measure(benchmark: Any, group: str, engine: str, work: Callable[[], object]) -> None:
    benchmark.group = group
    benchmark.extra_info.update(engine=engine, rows=CHUNK_ROWS * CHUNKS)
    benchmark.pedantic(lambda: [work() for _ in range(CHUNKS)], rounds=ROUNDS, warmup_rounds=2)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", ["key", "value"])
def test_encode(benchmark: Any, form: str, shape: str) -> None:
    taken = [COLUMNS[name] for name in SHAPES[shape]]
    encoder = (KeyEncoder if form == "key" else ValueEncoder)([column.data_type for column in taken])
    measure(benchmark, f"{form} encode ({shape})", "hummock", lambda: encoder.encode(taken))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", ["key", "value"])
def test_decode(benchmark: Any, form: str, shape: str) -> None:
    taken = [COLUMNS[name] for name in SHAPES[shape]]
    encoder = (KeyEncoder if form == "key" else ValueEncoder)([column.data_type for column in taken])
    encoded = encoder.encode(taken)
    measure(benchmark, f"{form} decode ({shape})", "hummock", lambda: encoder.decode(encoded))


@pytest.mark.parametrize("name", ["bigint", "varchar"])
def test_vnodes(benchmark: Any, name: str) -> None:
    measure(benchmark, f"vnodes ({name})", "hummock", lambda: vnodes_of([COLUMNS[name]]))


def test_user_keys(benchmark: Any) -> None:
    encoder = KeyEncoder([DataType.BIGINT])
    taken = [COLUMNS["bigint"]]
    work = lambda: encoder.encode(taken, table_id=1, vnodes=vnodes_of(taken))  # noqa: E731
    measure(benchmark, "user key (bigint)", "hummock", work)


def test_numpy_swaps_bytes(benchmark: Any) -> None:
    numbers = COLUMNS["bigint"].array.to_numpy().view(np.uint64)
    sign = np.uint64(1 << 63)
    measure(benchmark, "key encode (bigint)", "numpy", lambda: (numbers ^ sign).byteswap())


def test_polars_row_format(benchmark: Any) -> None:
    polars = pytest.importorskip("polars")
    names = SHAPES["bigint, varchar"]
    frame = polars.DataFrame({name: polars.from_arrow(COLUMNS[name].array) for name in names})
    measure(benchmark, "key encode (bigint, varchar)", "polars", frame._row_encode)
