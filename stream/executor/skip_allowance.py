"""How many malformed rows of each split of a source may be skipped: what `ALTER … RESUME SKIP n ROWS` allows.

Allowances are rows of the offset table, (`SKIP_ROW` + split, rows that are left), written at the barriers of the source
with its offsets: the commit that resumes a job stores what it allows, and no recovery forgets or repeats it. An earlier
release stored that of one split only, as (`SKIP_ROW`, "<rows> <split>").
"""

from __future__ import annotations

from collections.abc import Iterable

from relational.table.state_table import StateTable
from stream.executor.base import store_rows
from stream.message import SKIP_ROW


class SkipAllowance:
    """The allowances of the splits that one actor reads."""

    def __init__(self, table: StateTable) -> None:
        self._table = table
        self._left: dict[str, int] = {}
        self._stored: dict[str, str] = {}  # key -> value as of the last barrier
        self._keys: dict[str, str] = {}  # split -> key

    def load(self, splits: Iterable[str]) -> None:
        """What earlier RESUMEs allowed for these splits is still in force."""
        for split in splits:
            key = self._keys[split] = SKIP_ROW + split
            row = self._table.get_row((key,))
            if row is not None:
                self._stored[key] = str(row[1])
                self._left[split] = int(self._stored[key])
        row = self._table.get_row((SKIP_ROW,))
        if row is not None:
            rows, _, split = str(row[1]).partition(" ")
            if split in self._keys:
                self._stored[SKIP_ROW] = str(row[1])
                self._left.setdefault(split, int(rows))

    def allow(self, split: str, rows: int) -> None:
        """From now on this many rows of the split may be skipped, whatever was allowed before."""
        if split in self._keys:
            self._left[split] = rows

    def left(self, split: str) -> int:
        """The number of malformed rows of a split that may still be skipped."""
        return self._left.get(split, 0)

    def use(self, split: str, rows: int) -> None:
        """This many are skipped. REQUIRES that they are left."""
        self._left[split] -= rows

    def store(self) -> None:
        """Write what has changed since the last barrier."""
        wanted = {self._keys[split]: str(rows) for split, rows in self._left.items() if rows}
        store_rows(self._table, self._stored, wanted)
        self._stored = wanted
