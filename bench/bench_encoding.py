"""Keys, values and vnodes: rows to bytes and back, a chunk of 4,096 rows at a time, on one core.

Peers do the nearest thing: polars' row format and DuckDB's sort keys order as keys do, but are not for storing; numpy
swaps the bytes of one column and writes no tags. pyarrow has no row format that Python can call. `limit in C`
(limits.py) is the same bytes for rows without nulls, and checks nothing when it decodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bench import limits
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
        "bigint[]": Column(
            pa.array([list(range(size)) for size in rng.integers(0, 9, CHUNK_ROWS)], pa.list_(pa.int64()))
        ),
        "struct": Column(
            pa.array([{"a": int(a), "b": letters[: int(a) % 20]} for a in rng.integers(0, 999, CHUNK_ROWS)])
        ),
        "jsonb": Column.from_pylist(
            [f'{{"id":{i},"name":"{letters[: i % 20]}"}}' for i in range(CHUNK_ROWS)], DataType.JSONB
        ),
    }


COLUMNS = columns()
SHAPES = {
    "bigint": ("bigint",),
    "bigint, varchar": ("bigint", "varchar"),
    "numeric": ("numeric",),
    "bigint, double, varchar": ("bigint", "double", "varchar"),
    "bigint[]": ("bigint[]",),
    "struct<bigint, varchar>": ("struct",),
    "jsonb": ("jsonb",),
}
WIDE = 20


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


@pytest.mark.parametrize("way", ["encode", "decode"])
@pytest.mark.parametrize(("form", "shape"), [("key", "bigint, varchar"), ("value", "bigint, double, varchar")])
def test_limit(benchmark: Any, form: str, shape: str, way: str) -> None:
    taken = [COLUMNS[name] for name in SHAPES[shape]]
    encoder = (KeyEncoder if form == "key" else ValueEncoder)([column.data_type for column in taken])
    codec = limits.RowCodec(form, limits.TableRows.of(*(COLUMNS[n].array for n in ("bigint", "double", "varchar"))))
    codec.encode()
    assert codec.encoded().equals(encoder.encode(taken).to_arrow())
    codec.decode()
    decoded = codec.target.columns()
    assert all(decoded[name].equals(COLUMNS[name].array) for name in SHAPES[shape])
    measure(benchmark, f"{form} {way} ({shape})", limits.Limit.name, codec.encode if way == "encode" else codec.decode)


@pytest.mark.parametrize("wanted", [[0], [WIDE - 1], [0, WIDE - 1]], ids=str)
def test_projection(benchmark: Any, wanted: list[int]) -> None:
    taken = [COLUMNS[("bigint", "double", "varchar")[i % 3]] for i in range(WIDE)]
    encoder = ValueEncoder([column.data_type for column in taken])
    encoded = encoder.encode(taken)
    measure(benchmark, f"value decode (of {WIDE}: {wanted})", "hummock", lambda: encoder.decode(encoded, wanted))


def test_a_column_that_was_added(benchmark: Any) -> None:
    taken = [COLUMNS[name] for name in SHAPES["bigint, double, varchar"]]
    types = [column.data_type for column in taken]
    encoded = ValueEncoder(types, [0, 1, 2]).encode(taken)
    reader = ValueEncoder([*types[1:], DataType.BIGINT], [1, 2, 3], [None, None, 7])
    measure(benchmark, "value decode (other schema)", "hummock", lambda: reader.decode(encoded))


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


@pytest.mark.parametrize("shape", ["bigint", "bigint, varchar"])
def test_polars_row_format(benchmark: Any, shape: str) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({name: polars.from_arrow(COLUMNS[name].array) for name in SHAPES[shape]})
    measure(benchmark, f"key encode ({shape})", "polars", frame._row_encode)


def test_polars_reads_its_row_format(benchmark: Any) -> None:
    polars = pytest.importorskip("polars")
    names = SHAPES["bigint, varchar"]
    frame = polars.DataFrame({name: polars.from_arrow(COLUMNS[name].array) for name in names})
    rows, types = frame._row_encode(), list(frame.dtypes)
    measure(benchmark, "key decode (bigint, varchar)", "polars", lambda: rows._row_decode(list(names), types))


@pytest.mark.parametrize("shape", ["bigint", "bigint, varchar"])
def test_duckdb_sort_keys(benchmark: Any, shape: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect(config={"threads": 1})
    chunk = pa.table({name: COLUMNS[name].array for name in SHAPES[shape]})
    connection.register("chunk", pa.concat_tables([chunk] * CHUNKS))
    connection.execute("CREATE TABLE rows AS SELECT * FROM chunk")
    keys = ", ".join(f"{name}, 'ASC NULLS LAST'" for name in SHAPES[shape])
    benchmark.group = f"key encode ({shape})"
    benchmark.extra_info.update(engine="duckdb", rows=CHUNK_ROWS * CHUNKS)
    query = f"SELECT sum(octet_length(create_sort_key({keys}))) FROM rows"
    benchmark.pedantic(lambda: connection.execute(query).fetchall(), rounds=ROUNDS, warmup_rounds=2)
