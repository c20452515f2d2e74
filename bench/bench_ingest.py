"""Ways to write the same million rows, beside other stores, by CPU seconds of the whole process; durable at the end.

`bench_storage` has the plain case, Arrow batches of 10,000 rows in one epoch. Here: many small batches, rows that come
as Python pairs, and a checkpoint each 100,000 rows.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import hummock
from bench.datasets import KeyValueRows, key_value_rows
from bench.peers import Engine, Hummock, engine_class

ROWS, SMALL_BATCH_ROWS, BATCH_ROWS, EPOCH_ROWS = 1_000_000, 500, 10_000, 100_000
ROUNDS = 5
PEERS = ["hummock", "rocksdb", "leveldb", "lmdb"]
pytestmark = pytest.mark.benchmark(timer=time.process_time)


def at_once(engine: Engine, data: KeyValueRows) -> None:
    engine.ingest(data.batches)


def by_epochs(engine: Engine, data: KeyValueRows) -> None:
    """Every hundred thousand rows are durable before the next come."""
    batches = iter(data.batches)
    while part := list(itertools.islice(batches, EPOCH_ROWS // BATCH_ROWS)):
        engine.ingest(part)


def from_pairs(engine: Engine, data: KeyValueRows) -> None:
    """Rows as bytes of Python, made before the clock starts; the others take them so anyway."""
    assert isinstance(engine, Hummock)
    engine.epoch = engine.epochs.next()
    for batch in pairs_of(data):
        engine.store.ingest_batch(hummock.WriteBatch(batch), engine.epoch)
    engine.store.commit(engine.epoch)


PAIRS: dict[int, list[list[tuple[bytes, bytes]]]] = {}


def pairs_of(data: KeyValueRows) -> Iterable[list[tuple[bytes, bytes]]]:
    if id(data) not in PAIRS:
        PAIRS[id(data)] = [
            list(zip(keys.to_pylist(), values.to_pylist(), strict=True)) for keys, values in data.batches
        ]
    return PAIRS[id(data)]


def measure(benchmark: Any, name: str, group: str, write: Callable[[Engine, KeyValueRows], None],
            data: KeyValueRows, folder: Path) -> None:  # fmt: skip
    kind, numbers = engine_class(name), itertools.count()
    engines: list[Engine] = []

    def fresh() -> tuple[tuple[Any, ...], dict[str, Any]]:
        if engines:
            engines.pop().close()
        engines.append(kind(folder / f"db{next(numbers)}"))
        return (), {}

    benchmark.group = group
    benchmark.extra_info.update(engine=name, rows=data.rows, settings=kind.settings)
    benchmark.pedantic(lambda: write(engines[-1], data), setup=fresh, rounds=ROUNDS, warmup_rounds=1)
    engines.pop().close()


@pytest.mark.parametrize("order", ["random", "sequential"])
@pytest.mark.parametrize("name", PEERS)
def test_small_batches(benchmark: Any, name: str, order: str, tmp_path: Path) -> None:
    data = key_value_rows(ROWS, SMALL_BATCH_ROWS, shuffled=order == "random")
    measure(benchmark, name, f"ingest {order}, batches of {SMALL_BATCH_ROWS}", at_once, data, tmp_path)


@pytest.mark.parametrize("order", ["random", "sequential"])
@pytest.mark.parametrize("name", PEERS)
def test_a_checkpoint_each_hundred_thousand_rows(benchmark: Any, name: str, order: str, tmp_path: Path) -> None:
    data = key_value_rows(ROWS, BATCH_ROWS, shuffled=order == "random")
    measure(benchmark, name, f"ingest {order}, 10 checkpoints", by_epochs, data, tmp_path)


@pytest.mark.parametrize("order", ["random", "sequential"])
def test_python_pairs(benchmark: Any, order: str, tmp_path: Path) -> None:
    data = key_value_rows(ROWS, BATCH_ROWS, shuffled=order == "random")
    pairs_of(data)
    measure(benchmark, "hummock", f"ingest {order}, Python pairs", from_pairs, data, tmp_path)
    PAIRS.clear()
