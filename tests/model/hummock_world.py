"""A world for random programs: a writer and a reader over one store, beside the plainest model of both.

Every step does the same to the store and to `MemoryStateStore`, or reads from both and compares. The writer's
manager also compacts, into many small files and levels; vacuum removes what that leaves; epochs are pinned and
given back; and what a caller may not do is tried between all of it, and must change nothing.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from hummock.compaction.execute import run_ranges
from hummock.epoch import SPILL_BITS, Epoch, pure_epoch
from hummock.errors import (
    EpochTooOld,
    Fenced,
    InvalidEpoch,
    InvalidWriteBatch,
    RoleMissing,
    StoreClosed,
    TaskRefused,
    WaitEpochTimeout,
)
from hummock.key import KeyRange, table_id_of
from hummock.memory_store import MemoryStateStore
from hummock.meta import MemoryMetaStore
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.vacuum import Vacuum
from hummock.object_store.base import mint_sstable_name
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import CompactionOptions, MetaOptions, StorageOptions, VacuumOptions
from hummock.storage import HummockStorage
from hummock.table_rules import PrefixRule, TableRules
from hummock.write_batch import WriteBatch
from tests.suites.manager_parts import StandingClock

LOCAL = b"local"        # keys of tables that are written locally only
LEASE_MS = 30_000
EVERYTHING = KeyRange(b"", None)
TABLE = 1               # the one that may have rules
NODE = "pins"           # who holds the program's snapshots
SIZES = (
    {},
    {f"{name}_bytes": 1 for name in ("block", "sstable", "block_cache", "meta_cache", "prefetch")},
    {"block_bytes": 100, "sstable_bytes": 600, "block_cache_bytes": 2_000, "scan_batch_rows": 3},
    {"block_bytes": 300, "sstable_bytes": 1 << 20, "prefetch_bytes": 700, "scan_batch_bytes": 50},
    {"shared_buffer_bytes": 400, "block_bytes": 200, "codec": "none"},
    {"shared_buffer_bytes": 1, "filter_policy": "pybloom", "codec": "zstd"},
    {"filter_policy": "none", "block_bytes": 64, "sstable_bytes": 300},
    {"retained_epochs": 2, "block_bytes": 100, "sstable_bytes": 600},
)
SHAPES = (
    {"base_level_bytes": 300, "l0_base_bytes": 200, "sstable_bytes": 200, "block_bytes": 60, "level_multiplier": 2},
    {"base_level_bytes": 100, "l0_base_bytes": 1, "sstable_bytes": 1, "block_bytes": 1, "level_multiplier": 2},
    {"base_level_bytes": 400, "l0_base_bytes": 1 << 20, "sstable_bytes": 200, "l0_runs": 2, "last_level": 3},
    {"base_level_bytes": 200, "l0_base_bytes": 400, "l0_runs": 2, "task_runs": 3, "task_bytes": 300, "last_level": 4},
    {"base_level_bytes": 150, "l0_base_bytes": 150, "sstable_bytes": 400, "block_bytes": 100, "range_bytes": 200,
     "level_multiplier": 3, "codecs": ("none", "lz4", "zstd")},
)


class RuledModel(MemoryStateStore):
    """The model with what a table's rules hide."""

    def __init__(self, ttl_ms: int):
        super().__init__()
        self.ttl_ms = ttl_ms

    def _visible(self, key: bytes, epoch: int) -> bytes | None:
        for written, value, _ in self._versions.get(key, ()):
            if written <= pure_epoch(epoch):
                is_over = self.ttl_ms and table_id_of(key) == TABLE and to_ms(written) < to_ms(epoch) - self.ttl_ms
                return None if is_over else value
        return None


