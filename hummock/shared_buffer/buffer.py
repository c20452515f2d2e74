"""SharedBuffer: what was written here and is not yet in a version.

A batch waits for its upload; then its rows are in a staged run of SSTs until a version holds them. Within one
pure epoch batches stand in the order in which they came: one whose key range overlaps an earlier one gets the
next spill offset, so that the later write wins. An epoch may be uploaded in several flushes, when writes
outran the limit on waiting bytes; the rows of a flush are stored under its number as spill offset.

The buffer has no lock of its own: every method REQUIRES its owner's.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from hummock.epoch import SPILL_MASK, Epoch, check_pure, pure_epoch, with_spill
from hummock.errors import InvalidEpoch
from hummock.shared_buffer.batch import SharedBufferBatch
from hummock.sstable.info import SstableInfo
from hummock.write_batch import WriteBatch

TABLE_ID_BYTES = 4


@dataclass(frozen=True, slots=True)
class UploadTask:
    """Batches, newest first, that become one sorted run under spill offset `flush` of their epochs."""

    batches: tuple[SharedBufferBatch, ...]
    max_epoch: Epoch  # pure
    flush: int


@dataclass(frozen=True, slots=True)
class StagedRun:
    """One uploaded sorted run of disjoint files, ascending, that no version holds yet."""

    sstables: tuple[SstableInfo, ...]
    max_epoch: Epoch  # pure
    flush: int
    synced_at: Epoch | None  # the sync that handed it out; None: spilled, and no sync has asked yet


Source: TypeAlias = "SharedBufferBatch | StagedRun"


class _EpochOrder:
    """Decides the spill offset of the next batch of one pure epoch, and of its next flush."""

    __slots__ = ("flushes", "hulls", "offset")

    def __init__(self) -> None:
        self.flushes = 0
        self.offset = 0
        self.hulls: dict[bytes, tuple[bytes, bytes]] = {}  # by table, at `offset`; b"": many

    def place(self, smallest: bytes, largest: bytes) -> int:
        """The offset for a batch that comes now and spans these user keys.

        A hull may be wider than its batches: an offset too many costs nothing, one too few loses an update.
        """
        table = smallest[:TABLE_ID_BYTES]
        if table != largest[:TABLE_ID_BYTES]:
            table = b""
        hulls = self.hulls.values() if not table else [self.hulls.get(table), self.hulls.get(b"")]
        if any(hull is not None and smallest <= hull[1] and hull[0] <= largest for hull in hulls):
            self.offset += 1
            self.hulls = {}
        low, high = self.hulls.get(table, (smallest, largest))
        self.hulls[table] = min(low, smallest), max(high, largest)
        return self.offset


class SharedBuffer:
    """Invariant: `sources` is newest first; a row is in exactly one batch, staged run or version."""

    def __init__(self, limit_bytes: int, sealed_epoch: Epoch):
        self.limit_bytes = limit_bytes
        self.waiting_bytes = 0  # of batches that an upload will take
        self.local_bytes = 0  # of batches that are never uploaded; they have a limit of their own, as large
        self.sealed_epoch = sealed_epoch
        self._sources: list[Source] = []
        self._orders: dict[Epoch, _EpochOrder] = {}

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(self._sources)

    def has_room(self, size_bytes: int, is_local: bool) -> bool:
        """Whether a batch of that size may enter; one larger than the limit enters an empty buffer."""
        held = self.local_bytes if is_local else self.waiting_bytes
        return held == 0 or held + size_bytes <= self.limit_bytes

    def check_open(self, epoch: Epoch) -> None:
        """Raises `InvalidEpoch` unless writes at `epoch` are still allowed."""
        if check_pure(epoch) <= self.sealed_epoch:
            raise InvalidEpoch(epoch, f"writes go above the sealed epoch {self.sealed_epoch}")

    def add(self, rows: WriteBatch, epoch: Epoch, is_local: bool) -> None:
        """Takes a batch of at least one row. `InvalidEpoch` after 65,536 overlapping batches of an epoch."""
        self.check_open(epoch)
        order = self._orders.setdefault(epoch, _EpochOrder())
        offset = order.place(rows.keys[0], rows.keys[len(rows) - 1])
        batch = SharedBufferBatch(rows, with_spill(epoch, offset), is_local)
        insort(self._sources, batch, key=_newest_first)
        if is_local:
            self.local_bytes += batch.size_bytes
        else:
            self.waiting_bytes += batch.size_bytes

    def seal(self, epoch: Epoch) -> None:
        """No more writes at or below `epoch`. Raises `InvalidEpoch` below what is sealed already."""
        if check_pure(epoch) < self.sealed_epoch:
            raise InvalidEpoch(epoch, f"{self.sealed_epoch} is sealed already")
        self.sealed_epoch = epoch

    def tasks_through(self, epoch: Epoch) -> list[UploadTask]:
        """What to upload so that nothing at or below `epoch` waits, oldest first.

        One run for all epochs; but one for each epoch where one of them was spilled before, since rows of the
        spilled flush stand between those of the epochs around it.
        """
        waiting = self._waiting(lambda pure: pure <= epoch)
        epochs = sorted({pure_epoch(batch.epoch) for batch in waiting})
        if any(self._orders[pure].flushes for pure in epochs):
            return [self._task([b for b in waiting if pure_epoch(b.epoch) == pure], pure) for pure in epochs]
        return [self._task(waiting, epochs[-1])] if epochs else []

    def spill_task(self) -> UploadTask | None:
        """The waiting batches of the oldest epoch, sealed or not; None when nothing waits."""
        waiting = self._waiting(lambda pure: True)
        if not waiting:
            return None
        oldest = pure_epoch(waiting[-1].epoch)
        return self._task([batch for batch in waiting if pure_epoch(batch.epoch) == oldest], oldest)

    def finish(self, task: UploadTask, sstables: tuple[SstableInfo, ...], synced_at: Epoch | None) -> None:
        """The task's batches give way to the run that they became."""
        done = {id(batch) for batch in task.batches}
        self._replace([source for source in self._sources if id(source) not in done])
        for batch in task.batches:
            self._orders[pure_epoch(batch.epoch)].flushes = task.flush + 1
        if sstables:
            run = StagedRun(sstables, task.max_epoch, task.flush, synced_at)
            insort(self._sources, run, key=_newest_first)

    def hand_out(self, epoch: Epoch) -> tuple[SstableInfo, ...]:
        """The files of all runs at or below `epoch` that no other sync has handed out; newest run first."""
        handed: list[SstableInfo] = []
        for position, source in enumerate(self._sources):
            if not isinstance(source, StagedRun) or source.max_epoch > epoch:
                continue
            if source.synced_at is None:
                source = StagedRun(source.sstables, source.max_epoch, source.flush, epoch)
                self._sources[position] = source
            if source.synced_at == epoch:
                handed += source.sstables
        return tuple(handed)

    def staged_through(self, epoch: Epoch) -> tuple[SstableInfo, ...]:
        """The files of all runs at or below `epoch`, handed out or not; newest run first."""
        staged = (source for source in self._sources if isinstance(source, StagedRun))
        return tuple(info for run in staged if run.max_epoch <= epoch for info in run.sstables)

    def drop_through(self, epoch: Epoch) -> None:
        """A version holds everything at or below `epoch`."""
        self._replace([source for source in self._sources if _pure(source) > epoch])
        self._orders = {pure: order for pure, order in self._orders.items() if pure > epoch}

    def clear(self, committed_epoch: Epoch) -> None:
        """Forgets everything; writes above `committed_epoch` are welcome again."""
        self._replace([])
        self._orders = {}
        self.sealed_epoch = committed_epoch

    def _waiting(self, wanted: Callable[[Epoch], bool]) -> list[SharedBufferBatch]:
        batches = (source for source in self._sources if isinstance(source, SharedBufferBatch))
        return [batch for batch in batches if not batch.is_local and wanted(pure_epoch(batch.epoch))]

    def _task(self, batches: list[SharedBufferBatch], max_epoch: Epoch) -> UploadTask:
        flush = with_spill(max_epoch, self._orders[max_epoch].flushes) & SPILL_MASK
        return UploadTask(tuple(batches), max_epoch, flush)

    def _replace(self, sources: list[Source]) -> None:
        self._sources = sources
        batches = [source for source in sources if isinstance(source, SharedBufferBatch)]
        self.local_bytes = sum(batch.size_bytes for batch in batches if batch.is_local)
        self.waiting_bytes = sum(batch.size_bytes for batch in batches) - self.local_bytes


def _pure(source: Source) -> Epoch:
    return source.max_epoch if isinstance(source, StagedRun) else pure_epoch(source.epoch)


def _newest_first(source: Source) -> tuple[int, int]:
    """Later epochs first; within one, batches before what was flushed of it, and later ones first."""
    if isinstance(source, StagedRun):
        return -source.max_epoch, SPILL_MASK + 1 - source.flush
    return -pure_epoch(source.epoch), -(source.epoch & SPILL_MASK)
