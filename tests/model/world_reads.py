"""The reading steps of random programs: store and model return the same rows, or the store raises the right error."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from hummock.base.key import KeyRange
from hummock.epoch import Epoch
from hummock.errors import EpochTooOld, InvalidEpoch
from hummock.store.storage import HummockStorage
from tests.model.store_processes import OpenScan, Processes, Snapshot, refused

EVERYTHING = KeyRange(b"", None)
Rows = list[tuple[Any, ...]]        # key, value or None, and in some reads the index of the range


class Reads(Processes):
    """Every way to read, at any epoch, in two processes."""

    def both(self, epoch: Epoch, read: Callable[[Any, Epoch], Rows]) -> None:
        """`read` returns the same from the model, writer and reader; below the safe epoch it is refused."""
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
            self.model.dropped = version.dropped_tables
            found, expected = read(store, epoch), read(self.model, epoch)
            who = "the writer" if store is self.writer else "the reader"
            same(found, expected, f"{who} at {epoch >> 16}")

    def get(self) -> None:
        key = self.keys.draw()
        self.both(self.some_epoch(), lambda store, epoch: [(key, store.get(key, epoch))])

    def get_many(self) -> None:
        keys = [self.keys.draw() for _ in range(self.rng.choice((0, 1, 5, 40)))]
        asked = pa.array(keys, pa.binary())
        self.both(self.some_epoch(), lambda store, epoch: list(
            zip(keys, store.get_many(asked, epoch).to_arrow().to_pylist(), strict=True)))

    def scan(self) -> None:
        key_range = KeyRange(self.keys.draw(), self.rng.choice((None, self.keys.draw())))
        how = {"reverse": self.rng.random() < 0.5, "limit": self.rng.choice((None, None, 0, 1, 4))}
        rows = self.rng.choice((None, 1, 2, 5))
        self.both(self.some_epoch(), lambda store, epoch: rows_of(store, key_range, epoch, rows, **how))

    def scan_under_a_prefix(self) -> None:
        """A range that prefix filters may exclude."""
        key_range = KeyRange.prefix(self.keys.prefix())
        how = {"reverse": self.rng.random() < 0.5, "limit": self.rng.choice((None, 1))}
        self.both(self.some_epoch(), lambda store, epoch: rows_of(store, key_range, epoch, None, **how))

    def scan_prefixes(self) -> None:
        prefixes = [self.keys.prefix() for _ in range(self.rng.randint(0, 6))]
        how = {"reverse": self.rng.random() < 0.5, "limit": self.rng.choice((None, 1, 2))}
        asked = pa.array(prefixes, pa.binary())
        self.both(self.some_epoch(), lambda store, epoch: owned(*store.scan_prefixes(asked, epoch, **how)))

    def scan_many(self) -> None:
        drawn = [(self.keys.draw(), self.rng.choice((None, self.keys.draw())))
                 for _ in range(self.rng.choice((0, 1, 3, 20)))]
        ends = None if self.rng.random() < 0.5 else pa.array([end for _, end in drawn], pa.binary())
        limit = self.rng.choice((None, 0, 1, 5))
        starts = pa.array([start for start, _ in drawn], pa.binary())
        self.both(self.some_epoch(), lambda store, epoch: owned(
            *store.scan_many(starts, epoch, ends=ends, limit=limit)))

    def changes(self) -> None:
        """From an epoch to a later one, at most to the newest that the store knows."""
        key_range = self.rng.choice((EVERYTHING, KeyRange(self.keys.draw(), self.rng.choice((None, self.keys.draw())))))
        since, until = sorted((self.some_epoch(), self.some_epoch()))
        rows, known = self.rng.choice((None, 1, 2, 5)), until

        def read(store: Any, since: Epoch) -> Rows:
            nonlocal known
            if store is not self.model:
                known = until if store is self.writer else min(until, self.reader.version.max_committed_epoch)
            return changes_of(store, key_range, since, max(since, known), rows)

        self.both(since, read)

    def read_all(self) -> None:
        """Full scans in both directions at every pinned epoch and the newest."""
        for number in sorted({*self.pinned, self.epoch, max(self.epoch, self.sealed) + 3}):
            for reverse in (False, True):
                self.both(Epoch(number << 16), lambda store, epoch, reverse=reverse: rows_of(
                    store, EVERYTHING, epoch, None, reverse=reverse))

    def follow(self) -> None:
        """The reader waits for the committed epoch."""
        self.reader.wait_epoch(Epoch(self.epoch << 16), 0)
        assert self.reader.committed_epoch == self.epoch << 16

    # -- scans and snapshots that stay open during other steps ---------------------------------------------

    def begin_scan(self) -> None:
        store = self.rng.choice((self.writer, self.reader))
        epoch = Epoch(self.some_epoch() >> 16 << 16)
        if store is self.reader:
            epoch = min(epoch, store.committed_epoch)
        if epoch >= store.version.safe_epoch and len(self.scans) < 4:
            reverse = self.rng.random() < 0.5
            self.model.dropped = store.version.dropped_tables
            expected = rows_of(self.model, EVERYTHING, epoch, None, reverse=reverse)
            self.scans.append(OpenScan(store, store.scan(EVERYTHING, epoch, reverse=reverse), expected))

    def read_on(self) -> None:
        """A scan that was begun some steps ago still reads its first view."""
        if not self.scans:
            return
        held = self.rng.choice(self.scans)
        batch = held.scan.next_batch(self.rng.choice((1, 3, None)))
        found = [] if batch is None else list(batch)
        count = len(held.rows) if batch is None else len(found)
        same(found, held.rows[:count], "a scan that was held")
        del held.rows[:count]
        if batch is None:
            self.scans.remove(held)

    def take_snapshot(self) -> None:
        """One of the stores takes a snapshot and keeps it for some steps."""
        store = self.rng.choice((self.writer, self.reader))
        safe = self.pinner.refresh().safe_epoch >> 16
        if self.epoch >= max(safe, 1) and len(self.snapshots) < 3:
            number = self.rng.choice((None, self.rng.randint(safe, self.epoch)))
            holding = store.snapshot(None if number is None else Epoch(number << 16))
            self.snapshots.append(Snapshot(store, holding.__enter__() >> 16, holding))

    def release_snapshot(self) -> None:
        if self.snapshots:
            self.snapshots.pop(self.rng.randrange(len(self.snapshots))).holding.__exit__(None, None, None)


class ConcurrentReaders:
    """Threads that repeatedly read all of a committed epoch, in several ways, and expect the same rows each time."""

    def __init__(self, stores: list[HummockStorage], epoch: Epoch, rows: Rows):
        self.epoch, self.rows, self.failed = epoch, rows, []
        self.over, self.rounds = threading.Event(), 0
        self.threads = [threading.Thread(target=self.read, args=(store,)) for store in stores]

    def __enter__(self) -> ConcurrentReaders:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()
        if self.failed:
            raise self.failed[0]

    def read(self, store: HummockStorage) -> None:
        try:
            keys, first = (pa.array(values, pa.binary()) for values in ([key for key, _ in self.rows], [b""]))
            while True:
                same(rows_of(store, EVERYTHING, self.epoch, None), self.rows)
                same(rows_of(store, EVERYTHING, self.epoch, None, reverse=True), self.rows[::-1])
                same(list(zip(keys.to_pylist(), store.get_many(keys, self.epoch).to_arrow().to_pylist(),
                              strict=True)), self.rows)
                same(list(store.scan_many(first, self.epoch)[1]), self.rows)
                self.rounds += 1
                if self.over.is_set():
                    return
        except BaseException as error:      # raised in __exit__
            self.failed.append(error)


def same(found: Rows, expected: Rows, where: str = "a thread") -> None:
    assert found == expected, (
        f"{where}: {len(found)} of {len(expected)} rows, missing {[row for row in expected if row not in found]}, "
        f"more {[row for row in found if row not in expected]}")


def rows_of(store: Any, key_range: KeyRange, epoch: Epoch, batch_rows: int | None, **how: Any) -> Rows:
    with store.scan(key_range, epoch, **how) as scan:
        out: Rows = []
        while (batch := scan.next_batch(batch_rows)) is not None:
            assert 0 < len(batch) <= (batch_rows or len(batch))
            out += list(batch)
        return out


def changes_of(store: Any, key_range: KeyRange, since: Epoch, until: Epoch, batch_rows: int | None) -> Rows:
    with store.changes(key_range, since, until) as feed:
        out: Rows = []
        while (batch := feed.next_batch(batch_rows)) is not None:
            assert 0 < len(batch) <= (batch_rows or len(batch))
            out += list(batch)
        return out


def owned(owners: Any, batch: Any) -> Rows:
    """Rows, each with the index of its range."""
    return [(*row, owner) for row, owner in zip(batch, owners.tolist(), strict=True)]
