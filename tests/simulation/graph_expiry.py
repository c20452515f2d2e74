"""Rows of simulated graphs that expire: which rows of a table with a ttl are there at an epoch.

A row is there at the epochs that begin at most `ttl` after the one in which it was inserted, and at no later one [R31].
So what must be there at a committed epoch follows exactly from the epochs of the inserts. Which these are, of all that
the row may have got into, depends on the turns of threads: `installed` notes the epoch in which the actor of the table
writes a row, and the one whose rows it sees then. All else is computed here. Times are those of epochs: the clock is
moved by the steps of the simulation, and by a millisecond with each barrier.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hummock.epoch import SPILL_BITS, EpochPair
from relational.chunk import StreamChunk
from relational.table.state_table import StateTable
from tests.simulation.graph_source import DELETED

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Birth:
    """A row, inserted in `epoch` by an actor that saw the rows of epoch `seen`."""

    epoch: int
    seen: int
    row: Row


@dataclass
class _Table:
    births: dict[Any, list[Birth]]  # by the first column, the key; ascending epochs
    writer: StateTable | None = None
    deleted: int = 0


class BirthLog:
    """The births of the rows of the tables `names`. Thread safe."""

    def __init__(self, names: Collection[str]) -> None:
        self._lock = threading.Lock()
        self._tables = {name: _Table(defaultdict(list)) for name in names}

    def begin(self, table: StateTable, epoch: int) -> None:
        """`table` belongs to the table's new actor, which continues after `epoch`."""
        found = self._tables.get(table.catalog.name)
        if found is not None:
            self.cut(table.catalog.name, epoch)
            with self._lock:
                found.writer = table

    def write(self, table: StateTable, chunk: StreamChunk) -> None:
        found = self._tables.get(table.catalog.name)
        if found is None or found.writer is not table:
            return      # another table, or an actor of before, whose epoch is never committed
        pair = table.epoch
        with self._lock:
            rows = chunk.compact()
            found.deleted += sum(op in DELETED for op in rows.ops)
            for row in rows.rows():
                found.births[row[0]].append(Birth(pair.curr, pair.prev, tuple(row)))

    def cut(self, name: str, epoch: int) -> None:
        """What the table wrote after `epoch` is void."""
        table = self._tables[name]
        with self._lock:
            table.writer = None
            for key, births in table.births.items():
                table.births[key] = [each for each in births if each.epoch <= epoch]

    def newest(self, name: str, key: Any, upto: int | None = None) -> Birth | None:
        """The birth of the last row with a key, written in an epoch up to `upto`."""
        with self._lock:
            births = self._tables[name].births.get(key, [])
            return next((each for each in reversed(births) if upto is None or each.epoch <= upto), None)

    def count(self, name: str, key: Any, upto: int | None = None) -> int:
        """The number of rows with a key that were written in epochs up to `upto`."""
        with self._lock:
            births = self._tables[name].births.get(key, [])
            return sum(upto is None or each.epoch <= upto for each in births)

    def rows(self, name: str, epoch: int) -> dict[Any, Birth]:
        """The last row of each key, written in an epoch up to `epoch`, expired or not."""
        with self._lock:
            assert not self._tables[name].deleted, f"rows of {name} were deleted"
            keys = list(self._tables[name].births)
        found = {key: self.newest(name, key, epoch) for key in keys}
        return {key: birth for key, birth in found.items() if birth is not None}


def is_there(birth: Birth, epoch: int, ttl_ms: int) -> bool:
    """Whether a row is seen at an epoch."""
    return (epoch >> SPILL_BITS) - (birth.epoch >> SPILL_BITS) <= ttl_ms


def split_by_age(births: Mapping[Any, Birth], epoch: int, ttl_ms: int) -> tuple[dict[Any, Row], set[tuple[Any, int]]]:
    """The rows that are there at an epoch, by key, and (key, epoch of the insert) of those that have expired."""
    there = {key: birth.row for key, birth in births.items() if is_there(birth, epoch, ttl_ms)}
    return there, {(key, birth.epoch) for key, birth in births.items() if key not in there}


@contextmanager
def installed(log: BirthLog) -> Iterator[None]:
    """Births are recorded inside."""
    init_epoch, write_chunk = StateTable.init_epoch, StateTable.write_chunk

    def begun(self: StateTable, epoch: EpochPair) -> None:
        init_epoch(self, epoch)
        log.begin(self, epoch.prev)

    def written(self: StateTable, chunk: StreamChunk, *arguments: Any) -> None:
        write_chunk(self, chunk, *arguments)
        log.write(self, chunk)

    StateTable.init_epoch = begun  # type: ignore[method-assign]
    StateTable.write_chunk = written  # type: ignore[method-assign]
    try:
        yield
    finally:
        StateTable.init_epoch, StateTable.write_chunk = init_epoch, write_chunk  # type: ignore[method-assign]
