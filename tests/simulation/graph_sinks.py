"""Targets of the sinks of simulated graphs: functions that keep what arrives, hang, or fail, and what must hold of it.

What arrived up to an epoch is what leaves the rows of the sink's query at that epoch. An epoch arrives once in the life
of a process; after a death it may arrive again, with the same changes, in order.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import pyarrow as pa

import stream
from relational.chunk import Op

HANG_SECONDS = 120.0
DELETED = (Op.DELETE, Op.UPDATE_DELETE)

Change = tuple[int, tuple]


class Receiver:
    """The function of one sink, over the lives of all processes. `hang` and `release` stop and continue it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.failures = 0
        """So many of the next calls raise."""
        self.violations: list[str] = []
        self.repeated = 0
        self._lock = threading.Lock()
        self._delivered: dict[int, tuple[int, list[Change]]] = {}  # epoch -> number of the process, and the changes
        self._gate = threading.Event()
        self._gate.set()
        self._process = 0
        self._registered: stream.ArrowSink | None = None

    @property
    def is_hung(self) -> bool:
        return not self._gate.is_set()

    def newest(self, upto: int) -> int:
        """The newest epoch up to `upto` that arrived, 0 without one."""
        with self._lock:
            return max((epoch for epoch in self._delivered if epoch <= upto), default=0)

    def hang(self) -> None:
        self._gate.clear()

    def release(self) -> None:
        self._gate.set()

    def begin(self, is_dead: Callable[[], bool]) -> None:
        """Another process registers the function, which has no effect once it is dead."""
        self.end()
        self._process += 1
        number = self._process

        def receive(epoch: int, changes: pa.RecordBatchReader) -> None:
            rows = changes.read_all()
            self._gate.wait(HANG_SECONDS)
            if is_dead():
                raise InterruptedError("the process is dead")
            self._arrived(number, epoch, rows)

        self._registered = stream.arrow_sink(self.name, receive)

    def end(self) -> None:
        """The process has died, or the sink was dropped."""
        self.release()
        if self._registered is not None:
            self._registered.close()
            self._registered = None

    def folded(self, after: int, upto: int) -> Counter[tuple]:
        """The rows that the changes of the epochs in (after, upto] leave."""
        rows: Counter[tuple] = Counter()
        with self._lock:
            epochs = sorted(epoch for epoch in self._delivered if after < epoch <= upto)
            changes = [(epoch, change) for epoch in epochs for change in self._delivered[epoch][1]]
        for epoch, (op, row) in changes:
            rows[row] += -1 if op in DELETED else 1
            assert rows[row] >= 0, f"sink {self.name}: {row} is deleted in epoch {epoch} and was not there"
        return +rows

    def _arrived(self, process: int, epoch: int, table: pa.Table) -> None:
        columns = [column.to_pylist() for column in table.columns]
        changes = [(row[-1], row[:-1]) for row in zip(*columns, strict=True)]
        with self._lock:
            if self.failures:
                self.failures -= 1
                raise OSError("no route to the target")
            before = self._delivered.get(epoch)
            if before is None:
                if self._delivered and epoch < max(self._delivered):
                    self.violations.append(f"epoch {epoch} comes after epoch {max(self._delivered)}")
                self._delivered[epoch] = process, changes
                return
            self.repeated += 1
            if before[0] == process:
                self.violations.append(f"epoch {epoch} comes twice in one process")
            if before[1] != changes:
                self.violations.append(f"epoch {epoch} comes again with other changes: {before[1]}, now {changes}")
            self._delivered[epoch] = process, changes
