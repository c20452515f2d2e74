"""The stores that ours is compared with, each behind the same few methods, set as equal as they allow.

64 KB blocks, lz4 (LevelDB: snappy), a Bloom filter of 10 bits and a block cache of `cache_bytes` where an engine has
them; no log of its own where it can go without, and all that was written durable when `ingest` returns, except
SlateDB, whose store on a local disk does not call fsync.
"""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import hummock
from bench.datasets import KeyValueRows
from hummock.epoch import EpochGenerator

CACHE_BYTES = 512 << 20
Batches = Iterable[tuple[pa.BinaryArray, pa.BinaryArray]]


def pairs_table(rows: Iterable[tuple[bytes, bytes]]) -> pa.Table:
    """Pairs as an Arrow table, as a user of a store without an Arrow face would make it."""
    keys, values = zip(*rows, strict=True)
    return pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})


class Engine(ABC):
    """One open store in a folder of its own."""

    name: ClassVar[str]
    module: ClassVar[str]               # what must be installed
    settings: ClassVar[str]
    rows_limit: ClassVar[int] = 1 << 40     # more would take minutes, because of calls and not of the engine

    @abstractmethod
    def __init__(self, folder: Path, cache_bytes: int = CACHE_BYTES): ...

    @abstractmethod
    def ingest(self, batches: Batches) -> None:
        """Writes batches, each sorted by key; durable on return."""

    @abstractmethod
    def get(self, keys: list[bytes]) -> int:
        """How many of the keys are there, asked one by one."""

    @abstractmethod
    def get_many(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        """Their values, null where absent, in as few calls as the engine has."""

    @abstractmethod
    def scan(self) -> pa.Table:
        """All rows."""

    @abstractmethod
    def scan_short(self, starts: pa.BinaryArray, rows: int) -> int:
        """The first `rows` rows from each start on, as Arrow; how many there were."""

    def pairs(self, start: bytes, rows: int) -> Iterable[tuple[bytes, bytes]]:
        """The first `rows` rows from `start` on, where an engine is measured by them."""
        raise NotImplementedError(self.name)

    def compact(self) -> None:  # noqa: B027  LMDB has nothing to compact
        """Merges everything into one run, as far as the engine has such a call."""

    def lookups(self) -> tuple[int, int]:
        """Hits and misses of the block cache so far, where the engine counts them."""
        raise NotImplementedError(self.name)

    @abstractmethod
    def close(self) -> None: ...


class Hummock(Engine):
    name, module = "hummock", "hummock"
    settings = "64 KB blocks, lz4, blocked bloom 10 bits, fsync"

    def __init__(self, folder: Path, cache_bytes: int = CACHE_BYTES, *, url: str | None = None, **options: Any):
        self.store = hummock.open(url or f"file://{folder}", role="writer", block_cache_bytes=cache_bytes,
                                  **{"flush_codec": "lz4", **options})
        self.epochs = EpochGenerator()
        self.epoch = self.epochs.next()

    def ingest(self, batches: Batches) -> None:
        self.epoch = self.epochs.next()
        for keys, values in batches:
            self.store.ingest_batch(hummock.WriteBatch(keys, values), self.epoch)
        self.store.commit(self.epoch)

    def get(self, keys: list[bytes]) -> int:
        get = self.store.get
        return sum(get(key) is not None for key in keys)

    def get_many(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        return self.store.get_many(keys, self.epoch).to_arrow()

    def scan(self) -> pa.Table:
        with self.store.scan(hummock.KeyRange.table(1), self.epoch) as rows:
            return rows.to_arrow()

    def scan_short(self, starts: pa.BinaryArray, rows: int) -> int:
        _, found = self.store.scan_many(starts, self.epoch, limit=rows)
        return found.to_arrow().num_rows

    def pairs(self, start: bytes, rows: int) -> Iterable[tuple[bytes, bytes]]:
        return self.store.scan(hummock.KeyRange(start, None), limit=rows)

    def lookups(self) -> tuple[int, int]:
        stats = self.store.stats()
        return stats.block_cache_hits, stats.block_cache_misses

    def compact(self) -> None:
        self.store.compact()

    def close(self) -> None:
        self.store.close()


class RocksDb(Engine):
    name, module = "rocksdb", "rocksdict"
    settings = "rocksdict, WAL off, 64 KB blocks, lz4, bloom 10 bits, memtable 64 MB, 2 jobs, flush at the end"

    def __init__(self, folder: Path, cache_bytes: int = CACHE_BYTES, *, auto_compaction: bool = True,
                 counts: bool = False):
        import rocksdict

        self.rocksdict = rocksdict
        table = rocksdict.BlockBasedOptions()
        table.set_block_size(65536)
        table.set_bloom_filter(10, False)
        table.set_block_cache(rocksdict.Cache(cache_bytes))
        options = rocksdict.Options(raw_mode=True)
        options.set_block_based_table_factory(table)
        options.set_compression_type(rocksdict.DBCompressionType.lz4())
        options.set_write_buffer_size(64 << 20)
        options.set_max_background_jobs(2)
        options.set_disable_auto_compactions(not auto_compaction)
        options.create_if_missing(True)
        if counts:
            options.enable_statistics()
        self.options = options
        # without its column family, a store that exists is opened with options of its own and a cache of 8 MB
        self.db = rocksdict.Rdict(str(folder), options=options, column_families={"default": options})
        self.write_options = rocksdict.WriteOptions()
        self.write_options.disable_wal = True

    def ingest(self, batches: Batches) -> None:
        self.write(batches)
        self.db.flush()

    def write(self, batches: Batches) -> None:
        for keys, values in batches:
            batch = self.rocksdict.WriteBatch(raw_mode=True)
            for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True):
                if value is None:
                    batch.delete(key)
                else:
                    batch.put(key, value)
            self.db.write(batch, self.write_options)

    def get(self, keys: list[bytes]) -> int:
        get = self.db.get
        return sum(get(key) is not None for key in keys)

    def get_many(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        return pa.array(self.db[keys.to_pylist()], pa.binary())

    def scan(self) -> pa.Table:
        return pairs_table(self.db.items())

    def scan_short(self, starts: pa.BinaryArray, rows: int) -> int:
        return sum(pairs_table(islice(self.db.items(from_key=start), rows)).num_rows for start in starts.to_pylist())

    def pairs(self, start: bytes, rows: int) -> Iterable[tuple[bytes, bytes]]:
        return islice(self.db.items(from_key=start), rows)

    def lookups(self) -> tuple[int, int]:
        statistics = self.options.get_statistics() or ""
        found = dict(re.findall(r"rocksdb\.block\.cache\.data\.(hit|miss) COUNT : (\d+)", statistics))
        return int(found["hit"]), int(found["miss"])

    def compact(self) -> None:
        options = self.rocksdict.CompactOptions()
        options.set_bottommost_level_compaction(self.rocksdict.BottommostLevelCompaction.force())
        self.db.compact_range(None, None, options)

    def close(self) -> None:
        self.db.close()


class LevelDb(Engine):
    name, module = "leveldb", "plyvel"
    settings = "plyvel, log always on, 64 KB blocks, snappy, bloom 10 bits, write buffer 64 MB, last write synced"

    def __init__(self, folder: Path, cache_bytes: int = CACHE_BYTES):
        import plyvel

        self.db = plyvel.DB(str(folder), create_if_missing=True, block_size=65536, bloom_filter_bits=10,
                            lru_cache_size=cache_bytes, write_buffer_size=64 << 20)

    def ingest(self, batches: Batches) -> None:
        for keys, values in batches:
            with self.db.write_batch() as batch:
                for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True):
                    batch.put(key, value)
        self.db.put(b"\0", b"", sync=True)
        self.db.delete(b"\0", sync=True)

    def get(self, keys: list[bytes]) -> int:
        get = self.db.get
        return sum(get(key) is not None for key in keys)

    def get_many(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        return pa.array([self.db.get(key) for key in keys.to_pylist()], pa.binary())

    def scan(self) -> pa.Table:
        return pairs_table(self.db)

    def scan_short(self, starts: pa.BinaryArray, rows: int) -> int:
        return sum(pairs_table(islice(self.db.iterator(start=start), rows)).num_rows for start in starts.to_pylist())

    def compact(self) -> None:
        self.db.compact_range()

    def close(self) -> None:
        self.db.close()


class Lmdb(Engine):
    name, module = "lmdb", "lmdb"
    settings = "one transaction a batch, synced once at the end, no compression, the page cache as its cache"

    def __init__(self, folder: Path, cache_bytes: int = CACHE_BYTES):
        import lmdb

        folder.mkdir(parents=True, exist_ok=True)
        self.env = lmdb.open(str(folder), map_size=32 << 30, sync=False, metasync=False, writemap=False)

    def ingest(self, batches: Batches) -> None:
        for keys, values in batches:
            with self.env.begin(write=True) as transaction, transaction.cursor() as cursor:
                cursor.putmulti(list(zip(keys.to_pylist(), values.to_pylist(), strict=True)))
        self.env.sync(True)

    def get(self, keys: list[bytes]) -> int:
        with self.env.begin(buffers=False) as transaction:
            get = transaction.get
            return sum(get(key) is not None for key in keys)

    def get_many(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        wanted = keys.to_pylist()
        with self.env.begin() as transaction, transaction.cursor() as cursor:
            found = dict(cursor.getmulti(wanted))
        return pa.array([found.get(key) for key in wanted], pa.binary())

    def scan(self) -> pa.Table:
        with self.env.begin() as transaction, transaction.cursor() as cursor:
            return pairs_table(cursor)

    def scan_short(self, starts: pa.BinaryArray, rows: int) -> int:
        found = 0
        with self.env.begin() as transaction, transaction.cursor() as cursor:
            for start in starts.to_pylist():
                cursor.set_range(start)
                found += pairs_table(islice(cursor, rows)).num_rows
        return found

    def close(self) -> None:
        self.env.close()


class SlateDb(Engine):
    name, module = "slatedb", "slatedb"
    settings = "uniffi binding, file:// without fsync, no WAL, 64 KB blocks, lz4, bloom 10 bits"
    rows_limit = 50_000

    def __init__(self, folder: Path, cache_bytes: int = CACHE_BYTES, *, url: str | None = None):
        from slatedb import uniffi

        self.uniffi = uniffi
        self.loop = asyncio.new_event_loop()
        folder.mkdir(parents=True, exist_ok=True)
        settings = uniffi.Settings.default()
        settings.set("wal_enabled", "false")
        settings.set("compression_codec", '"Lz4"')
        builder = uniffi.DbBuilder(str(folder).lstrip("/"), uniffi.ObjectStore.resolve(url or "file:///"))
        builder.with_settings(settings)
        builder.with_sst_block_size(uniffi.SstBlockSize.BLOCK64_KIB)
        builder.with_filter_policies([uniffi.FilterPolicy.bloom(10)])
        builder.with_db_cache(
            uniffi.DbCache.new_foyer_cache(uniffi.FoyerCacheOptions(max_capacity=cache_bytes, shards=16)), 0)
        self.db = self.run(builder.build())

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def ingest(self, batches: Batches) -> None:
        self.run(self.write(batches))

    async def write(self, batches: Batches) -> None:
        flushed = self.uniffi.FlushOptions(flush_type=self.uniffi.FlushType.MEM_TABLE)
        for keys, values in batches:
            batch = self.uniffi.WriteBatch()
            for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True):
                batch.put(key, value)
            await self.db.write(batch)
        await self.db.flush_with_options(flushed)

    def get(self, keys: list[bytes]) -> int:
        async def found() -> int:
            return sum([(await self.db.get(key)) is not None for key in keys])

        return self.run(found())

    def get_many(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        async def found() -> list[bytes | None]:
            return [await self.db.get(key) for key in keys.to_pylist()]

        return pa.array(self.run(found()), pa.binary())

    def scan(self) -> pa.Table:
        return self.run(self.rows_from(None, 1 << 40))

    def scan_short(self, starts: pa.BinaryArray, rows: int) -> int:
        return sum(self.run(self.rows_from(start, rows)).num_rows for start in starts.to_pylist())

    async def rows_from(self, start: bytes | None, rows: int) -> pa.Table:
        bounds = self.uniffi.KeyRange(start=start, start_inclusive=True, end=None, end_inclusive=False)
        iterator = await self.db.scan(bounds)
        found: list[tuple[bytes, bytes]] = []
        while len(found) < rows and (batch := await iterator.next_batch(min(8192, rows - len(found)))):
            found += [(row.key, row.value) for row in batch]
        return pairs_table(found)

    def close(self) -> None:
        self.run(self.db.shutdown())
        self.loop.close()


ENGINES: dict[str, type[Engine]] = {kind.name: kind for kind in (Hummock, RocksDb, LevelDb, Lmdb, SlateDb)}


def engine_class(name: str) -> type[Engine]:
    """The engine of that name; skips the benchmark where its module is not installed."""
    pytest.importorskip(ENGINES[name].module)
    return ENGINES[name]


def loaded(name: str, data: KeyValueRows, folder: Path) -> Iterator[Engine]:
    """For a fixture: the engine with the rows in it, closed at the end."""
    engine = engine_class(name)(folder)
    engine.ingest(data.batches)
    yield engine
    engine.close()
