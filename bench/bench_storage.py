"""The store beside RocksDB, LevelDB, LMDB and SlateDB: the same rows, one run, by CPU seconds of the whole process.

The workload is 1,000,000 rows of 16 B keys and 100 B values in batches of 10,000, warm. That each engine answers
right is checked outside of the clock, before anything is measured. Rounds before the clock warm the memory, and what a
round wrote is removed before the next: a page that a virtual machine touches for the first time costs it 3 us, which
otherwise was half of our ingest's CPU seconds, and says nothing of an engine.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.datasets import KeyValueRows, key_value_rows
from bench.peers import ENGINES, Engine, engine_class, loaded

ROWS, BATCH_ROWS, PROBE_ROWS, SHORT_ROWS = 1_000_000, 10_000, 1_000, 100
SHORT_SCANS = 5_000
ROUNDS, WARMUP_ROUNDS = 5, 3
pytestmark = pytest.mark.benchmark(timer=time.process_time)


def rows_for(name: str) -> int:
    return min(ROWS, ENGINES[name].rows_limit)


@pytest.fixture(scope="module", params=list(ENGINES))
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Engine, KeyValueRows]]:
    data = key_value_rows(rows_for(request.param), BATCH_ROWS, shuffled=True)
    for engine in loaded(request.param, data, tmp_path_factory.mktemp(request.param) / "db"):
        engine.compact()
        yield engine, data


def describe(benchmark: Any, engine: Engine | type[Engine], group: str, rows: int) -> None:
    benchmark.group = group
    benchmark.extra_info.update(engine=engine.name, rows=rows, settings=engine.settings)


def measure(benchmark: Any, work: Callable[[], object], **settings: Any) -> None:
    benchmark.pedantic(work, rounds=ROUNDS, warmup_rounds=WARMUP_ROUNDS, **settings)


@pytest.mark.parametrize("order", ["random", "sequential"])
@pytest.mark.parametrize("name", list(ENGINES))
def test_ingest_to_durable(benchmark: Any, name: str, order: str, tmp_path: Path) -> None:
    kind = engine_class(name)
    data = key_value_rows(rows_for(name), BATCH_ROWS, shuffled=order == "random")
    engines: list[Engine] = []
    folder = tmp_path / "db"

    def fresh() -> tuple[tuple[Any, ...], dict[str, Any]]:
        if engines:
            engines.pop().close()
            shutil.rmtree(folder)
        engines.append(kind(folder))
        return (), {}

    describe(benchmark, kind, f"ingest {order}", data.rows)
    measure(benchmark, lambda: engines[-1].ingest(data.batches), setup=fresh)
    engines.pop().close()


def test_get_many(benchmark: Any, store: tuple[Engine, KeyValueRows]) -> None:
    engine, data = store
    probes = [data.present[start : start + PROBE_ROWS] for start in range(0, len(data.present), PROBE_ROWS)]
    assert all(engine.get_many(probe).null_count == 0 for probe in probes)
    describe(benchmark, engine, "get_many 1,000 hits", len(data.present))
    measure(benchmark, lambda: [engine.get_many(probe) for probe in probes])


@pytest.mark.parametrize("kind", ["hit", "miss"])
def test_get(benchmark: Any, store: tuple[Engine, KeyValueRows], kind: str) -> None:
    engine, data = store
    probes = (data.present if kind == "hit" else data.absent).to_pylist()
    assert engine.get(probes) == (len(probes) if kind == "hit" else 0)
    describe(benchmark, engine, f"get {kind}", len(probes))
    measure(benchmark, lambda: engine.get(probes))


def test_scan_to_arrow(benchmark: Any, store: tuple[Engine, KeyValueRows]) -> None:
    engine, data = store
    assert engine.scan().num_rows == data.rows
    describe(benchmark, engine, "scan to Arrow", data.rows)
    measure(benchmark, engine.scan)


def test_short_scans(benchmark: Any, store: tuple[Engine, KeyValueRows]) -> None:
    """The figure counts scans, not rows."""
    engine, data = store
    starts = data.present[:SHORT_SCANS]
    found = engine.scan_short(starts, SHORT_ROWS)
    assert SHORT_SCANS * (SHORT_ROWS - 1) <= found <= SHORT_SCANS * SHORT_ROWS
    describe(benchmark, engine, f"scans of {SHORT_ROWS}", SHORT_SCANS)
    measure(benchmark, lambda: engine.scan_short(starts, SHORT_ROWS))
