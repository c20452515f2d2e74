"""SharedBuffer: what was written in this process and is not yet in a version.

A batch waits until it is cut, with its neighbours, into an upload task; once the task is durable, a staged run of SSTs
replaces its batches, and later the version that holds the run replaces that. Sources are ordered by age: later epochs
first, and within one epoch later arrivals first, so that the later write wins. An epoch may be uploaded in several
flushes, when writes outrun the uploads; the rows of a flush are stored with its number as spill offset. A task is never
changed until it succeeds: its position among earlier and later flushes is fixed.

The buffer has no lock of its own: every method REQUIRES its owner's.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TypeAlias

from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import SPILL_MASK, Epoch, check_committable, pure_epoch, with_spill
from hummock.errors import InvalidEpoch
from hummock.shared_buffer.batch import SharedBufferBatch
from hummock.sstable.info import SstableInfo


@dataclass(slots=True, eq=False)
class UploadTask:
    """Batches, newest first, that become one sorted run under spill offset `flush` of their epochs."""

    batches: tuple[SharedBufferBatch, ...]
    flush: int
    sync_epoch: Epoch | None = None  # the sync whose result contains its files
    is_running: bool = False

    @property
    def max_epoch(self) -> Epoch:
        return pure_epoch(self.batches[0].epoch)

    @property
    def min_epoch(self) -> Epoch:
        return pure_epoch(self.batches[-1].epoch)

    @property
    def size_bytes(self) -> int:
        return sum(batch.size_bytes for batch in self.batches)


@dataclass(frozen=True, slots=True)
class StagedRun:
    """One uploaded sorted run of disjoint files, ascending, that no version holds yet."""

    sstables: tuple[SstableInfo, ...]
    max_epoch: Epoch  # pure
    min_epoch: Epoch  # pure
    sync_epoch: Epoch | None  # the sync whose result contained the files; None before the first


Source: TypeAlias = "SharedBufferBatch | StagedRun"


class SharedBuffer:
    """Invariant: `sources` is newest first; a row is in exactly one batch, staged run or version."""

    def __init__(self, limit_bytes: int, sealed_epoch: Epoch):
        self.limit_bytes = limit_bytes
        self.waiting_bytes = 0  # of batches that are to be uploaded and are not durable yet
        self.uncut_bytes = 0  # the part of it that is in no task
        self.local_bytes = 0  # of batches that are never uploaded; limited separately, by the same amount
        self.sealed_epoch = sealed_epoch
        self._sources: list[Source] = []
        self._tasks: list[UploadTask] = []  # unfinished, in the order of cutting
        self._cut: set[int] = set()  # ids of the batches in them
        self._flushes: dict[Epoch, int] = {}  # number of flushes cut, by epoch

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(self._sources)

    @property
    def running_tasks(self) -> int:
        return sum(task.is_running for task in self._tasks)

    @property
    def waiting_tasks(self) -> int:
        return len(self._tasks) - self.running_tasks

    @property
    def staged_files(self) -> int:
        return sum(len(source.sstables) for source in self._sources if isinstance(source, StagedRun))

    def has_room(self, size_bytes: int, is_local: bool) -> bool:
        """Whether a batch of that size may enter; one larger than the limit enters an empty buffer."""
        held = self.local_bytes if is_local else self.waiting_bytes
        return held == 0 or held + size_bytes <= self.limit_bytes

    def check_open(self, epoch: Epoch) -> None:
        """Raises `InvalidEpoch` unless writes at `epoch` are still allowed."""
        if check_committable(epoch) <= self.sealed_epoch:
            raise InvalidEpoch(epoch, f"writes go above the sealed epoch {self.sealed_epoch}")

    def add(self, rows: WriteBatch, epoch: Epoch, is_local: bool) -> None:
        """Adds a batch of at least one row. `InvalidEpoch` after 65,536 flushes of an epoch."""
        self.check_open(epoch)
        batch = SharedBufferBatch(rows, with_spill(epoch, self._flushes.get(epoch, 0)), is_local)
        if is_local:  # no key is written both ways, so it may be ordered below its epoch, where it splits no task
            self._sources.insert(bisect_left(self._sources, (-epoch, True), key=_age_order), batch)
            self.local_bytes += batch.size_bytes
        else:
            self._sources.insert(bisect_left(self._sources, -epoch, key=_age), batch)
            self.waiting_bytes += batch.size_bytes
            self.uncut_bytes += batch.size_bytes

    def seal(self, epoch: Epoch) -> None:
        """Ends writes at or below `epoch`. Raises `InvalidEpoch` below the sealed epoch."""
        if check_committable(epoch) < self.sealed_epoch:
            raise InvalidEpoch(epoch, f"{self.sealed_epoch} is sealed already")
        self.sealed_epoch = epoch

    # -- uploads -------------------------------------------------------------------------------------------

    def cut_through(self, epoch: Epoch) -> None:
        """Cuts tasks so that everything at or below `epoch` is in one; results not yet assigned to a sync are assigned
        to `epoch`.

        Neighbours of any epochs become one task: one run for all, unless an earlier flush lies between them.
        """
        groups: list[list[SharedBufferBatch]] = [[]]
        for source in self._sources:
            if _pure(source) > epoch:
                continue
            if isinstance(source, SharedBufferBatch) and not source.is_local and id(source) not in self._cut:
                groups[-1].append(source)
            elif groups[-1]:
                groups.append([])
        for group in reversed(groups):
            if group:
                self._cut_task(group)
        for task in self._tasks:
            if task.sync_epoch is None and task.max_epoch <= epoch:
                task.sync_epoch = epoch
        self._assign(None, epoch, epoch)

    def cut_oldest(self) -> None:
        """Cuts the waiting batches of the oldest epoch, sealed or not, into a task."""
        uncut = [
            source
            for source in self._sources
            if isinstance(source, SharedBufferBatch) and not source.is_local and id(source) not in self._cut
        ]
        if uncut:
            oldest = pure_epoch(uncut[-1].epoch)
            self._cut_task([batch for batch in uncut if pure_epoch(batch.epoch) == oldest])

    def start(self, epoch: Epoch | None = None) -> UploadTask | None:
        """The oldest task that is not running, of those that reach down to `epoch`; marks it as running."""
        for task in self._tasks:
            if not task.is_running and (epoch is None or task.min_epoch <= epoch):
                task.is_running = True
                return task
        return None

    def is_startable(self, epoch: Epoch) -> bool:
        """Whether `start` would return a task."""
        return any(not task.is_running and task.min_epoch <= epoch for task in self._tasks)

    def is_pending(self, epoch: Epoch) -> bool:
        """Whether a task with data at or below `epoch` is not durable yet."""
        return any(task.min_epoch <= epoch for task in self._tasks)

    def fail(self, task: UploadTask) -> None:
        """Returns the task to the queue."""
        task.is_running = False

    def finish(self, task: UploadTask, sstables: tuple[SstableInfo, ...]) -> None:
        """Replaces the task's batches by the run that they became."""
        self._tasks.remove(task)
        done = {id(batch) for batch in task.batches}
        position = next((at for at, source in enumerate(self._sources) if id(source) in done), None)
        left = [source for source in self._sources if id(source) not in done]
        if sstables and position is not None:  # otherwise a version has superseded them meanwhile
            left.insert(position, StagedRun(sstables, task.max_epoch, task.min_epoch, task.sync_epoch))
        self._replace(left)

    def files_of_sync(self, epoch: Epoch) -> tuple[SstableInfo, ...]:
        """The files of all runs assigned to a sync at `epoch`; newest run first."""
        given = (source for source in self._sources if isinstance(source, StagedRun) and source.sync_epoch == epoch)
        return tuple(info for run in given for info in run.sstables)

    @property
    def inline_bytes(self) -> int:
        """Of the inline files of all runs that no version holds."""
        return sum(len(info.inline_data) for source in self._sources if isinstance(source, StagedRun)
                   for info in source.sstables)

    def unassign(self, epoch: Epoch) -> None:
        """Unassigns the results of a failed sync at `epoch`; the next sync gets them."""
        for task in self._tasks:
            if task.sync_epoch == epoch:
                task.sync_epoch = None
        self._assign(epoch, epoch, None)

    # -- versions ------------------------------------------------------------------------------------------

    def staged_through(self, epoch: Epoch) -> tuple[SstableInfo, ...]:
        """The files of all runs at or below `epoch`, assigned to a sync or not; newest run first.

        Raises `InvalidEpoch` where an epoch at or below shares a run with a later one: they can only be committed
        together.
        """
        staged = [source for source in self._sources if isinstance(source, StagedRun)]
        for run in staged:
            if run.min_epoch <= epoch < run.max_epoch:
                raise InvalidEpoch(epoch, f"was synced together with {run.max_epoch} and is committed with it")
        return tuple(info for run in staged if run.max_epoch <= epoch for info in run.sstables)

    def drop_through(self, epoch: Epoch) -> tuple[SstableInfo, ...]:
        """Drops everything at or below `epoch`, which a version holds; returns the files of the dropped staged runs."""
        gone = [source for source in self._sources if isinstance(source, StagedRun) and source.max_epoch <= epoch]
        names = tuple(info for run in gone for info in run.sstables)
        left = [source for source in self._sources if _pure(source) > epoch]
        flushes = {pure: count for pure, count in self._flushes.items() if pure > epoch}
        self._tasks = [task for task in self._tasks if task.max_epoch > epoch or task.is_running]
        self._replace(left)
        self._flushes = flushes
        self.sealed_epoch = max(self.sealed_epoch, epoch)
        return names

    def clear(self, committed_epoch: Epoch) -> None:
        """Drops everything; accepts writes above `committed_epoch` again. REQUIRES that no task runs."""
        self._tasks, self._flushes = [], {}
        self._replace([])
        self.sealed_epoch = committed_epoch

    def _cut_task(self, batches: list[SharedBufferBatch]) -> None:
        epochs = {pure_epoch(batch.epoch) for batch in batches}
        flush = max(self._flushes.get(pure, 0) for pure in epochs)
        self._tasks.append(UploadTask(tuple(batches), with_spill(batches[0].epoch, flush) & SPILL_MASK))
        self._flushes.update(dict.fromkeys(epochs, flush + 1))
        self._cut.update(id(batch) for batch in batches)
        self.uncut_bytes -= sum(batch.size_bytes for batch in batches)

    def _assign(self, held: Epoch | None, through: Epoch, given: Epoch | None) -> None:
        for position, source in enumerate(self._sources):
            if isinstance(source, StagedRun) and source.sync_epoch == held and source.max_epoch <= through:
                self._sources[position] = replace(source, sync_epoch=given)

    def _replace(self, sources: list[Source]) -> None:
        self._sources = sources
        batches = [source for source in sources if isinstance(source, SharedBufferBatch)]
        self._cut = {id(batch) for task in self._tasks for batch in task.batches}
        self.local_bytes = sum(batch.size_bytes for batch in batches if batch.is_local)
        self.waiting_bytes = sum(batch.size_bytes for batch in batches) - self.local_bytes
        self.uncut_bytes = sum(
            batch.size_bytes for batch in batches if not batch.is_local and id(batch) not in self._cut
        )


def _pure(source: Source) -> Epoch:
    return source.max_epoch if isinstance(source, StagedRun) else pure_epoch(source.epoch)


def _age(source: Source) -> int:
    """Sort key, ascending from newest to oldest."""
    return -_pure(source)


def _age_order(source: Source) -> tuple[int, bool]:
    """As `_age`; within an epoch local batches are ordered below all others."""
    return -_pure(source), isinstance(source, SharedBufferBatch) and source.is_local