class World:
    """The stores and the model. A step is a method without arguments; `finish` ends the program."""

    def __init__(self, rng: random.Random, sizes: dict | None = None):
        self.rng = rng
        self.clock = StandingClock()
        self.objects, self.meta = MemoryObjectStore(self.clock), MemoryMetaStore()
        self.options = StorageOptions(**(rng.choice(SIZES) if sizes is None else sizes))
        self.shape = CompactionOptions(history_ms=0, stale_percent=rng.choice((10, 40)), **rng.choice(SHAPES))
        self.model = RuledModel(rng.choice((0, 2, 6)))
        self.epoch = 0                      # number of the committed epoch
        self.pins: Counter[int] = Counter()
        self.written: list[bytes] = [b""]
        table = b"\x00\x00\x00\x01\x00\x00"
        alphabet = rng.choice(([b"a", b"b"], [b"\x00", b"\xff", b"k"], [table, b"xy", b"z"]))
        self.alphabet = [*alphabet, b""]
        self.zombies: list[HummockStorage] = []
        self.writer = self.open_writer()
        if self.model.ttl_ms:
            self.epoch = 1
            self.model.commit(Epoch(1 << 16))
            self.writer.commit(Epoch(1 << 16), tables={TABLE: TableRules(PrefixRule(8), self.model.ttl_ms)})
        self.reader = self.open_reader()
        self.pinner = self.manager()

    def manager(self) -> HummockManager:
        return HummockManager(self.meta, self.objects, self.clock, options=MetaOptions(lease_ms=LEASE_MS),
                              compaction=self.shape, random_bytes=self.rng.randbytes)

    def open_writer(self) -> HummockStorage:
        manager = self.manager()
        return HummockStorage(manager, self.objects, self.options, session=manager.claim_writer(),
                              random_bytes=self.rng.randbytes)

    def open_reader(self) -> HummockStorage:
        """As another process would open it: it shares no object with the writer but the stores."""
        return HummockStorage(self.manager(), self.objects, self.options, random_bytes=self.rng.randbytes,
                              committed_only=True)

    def close(self) -> None:
        for store in (self.writer, self.reader, *self.zombies):
            store.close()

    # -- what is drawn -------------------------------------------------------------------------------------

    def key(self) -> bytes:
        if self.rng.random() < 0.6:
            return self.rng.choice(self.written)
        table = LOCAL if self.rng.random() < 0.1 else b""
        return table + b"".join(self.rng.choices(self.alphabet, k=self.rng.randint(0, 6)))

    def some_epoch(self) -> Epoch:
        """Mostly one that is pinned or newer than all, else any."""
        newest = max(self.epoch, self.sealed) + 3
        number = self.rng.choice([newest, self.epoch, *self.pins, self.rng.randint(0, newest)])
        return Epoch(number << 16 | self.rng.choice((0, 7)))

    @property
    def sealed(self) -> int:
        return self.model._sealed_epoch >> 16

    # -- writing -------------------------------------------------------------------------------------------

    def ingest(self) -> None:
        is_local = self.rng.random() < 0.05 and self.options.shared_buffer_bytes > 1_000
        keys = sorted({self.key() for _ in range(self.rng.choice((0, 1, 3, 30)))})
        keys = [key for key in keys if key.startswith(LOCAL) == is_local]
        sizes = [self.rng.choice((None, 0, 1, 9, 60)) for _ in keys]
        values = [None if size is None else self.rng.randbytes(size) for size in sizes]
        epoch = Epoch((max(self.epoch, self.sealed) + self.rng.randint(1, 3)) << 16)
        batch = WriteBatch(list(zip(keys, values, strict=True)))
        for store in (self.writer, self.model):
            store.ingest_batch(batch, epoch, local_only=is_local)
        self.written += keys

    def seal(self) -> None:
        epoch = Epoch((self.sealed + self.rng.randint(1, 2)) << 16)
        for store in (self.writer, self.model):
            store.seal_epoch(epoch)

    def sync(self) -> None:
        if self.sealed > self.epoch:
            for store in (self.writer, self.model):
                store.sync(Epoch(self.sealed << 16))

    def commit(self) -> None:
        self.epoch = max(self.epoch + 1, self.sealed)
        for store in (self.writer, self.model):
            store.commit(Epoch(self.epoch << 16))

    def clear(self) -> None:
        for store in (self.writer, self.model):
            store.clear_uncommitted()

    def reopen(self) -> None:
        """Another process takes the role over; the former one may not know of it yet."""
        if self.rng.random() < 0.3 and not self.zombies:
            self.zombies.append(self.writer)
        else:
            self.writer.close()
        self.writer = self.open_writer()
        self.model.clear_uncommitted()
        assert self.writer.committed_epoch == self.model.committed_epoch

    def reopen_reader(self) -> None:
        self.reader.close()
        self.reader = self.open_reader()

    # -- reading -------------------------------------------------------------------------------------------

    def both(self, epoch: Epoch, read: Callable[[object, Epoch], object]) -> None:
        """What `read` finds is what the model says, here and elsewhere; or it is refused below the safe epoch."""
        for store in (self.writer, self.reader):
            version = store.version
            if epoch | 0xFFFF < version.safe_epoch:
                with refused(EpochTooOld):
                    read(store, epoch)
                continue
            if store is self.reader and epoch > version.max_committed_epoch | 0xFFFF:
                with refused(InvalidEpoch):
                    read(store, epoch)
                epoch = version.max_committed_epoch
            found, expected = read(store, epoch), read(self.model, epoch)
            who = "the writer" if store is self.writer else "the reader"
            assert found == expected, f"{who} at {epoch >> 16}: {found} is not {expected}"

    def get(self) -> None:
        key = self.key()
        self.both(self.some_epoch(), lambda store, epoch: store.get(key, epoch))

    def get_many(self) -> None:
        keys = pa.array([self.key() for _ in range(self.rng.choice((0, 1, 5, 40)))], pa.binary())
        self.both(self.some_epoch(), lambda store, epoch: store.get_many(keys, epoch).to_arrow().to_pylist())

    def scan(self) -> None:
        key_range = KeyRange(self.key(), self.rng.choice((None, self.key())))
        how = {"reverse": self.rng.random() < 0.5, "limit": self.rng.choice((None, None, 0, 1, 4))}
        rows = self.rng.choice((None, 1, 2, 5))
        self.both(self.some_epoch(), lambda store, epoch: rows_of(store, key_range, epoch, rows, **how))

    def scan_prefixes(self) -> None:
        prefixes = [self.key()[: self.rng.randint(0, 8)] for _ in range(self.rng.randint(0, 6))]
        how = {"reverse": self.rng.random() < 0.5, "limit": self.rng.choice((None, 1, 2))}

        def read(store, epoch):
            owners, batch = store.scan_prefixes(pa.array(prefixes, pa.binary()), epoch, **how)
            return owners.tolist(), list(batch)

        self.both(self.some_epoch(), read)

    def scan_many(self) -> None:
        ranges = [(self.key(), self.rng.choice((None, self.key()))) for _ in range(self.rng.choice((0, 1, 3, 20)))]
        starts, ends = (pa.array(list(bounds), pa.binary()) for bounds in zip(*ranges, strict=True)) if ranges else (
            pa.array([], pa.binary()), None)
        how = {"ends": self.rng.choice((None, ends)), "limit": self.rng.choice((None, 0, 1, 5))}

        def read(store, epoch):
            owners, batch = store.scan_many(starts, epoch, **how)
            return owners.tolist(), list(batch)

        self.both(self.some_epoch(), read)

    def follow(self) -> None:
        """The reader waits for what is committed."""
        self.reader.wait_epoch(Epoch(self.epoch << 16), 0)
        assert self.reader.committed_epoch == self.epoch << 16

    def read_all(self) -> None:
        """Every pinned epoch and the newest, whole, both ways."""
        for number in sorted({*self.pins, self.epoch, max(self.epoch, self.sealed) + 3}):
            for reverse in (False, True):
                self.both(Epoch(number << 16), lambda store, epoch, reverse=reverse: rows_of(
                    store, EVERYTHING, epoch, None, reverse=reverse))

    # -- the life of files ---------------------------------------------------------------------------------

    def pin(self) -> None:
        safe = self.pinner.refresh().safe_epoch >> 16
        if self.epoch >= safe and self.epoch > 0:
            number = self.rng.choice((self.epoch, self.rng.randint(safe, self.epoch)))
            self.pinner.pin_snapshot(NODE, Epoch(number << 16))
            self.pins[number] += 1

    def unpin(self) -> None:
        if self.pins:
            number = self.rng.choice(list(self.pins))
            self.pinner.unpin_snapshot(NODE, Epoch(number << 16))
            self.pins[number] -= 1
            self.pins = +self.pins
            if self.rng.random() < .5:
                self.pinner.renew_lease(NODE)       # only now others see it

    def compact(self) -> None:
        """Up to three tasks, some of which are left half done, fail, or are reported twice."""
        manager = self.pinner if self.rng.random() < .5 else self.manager()
        if self.rng.random() < .05:
            manager.compact_range(KeyRange(min(bounds := [self.key(), self.key()]), max(bounds) or None))
        for _ in range(self.rng.randint(1, 3)):
            if (given := manager.get_compact_task("compactor")) is None:
                break
            task, token = given
            fate = self.rng.random()
            if fate < .1:
                manager.fail_task(task.id, token, "it was told to")
                self.clock.advance(5_000)
                self.renew()
                continue
            results = run_ranges(task, self.objects, lambda token=token: mint_sstable_name(
                self.rng.randbytes, token[:16]), threads=1, memory_bytes=1 << 20)
            if fate < .2:
                manager.cancel_task(task.id)
                with refused(TaskRefused):
                    manager.report_compact_task(task.id, token, results)
                continue
            for _ in range(2 if fate < .4 else 1):
                manager.report_compact_task(task.id, token, results)
        self.check_pins()
        self.read_all()

    def vacuum(self) -> None:
        Vacuum(self.meta, self.objects, self.clock, options=VacuumOptions(grace_ms=0, tombstone_ms=0)).run()
        self.read_all()

    def pass_time(self) -> None:
        """Less than a lease at once; who lives renews his."""
        self.clock.advance(self.rng.choice((1, 1_000, LEASE_MS - 1)))
        self.renew()

    def renew(self) -> None:
        for store in (self.writer, self.reader):
            store._local._kept(store.meta_client.renew_lease)
        if self.pins:
            self.pinner.renew_lease(NODE)

    def check_pins(self) -> None:
        version = self.pinner.refresh()
        assert all(number << 16 >= version.safe_epoch for number in self.pins), (version.safe_epoch >> 16, self.pins)

    # -- what must not be done (P12) -----------------------------------------------------------------------

    def misuse(self) -> None:
        """One call that is refused by its name. That it changed nothing is seen by the steps that follow."""
        sealed, committed = Epoch(self.sealed << 16), Epoch(self.epoch << 16)
        future = Epoch((max(self.sealed, self.epoch) + 9) << 16)
        row = WriteBatch([(self.key(), b"never")])
        name, error, call = self.rng.choice([
            ("unsorted", InvalidWriteBatch, lambda: WriteBatch([(b"b", b""), (b"a", b"")])),
            ("repeated", InvalidWriteBatch, lambda: WriteBatch([(b"b", b""), (b"b", None)])),
            ("into what is sealed", InvalidEpoch, lambda: self.writer.ingest_batch(row, sealed)),
            ("into an impure epoch", InvalidEpoch, lambda: self.writer.ingest_batch(row, Epoch(future + 1))),
            ("into epoch 0", InvalidEpoch, lambda: self.writer.ingest_batch(row, Epoch(0))),
            ("sync of what is open", InvalidEpoch, lambda: self.writer.sync(future)),
            ("seal of less", InvalidEpoch, lambda: self.writer.seal_epoch(Epoch(sealed - (1 << 16)))),
            ("commit of less", InvalidEpoch, lambda: self.writer.commit(Epoch(committed - (1 << 16)))),
            ("commit without the role", RoleMissing, lambda: self.reader.commit(future)),
            ("write without the role", RoleMissing, lambda: self.reader.ingest_batch(row, future)),
            ("wait for the future", WaitEpochTimeout, lambda: self.reader.wait_epoch(future, 0)),
            ("pin of the future", InvalidEpoch, lambda: self.pinner.pin_snapshot(NODE, future)),
            ("report of nothing", TaskRefused, lambda: self.pinner.report_compact_task(1 << 40, "00" * 16, [])),
        ])
        if name == "seal of less" and self.sealed == 0:
            return
        with refused(error):
            call()

    def misuse_of_a_lost_role(self) -> None:
        """A writer that was taken over writes and commits: nobody ever sees it."""
        if self.zombies:
            zombie = self.zombies.pop()
            epoch = Epoch(10_000 << 16)
            zombie.ingest_batch(WriteBatch([(self.key(), b"a zombie's")]), epoch)
            with refused(Fenced):
                zombie.commit(epoch)
            zombie.close()
            with refused(StoreClosed):
                zombie.get(b"", epoch)


def to_ms(epoch: int) -> int:
    return epoch >> SPILL_BITS


def rows_of(store, key_range, epoch, batch_rows, **how) -> list[tuple[bytes, bytes]]:
    with store.scan(key_range, epoch, **how) as scan:
        out: list[tuple[bytes, bytes]] = []
        while (batch := scan.next_batch(batch_rows)) is not None:
            assert 0 < len(batch) <= (batch_rows or len(batch))
            out += list(batch)
        return out


@contextmanager
def refused(error: type[Exception]) -> Iterator[None]:
    try:
        yield
    except error:
        return
    raise AssertionError(f"was not refused by {error.__name__}")


STEPS: dict[Callable[[World], None], float] = {
    World.ingest: 12, World.seal: 2, World.sync: 2, World.commit: 8, World.clear: 0.5, World.reopen: 0.7,
    World.get: 5, World.get_many: 4, World.scan: 5, World.scan_prefixes: 3, World.scan_many: 3, World.follow: 3,
    World.reopen_reader: 0.7,
    World.pin: 3, World.unpin: 2, World.compact: 7, World.vacuum: 2, World.pass_time: 1.5, World.misuse: 3,
    World.misuse_of_a_lost_role: 1,
}  # fmt: skip
