"""Random programs: HummockStorage answers as MemoryStateStore does, step by step, whatever its sizes.

A failing program names its seed: `HUMMOCK_MODEL_SEED=<seed> pytest tests/model/test_hummock_model.py -k one`.
"""

from __future__ import annotations

import os
import random

import pyarrow as pa
import pytest

from hummock.epoch import Epoch
from hummock.key import KeyRange
from hummock.memory_store import MemoryStateStore
from hummock.meta import MemoryMetaStore
from hummock.meta.hummock_manager import HummockManager
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import StorageOptions
from hummock.storage import HummockStorage
from hummock.write_batch import WriteBatch

PROGRAMS = 400
LOCAL = b"local"  # keys of tables that are written locally only
PROGRAMS_PER_TEST = 25
SIZES = (
    {},
    {f"{name}_bytes": 1 for name in ("block", "sstable", "block_cache", "meta_cache", "prefetch")},
    {"block_bytes": 100, "sstable_bytes": 600, "block_cache_bytes": 2_000, "scan_batch_rows": 3},
    {"block_bytes": 300, "sstable_bytes": 1 << 20, "prefetch_bytes": 700, "scan_batch_bytes": 50},
    {"shared_buffer_bytes": 400, "block_bytes": 200, "codec": "none"},
    {"shared_buffer_bytes": 1, "filter_policy": "pybloom", "codec": "zstd"},
    {"filter_policy": "none", "block_bytes": 64, "sstable_bytes": 300},
)


