"""The store beside RocksDB: the same rows, the same run, both durable when the clock stops.

RocksDB (rocksdict) runs without a WAL, with 64 KB blocks, lz4 and a 10-bit Bloom filter, as its settings line says.
That both answer right is checked outside of the clock, before anything is measured.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import hummock
from bench.datasets import KeyValueRows, key_value_rows
from hummock.epoch import EpochGenerator

ROWS, BATCH_ROWS, PROBE_ROWS = 1_000_000, 10_000, 1_000
ROUNDS = 5


class Hummock:
    name = "hummock"
    settings = "64 KB blocks, lz4, blocked bloom 10 bits, block cache 512 MB"

    def __init__(self, folder: Path):
        self.store = hummock.open(f"file://{folder}", role="writer", block_cache_bytes=512 << 20)
        self.epochs = EpochGenerator()
        self.epoch = self.epochs.next()

    def ingest(self, data: KeyValueRows) -> None:
        self.epoch = self.epochs.next()
        for keys, values in data.batches:
            self.store.ingest_batch(hummock.WriteBatch(keys, values), self.epoch)
        self.store.commit(self.epoch)

    def get_many(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        return self.store.get_many(keys, self.epoch).to_arrow()

    def get(self, keys: list[bytes]) -> int:
        get, epoch = self.store.get, self.epoch
        return sum(get(key, epoch) is not None for key in keys)

    def scan(self) -> pa.Table:
        with self.store.scan(hummock.KeyRange.table(1), self.epoch) as rows:
            return rows.to_arrow()

    def close(self) -> None:
        self.store.close()


class RocksDb:
    name = "rocksdb"
    settings = "rocksdict, WAL off, 64 KB blocks, lz4, bloom 10 bits, memtable 64 MB, block cache 512 MB, 2 jobs"

    def __init__(self, folder: Path):
        import rocksdict

        self.module = rocksdict
        table = rocksdict.BlockBasedOptions()
        table.set_block_size(65536)
        table.set_bloom_filter(10, False)
        table.set_block_cache(rocksdict.Cache(512 << 20))
        options = rocksdict.Options(raw_mode=True)
        options.set_block_based_table_factory(table)
        options.set_compression_type(rocksdict.DBCompressionType.lz4())
        options.set_write_buffer_size(64 << 20)
        options.set_max_background_jobs(2)
        options.create_if_missing(True)
        self.db = rocksdict.Rdict(str(folder), options=options)
        self.write_options = rocksdict.WriteOptions()
        self.write_options.disable_wal = True

    def ingest(self, data: KeyValueRows) -> None:
        for keys, values in data.batches:
            batch = self.module.WriteBatch(raw_mode=True)
            for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True):
                batch.put(key, value)
            self.db.write(batch, self.write_options)
        self.db.flush()

    def get_many(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        return pa.array(self.db[keys.to_pylist()], pa.binary())

    def get(self, keys: list[bytes]) -> int:
        get = self.db.get
        return sum(get(key) is not None for key in keys)

    def scan(self) -> pa.Table:
        keys, values = zip(*self.db.items(), strict=True)
        return pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})

    def close(self) -> None:
        self.db.close()


ENGINES: dict[str, Callable[[Path], Any]] = {"hummock": Hummock, "rocksdb": RocksDb}


@pytest.fixture(scope="module", params=["sequential", "random"])
def data(request: pytest.FixtureRequest) -> KeyValueRows:
    return key_value_rows(ROWS, BATCH_ROWS, shuffled=request.param == "random")


@pytest.fixture(params=list(ENGINES))
def engine_class(request: pytest.FixtureRequest) -> Callable[[Path], Any]:
    if request.param == "rocksdb":
        pytest.importorskip("rocksdict")
    return ENGINES[request.param]


@pytest.fixture(scope="module", params=list(ENGINES))
def loaded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, KeyValueRows]]:
    if request.param == "rocksdb":
        pytest.importorskip("rocksdict")
    rows = key_value_rows(ROWS, BATCH_ROWS, shuffled=True)
    engine = ENGINES[request.param](tmp_path_factory.mktemp(request.param) / "db")
    engine.ingest(rows)
    yield engine, rows
    engine.close()


def describe(benchmark: Any, engine: Any, group: str, rows: int) -> None:
    benchmark.group = group
    benchmark.extra_info.update(engine=engine.name, rows=rows, settings=engine.settings)


def test_ingest_to_durable(benchmark: Any, data: KeyValueRows, engine_class: Any, tmp_path: Path, request: Any) -> None:
    numbers = itertools.count()
    engines: list[Any] = []

    def fresh() -> tuple[tuple[Any, ...], dict[str, Any]]:
        if engines:
            engines.pop().close()
        engines.append(engine_class(tmp_path / f"db{next(numbers)}"))
        return (data,), {}

    order = "random" if "random" in request.node.name else "sequential"
    describe(benchmark, engine_class, f"ingest {order}", data.rows)
    benchmark.pedantic(lambda rows: engines[-1].ingest(rows), setup=fresh, rounds=ROUNDS, warmup_rounds=1)
    engines.pop().close()


def test_get_many(benchmark: Any, loaded: tuple[Any, KeyValueRows]) -> None:
    engine, data = loaded
    probes = [data.present[start : start + PROBE_ROWS] for start in range(0, len(data.present), PROBE_ROWS)]
    assert all(engine.get_many(probe).null_count == 0 for probe in probes)
    describe(benchmark, engine, "get_many 1,000 hits", len(data.present))
    benchmark.pedantic(lambda: [engine.get_many(probe) for probe in probes], rounds=ROUNDS, warmup_rounds=1)


@pytest.mark.parametrize("kind", ["hit", "miss"])
def test_get(benchmark: Any, loaded: tuple[Any, KeyValueRows], kind: str) -> None:
    engine, data = loaded
    probes = (data.present if kind == "hit" else data.absent).to_pylist()
    assert engine.get(probes) == (len(probes) if kind == "hit" else 0)
    describe(benchmark, engine, f"get {kind}", len(probes))
    benchmark.pedantic(lambda: engine.get(probes), rounds=ROUNDS, warmup_rounds=1)


def test_scan_to_arrow(benchmark: Any, loaded: tuple[Any, KeyValueRows]) -> None:
    engine, data = loaded
    assert engine.scan().num_rows == data.rows
    describe(benchmark, engine, "scan to Arrow", data.rows)
    benchmark.pedantic(engine.scan, rounds=ROUNDS, warmup_rounds=1)
