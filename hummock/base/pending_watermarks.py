"""PendingWatermarks: key watermarks of many actors and barriers, until a checkpoint registers them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hummock.base.key_watermark import KeyWatermark
from hummock.epoch import SPILL_BITS, Epoch

INTERVAL_MS = 5_000


class PendingWatermarks:
    """The watermarks that the tables of one process advanced to and that no commit has registered.

    Each actor adds those of its own vnodes at a barrier; a watermark of a barrier that is no checkpoint waits for the
    next one. A table's are registered at most every `interval_ms`, by the time in the epochs, since each change is a
    record in the meta store [R30]: until then readers find rows that nobody reads, which is no error. Invariant: a
    table has at most one watermark at or below the last epoch taken. Not thread safe.
    """

    def __init__(self, interval_ms: int = INTERVAL_MS) -> None:
        self._interval_ms = interval_ms
        self._waiting: dict[int, list[KeyWatermark]] = {}  # by table id; ascending by epoch, one per epoch
        self._registered: dict[int, Epoch] = {}  # by table id: when it was registered last

    def __len__(self) -> int:
        """Number of watermarks held."""
        return sum(map(len, self._waiting.values()))

    def add(self, table_id: int, watermark: KeyWatermark) -> None:
        """Adds what an actor's instance of a table returned at a barrier; its epoch is the one that the barrier ends.
        """
        marks = self._waiting.setdefault(table_id, [])
        at = next((at for at, mark in enumerate(marks) if mark.epoch >= watermark.epoch), len(marks))
        if at < len(marks) and marks[at].epoch == watermark.epoch:
            marks[at] = marks[at].followed_by(watermark)
        else:
            marks.insert(at, watermark)

    def take(self, epoch: Epoch) -> dict[int, KeyWatermark]:
        """Removes and returns what the commit of `epoch` registers: by table id, as of that epoch.

        REQUIRES that every actor has added its watermarks up to `epoch`, and that the epochs ascend. If the commit does
        not happen the actors begin anew, so `clear` follows.
        """
        due: dict[int, KeyWatermark] = {}
        for table_id, marks in list(self._waiting.items()):
            passed = [mark for mark in marks if mark.epoch <= epoch]
            if not passed:
                continue
            joined = passed[0]
            for mark in passed[1:]:
                joined = joined.followed_by(mark)
            later = marks[len(passed):]
            if self._is_due(table_id, epoch):
                due[table_id] = replace(joined, epoch=epoch)
                self._registered[table_id] = epoch
                self._keep(table_id, later)
            else:
                self._keep(table_id, [joined, *later])
        return due

    def forget(self, table_ids: Iterable[int]) -> None:
        """Drops what is known of tables that are dropped."""
        for table_id in table_ids:
            self._waiting.pop(table_id, None)
            self._registered.pop(table_id, None)

    def clear(self) -> None:
        """Drops all watermarks: the actors that added them were ended by a recovery."""
        self._waiting.clear()

    def _is_due(self, table_id: int, epoch: Epoch) -> bool:
        last = self._registered.get(table_id)
        return last is None or (epoch >> SPILL_BITS) - (last >> SPILL_BITS) >= self._interval_ms

    def _keep(self, table_id: int, marks: list[KeyWatermark]) -> None:
        if marks:
            self._waiting[table_id] = marks
        else:
            del self._waiting[table_id]