class Pair:
    """The store under test beside the model; each step does the same to both."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.objects, self.meta = MemoryObjectStore(), MemoryMetaStore()
        self.options = StorageOptions(**rng.choice(SIZES))
        self.model = MemoryStateStore()
        self.epoch = 0
        self.written: list[bytes] = [b""]
        table = b"\x00\x00\x00\x01\x00\x00"
        alphabet = rng.choice(([b"a", b"b"], [b"\x00", b"\xff", b"k"], [table, b"xy", b"z"]))
        self.alphabet = [*alphabet, b""]
        self.open()

    def open(self) -> None:
        manager = HummockManager(self.meta, self.objects)
        self.store = HummockStorage(
            manager, self.objects, self.options, session=manager.claim_writer(),
            random_bytes=self.rng.randbytes,
        )  # fmt: skip

    def key(self) -> bytes:
        if self.rng.random() < 0.6:
            return self.rng.choice(self.written)
        table = LOCAL if self.rng.random() < 0.1 else b""
        return table + b"".join(self.rng.choices(self.alphabet, k=self.rng.randint(0, 6)))

    def some_epoch(self) -> Epoch:
        newest = self.epoch + 3
        return Epoch(self.rng.choice((newest, self.rng.randint(0, newest))) << 16 | self.rng.choice((0, 7)))

    def ingest(self) -> None:
        is_local = self.rng.random() < 0.05 and self.options.shared_buffer_bytes > 1_000
        keys = sorted({self.key() for _ in range(self.rng.choice((0, 1, 3, 30)))})
        keys = [key for key in keys if key.startswith(LOCAL) == is_local]
        sizes = [self.rng.choice((None, 0, 1, 9, 60)) for _ in keys]
        values = [None if size is None else self.rng.randbytes(size) for size in sizes]
        epoch = Epoch((max(self.epoch, self.sealed()) + self.rng.randint(1, 3)) << 16)
        batch = WriteBatch(list(zip(keys, values, strict=True)))
        for store in (self.store, self.model):
            store.ingest_batch(batch, epoch, local_only=is_local)
        self.written += keys

    def sealed(self) -> int:
        return self.model._sealed_epoch >> 16

    def seal(self) -> None:
        epoch = Epoch((self.sealed() + self.rng.randint(1, 2)) << 16)
        for store in (self.store, self.model):
            store.seal_epoch(epoch)

    def sync(self) -> None:
        if self.sealed() > self.epoch:
            for store in (self.store, self.model):
                store.sync(Epoch(self.sealed() << 16))

    def commit(self) -> None:
        self.epoch = max(self.epoch + 1, self.sealed())
        for store in (self.store, self.model):
            store.commit(Epoch(self.epoch << 16))

    def clear(self) -> None:
        for store in (self.store, self.model):
            store.clear_uncommitted()

    def reopen(self) -> None:
        self.store.close()
        self.open()
        self.model.clear_uncommitted()
        assert self.store.committed_epoch == self.model.committed_epoch

    def get(self) -> None:
        key, epoch = self.key(), self.some_epoch()
        assert self.store.get(key, epoch) == self.model.get(key, epoch), (key, epoch)

    def get_many(self) -> None:
        keys = [self.key() for _ in range(self.rng.choice((0, 1, 5, 40)))]
        epoch = self.some_epoch()
        found = [
            store.get_many(pa.array(keys, pa.binary()), epoch).to_arrow().to_pylist()
            for store in (self.store, self.model)
        ]
        assert found[0] == found[1], (keys, epoch)

    def scan(self) -> None:
        start, end = self.key(), self.rng.choice((None, self.key()))
        how = {"reverse": self.rng.random() < 0.5, "limit": self.rng.choice((None, None, 0, 1, 4))}
        epoch, rows = self.some_epoch(), self.rng.choice((None, 1, 2, 5))
        found = []
        for store in (self.store, self.model):
            with store.scan(KeyRange(start, end), epoch, **how) as scan:
                out: list[tuple[bytes, bytes]] = []
                while (batch := scan.next_batch(rows)) is not None:
                    out += list(batch)
                found.append(out)
        assert found[0] == found[1], (start, end, epoch, how)

    def scan_prefixes(self) -> None:
        prefixes = [self.key()[: self.rng.randint(0, 8)] for _ in range(self.rng.randint(0, 6))]
        how = {"reverse": self.rng.random() < 0.5, "limit": self.rng.choice((None, 1, 2))}
        epoch = self.some_epoch()
        found = []
        for store in (self.store, self.model):
            owners, batch = store.scan_prefixes(pa.array(prefixes, pa.binary()), epoch, **how)
            found.append((owners.tolist(), list(batch)))
        assert found[0] == found[1], (prefixes, epoch, how)


    def scan_many(self) -> None:
        starts = [self.key() for _ in range(self.rng.randint(0, 9))]
        ends = self.rng.choice((None, [self.rng.choice((None, self.key())) for _ in starts]))
        limit, epoch = self.rng.choice((None, 0, 1, 3)), self.some_epoch()
        found = []
        for store in (self.store, self.model):
            bounds = None if ends is None else pa.array(ends, pa.binary())
            owners, batch = store.scan_many(pa.array(starts, pa.binary()), epoch, ends=bounds, limit=limit)
            found.append((owners.tolist(), list(batch)))
        assert found[0] == found[1], (starts, ends, limit, epoch)


STEPS = {
    Pair.ingest: 10, Pair.seal: 2, Pair.sync: 2, Pair.commit: 4, Pair.clear: 0.5, Pair.reopen: 0.5,
    Pair.get: 6, Pair.get_many: 4, Pair.scan: 6, Pair.scan_prefixes: 3,
    Pair.scan_many: 3,
}  # fmt: skip


def run_program(seed: int) -> None:
    rng = random.Random(seed)
    pair = Pair(rng)
    done: list[str] = []
    try:
        for step in rng.choices(list(STEPS), list(STEPS.values()), k=rng.randint(5, 60)):
            done.append(step.__name__)
            step(pair)
    except BaseException as error:
        error.add_note(f"HUMMOCK_MODEL_SEED={seed}, {pair.options}, after {' '.join(done)}")
        raise
    finally:
        pair.store.close()


@pytest.mark.parametrize("first", range(0, PROGRAMS, PROGRAMS_PER_TEST))
def test_random_programs(first):
    for seed in range(first, first + PROGRAMS_PER_TEST):
        run_program(seed)


@pytest.mark.skipif("HUMMOCK_MODEL_SEED" not in os.environ, reason="names the seed of one program to run")
def test_one_program():
    run_program(int(os.environ["HUMMOCK_MODEL_SEED"]))
