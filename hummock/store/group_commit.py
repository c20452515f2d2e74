"""GroupCommit: writes of many threads, each durable when its call returns, that share epochs and commits.

The first writer of a group leads it. While the group before it is being committed, other writers join; then the leader
writes all their batches at one epoch, commits it and wakes them: the write group of RocksDB's writers. Those that it
woke need a moment to come back, so the next leader waits that long for as many writers as there were; a writer that is
alone never waits. So a commit costs the same for one writer and for many, and there is at most one epoch a millisecond,
however many write.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import NEVER, Epoch, EpochGenerator, monotonic_seconds
from hummock.errors import OutcomeUnknown

EPOCH_SECONDS = 0.001       # an epoch counts milliseconds: more of them would run ahead of the clock
JOIN_SECONDS = 0.001        # the most that a leader waits for the writers of the group before


class _Group:
    """Batches in order of arrival. Its leader sets the other fields before `ended`."""

    __slots__ = ("batches", "ended", "epoch", "failure", "refused")

    def __init__(self) -> None:
        self.batches: list[WriteBatch] = []
        self.refused: dict[int, BaseException] = {}     # by position, the batches that did not enter the buffer
        self.failure: BaseException | None = None       # of the commit
        self.epoch = NEVER
        self.ended = threading.Event()


class GroupCommit:
    """`ingest(batch, epoch)` buffers a batch, `commit(epoch)` makes all of the epoch durable; `sealed()` is the newest
    epoch that takes no more batches. Thread safe.
    """

    def __init__(self, ingest: Callable[[WriteBatch, Epoch], object], commit: Callable[[Epoch], None],
                 sealed: Callable[[], Epoch]):
        self._ingest, self._commit, self._sealed = ingest, commit, sealed
        self._joined = threading.Condition(threading.Lock())    # guards the group that is open
        self._turn = threading.Lock()       # held by the leader whose group is being committed
        self._open: _Group | None = None
        self._expected = 1                  # writers of the newest group
        self._epochs = EpochGenerator()
        self._began = -EPOCH_SECONDS        # monotonic seconds, when the newest epoch was taken

    def write(self, batch: WriteBatch) -> Epoch:
        """The epoch at which the batch is committed. Of two batches of a group that write a key the later one counts.

        Raises what `ingest` raised for this batch, which then is not written, or what `commit` raised; `OutcomeUnknown`
        if the thread that committed for this one was interrupted.
        """
        with self._joined:
            leads = self._open is None
            if self._open is None:
                self._open = _Group()
            group, position = self._open, len(self._open.batches)
            group.batches.append(batch)
            if len(group.batches) == self._expected:
                self._joined.notify()
        if leads:
            self._lead(group)
        else:
            group.ended.wait()
        error = group.refused.get(position) or group.failure
        if error is None:
            return group.epoch
        if leads or isinstance(error, Exception):
            raise error
        raise OutcomeUnknown(f"the thread that committed epoch {group.epoch} was interrupted") from error

    def _lead(self, group: _Group) -> None:
        try:
            with self._turn:
                wait = self._began + EPOCH_SECONDS - monotonic_seconds()
                if wait > 0:
                    time.sleep(wait)
                with self._joined:
                    self._joined.wait_for(lambda: len(group.batches) >= self._expected, JOIN_SECONDS)
                    self._open, self._expected = None, len(group.batches)
                self._began, group.epoch = monotonic_seconds(), self._next_epoch()
                self._commit_group(group)
        except BaseException as error:      # an interrupt of the leader: the others must not wait for ever
            group.failure = error
            with self._joined:
                if self._open is group:
                    self._open = None
        finally:
            group.ended.set()

    def _commit_group(self, group: _Group) -> None:
        for position, batch in enumerate(group.batches):
            try:
                self._ingest(batch, group.epoch)
            except Exception as error:
                group.refused[position] = error
        if len(group.refused) < len(group.batches):
            self._commit(group.epoch)

    def _next_epoch(self) -> Epoch:
        sealed, epoch = self._sealed(), self._epochs.next()
        if epoch <= sealed:                 # the clock was set back, or somebody else's epochs are ahead
            self._epochs = EpochGenerator(last=sealed)
            epoch = self._epochs.next()
        return epoch
