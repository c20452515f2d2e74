"""RetainedEpochs: committed batches that stay in memory and are read in place of the files that they became.

A set of batches equals the files of one flush: at every epoch both give the same rows. So it may stand wherever
all of those files stand together in one run, and nowhere else: once compaction has taken one of them the set is
forgotten. Sets leave oldest first, when newer epochs or newer writes want the room.

It has no lock of its own: every method REQUIRES its owner's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hummock.epoch import NEVER, Epoch
from hummock.shared_buffer.batch import SharedBufferBatch
from hummock.sstable.info import SstableInfo


@dataclass(frozen=True, slots=True)
class RetainedSet:
    """`batches`, newest first, hold what the files of these names hold."""

    names: frozenset[str]
    batches: tuple[SharedBufferBatch, ...]
    max_epoch: Epoch
    size_bytes: int


class RetainedEpochs:
    """Sets of the newest `epochs` committed epochs, and of those that are not committed yet."""

    def __init__(self, epochs: int):
        self.size_bytes = 0
        self._epochs = epochs
        self._committed: deque[Epoch] = deque(maxlen=epochs + 1)
        self._sets: deque[RetainedSet] = deque()  # oldest first
        self._by_name: dict[str, RetainedSet] = {}

    def keep(self, batches: tuple[SharedBufferBatch, ...], sstables: Sequence[SstableInfo], epoch: Epoch) -> None:
        """Batches, newest first, that became these files; `epoch` is their newest."""
        if self._epochs == 0 or not sstables:
            return
        size = sum(batch.size_bytes for batch in batches)
        kept = RetainedSet(frozenset(info.name for info in sstables), batches, epoch, size)
        self._sets.append(kept)
        self._by_name.update(dict.fromkeys(kept.names, kept))
        self.size_bytes += size

    def commit(self, epoch: Epoch, runs: Iterable[Sequence[SstableInfo]]) -> None:
        """A version with `epoch` committed has these runs: sets that are too old or that no run holds go."""
        if self._epochs == 0:
            return
        if not self._committed or epoch > self._committed[-1]:
            self._committed.append(epoch)
        oldest = self._committed[0] if len(self._committed) > self._epochs else NEVER
        whole = {found.names for run in runs for found in self._within(run)}
        self._restrict([kept for kept in self._sets if kept.max_epoch > epoch or (
            kept.max_epoch > oldest and kept.names in whole)])  # fmt: skip

    def shrink(self, limit_bytes: int) -> bool:
        """Drops the oldest sets until at most that many bytes are kept; whether any went."""
        shrunk = False
        while self.size_bytes > max(limit_bytes, 0):
            self._restrict(list(self._sets)[1:])
            shrunk = True
        return shrunk

    def clear(self, committed_epoch: Epoch) -> None:
        """What is above the committed epoch was given up."""
        self._restrict([kept for kept in self._sets if kept.max_epoch <= committed_epoch])

    def part(self, run: Sequence[SstableInfo]) -> tuple[list[SharedBufferBatch], Sequence[SstableInfo]]:
        """(batches, newest first, that stand for files of the run; the files that none stand for)."""
        found = self._within(run) if self._by_name else []
        if not found:
            return [], run
        covered = frozenset().union(*(kept.names for kept in found))
        rest = tuple(info for info in run if info.name not in covered)
        return [batch for kept in reversed(found) for batch in kept.batches], rest

    def _within(self, run: Sequence[SstableInfo]) -> list[RetainedSet]:
        """Sets whose files are all in the run, oldest first."""
        names = {info.name for info in run if info.name in self._by_name}
        touched = {id(self._by_name[name]) for name in names}
        return [kept for kept in self._sets if id(kept) in touched and kept.names <= names]

    def _restrict(self, sets: list[RetainedSet]) -> None:
        self._sets = deque(sets)
        self._by_name = {name: kept for kept in sets for name in kept.names}
        self.size_bytes = sum(kept.size_bytes for kept in sets)
