"""PendingWatermarks: key watermarks of many actors and barriers, until a commit registers them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from hummock.base.key_watermark import KeyWatermark
from hummock.base.table_rules import Tables
from hummock.epoch import SPILL_BITS, Epoch


class PendingWatermarks:
    """What the tables of one process advanced to and no version has.

    Each instance of a table adds the watermark of its own vnodes at a barrier; those of a barrier that is no checkpoint
    wait for the next one. A table registers one at most every `interval_ms`, by the time in the epochs, since each is a
    record in the meta store [R30]: until then readers find rows that nobody reads, which is no error. Not thread safe.
    """

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._waiting: dict[int, list[KeyWatermark]] = {}  # by table id; ascending by epoch, one per epoch
        self._sent: dict[int, Epoch] = {}  # by id of a waiting table: the epoch of the last commit that was to have it

    def __len__(self) -> int:
        """Number of watermarks held."""
        return sum(map(len, self._waiting.values()))

    def add(self, table_id: int, watermark: KeyWatermark) -> None:
        """Adds the watermark of some vnodes; its epoch is the one that the barrier ends."""
        marks = self._waiting.setdefault(table_id, [])
        at = next((at for at, mark in enumerate(marks) if mark.epoch >= watermark.epoch), len(marks))
        if at < len(marks) and marks[at].epoch == watermark.epoch:
            marks[at] = marks[at].followed_by(watermark)
        else:
            marks.insert(at, watermark)

    def due(self, epoch: Epoch, tables: Tables) -> dict[int, KeyWatermark]:
        """What the commit of `epoch` registers, by table id, as of that epoch; `tables`: the rules of the version.
        REQUIRES that all watermarks up to `epoch` were added.
        """
        found: dict[int, KeyWatermark] = {}
        for table_id, marks in self._waiting.items():
            passed = [mark for mark in marks if mark.epoch <= epoch]
            if not passed:
                continue
            joined = passed[0]
            for mark in passed[1:]:
                joined = joined.followed_by(mark)
            marks[:len(passed)] = [joined]
            if self._is_due(table_id, epoch, tables):
                found[table_id] = replace(joined, epoch=epoch)
                self._sent[table_id] = epoch
        return found

    def advance(self, tables: Tables, dropped: Collection[int]) -> None:
        """Drops what a version has registered, of rules `tables`, and the watermarks of dropped tables."""
        for table_id, marks in list(self._waiting.items()):
            newest = _newest(table_id, tables)
            left = [mark for mark in marks if newest is None or not newest.covers(mark)]
            if left and table_id not in dropped:
                self._waiting[table_id] = left
            else:
                del self._waiting[table_id]
                self._sent.pop(table_id, None)

    def clear(self) -> None:
        """Drops all: a recovery ended the actors that added them."""
        self._waiting.clear()
        self._sent.clear()

    def _is_due(self, table_id: int, epoch: Epoch, tables: Tables) -> bool:
        newest = _newest(table_id, tables)
        last = max(self._sent.get(table_id, 0), 0 if newest is None else newest.epoch)
        return last in (0, epoch) or (epoch >> SPILL_BITS) - (last >> SPILL_BITS) >= self._interval_ms


def _newest(table_id: int, tables: Tables) -> KeyWatermark | None:
    watermarks = tables[table_id].watermarks if table_id in tables else ()
    return watermarks[0] if watermarks else None
