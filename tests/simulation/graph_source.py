"""Sources of the simulated graphs: a connector whose records follow from a seed, and what is known of each.

    CREATE SOURCE s (id BIGINT, a BIGINT, b BIGINT) WITH (connector = 'scripted', name = 's')

Record n of a split is always the same, so the rows up to an offset, the number of the next record, can be computed by
whoever checks a view. A record is a row, or a fault: bytes that are no record, a value that no row may have, or a
record at which the reader raises until it is mended. The external stream outlives the simulated processes.

The rows of a timed stream are (id, ts, b): `ts` is about the number of records that all of its splits have so far, now
and then much less, so that such a row is late if the watermark has got as far, and sometimes NULL. Its splits may end.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from relational.chunk import Op, StreamChunk
from relational.types import Schema
from stream.connector.base import Connector, SplitEnumerator, SplitReader, register_connector
from stream.errors import ConnectorError, MalformedRows
from tests.support.drivers.numbered_reader import NumberedReader

NAME = "scripted"
COLUMNS, TIMED_COLUMNS = ("id", "a", "b"), ("id", "ts", "b")
SCHEMA = Schema.of(id="bigint", a="bigint", b="bigint")
MOST_SPLITS = 8
DELAY = 10
"""By which a row of a timed stream may be out of order."""
DELETED = (Op.DELETE, Op.UPDATE_DELETE)

Row = tuple[int, int | None, int | None]
Record = list[tuple[Op, Row]]


class Fault(StrEnum):
    """A record that is no row."""

    UNDECODABLE = "undecodable"
    INVALID = "invalid"
    """A change of no kind: the reader delivers it, the validation refuses it."""
    BROKEN = "broken"

    @property
    def is_malformed(self) -> bool:
        return self is not Fault.BROKEN


@dataclass
class Moment:
    """The time of a stream."""

    at: int = 0


@dataclass
class Split:
    """`records` are those of all time, of which the first `available` exist; `faults`: number of a record -> what it is
    instead. `moment`: that of a timed stream."""

    rng: random.Random
    number: int
    changes: bool
    moment: Moment | None = None
    records: list[Record] = field(default_factory=list)
    alive: dict[int, Row] = field(default_factory=dict)
    available: int = 0
    faults: dict[int, Fault] = field(default_factory=dict)
    has_ended: bool = False

    def produce(self, count: int) -> None:
        """`count` more records exist, unless the split has ended."""
        for _ in range(0 if self.has_ended else count):
            self.records.append(self._next())
        self.available = len(self.records)

    def add_fault(self, fault: Fault) -> None:
        """The next record is one, unless the split has ended."""
        if self.has_ended:
            return
        self.faults[len(self.records)] = fault
        self.records.append([])
        self.available = len(self.records)

    def changes_of(self, begin: int, end: int) -> Record:
        """All changes of the records, in order."""
        return [change for record in self.records[begin:end] for change in record]

    def _next(self) -> Record:
        rng, value = self.rng, lambda: None if self.rng.random() < 0.15 else self.rng.randrange(8)
        if self.changes and self.alive and rng.random() < 0.5:
            old = self.alive.pop(rng.choice(sorted(self.alive)))
            if rng.random() < 0.4:
                return [(Op.DELETE, old)]
            new: Row = (old[0], value(), value())
            self.alive[new[0]] = new
            return [(Op.UPDATE_DELETE, old), (Op.UPDATE_INSERT, new)]
        new = (len(self.records) * MOST_SPLITS + self.number, value() if self.moment is None else self._time(), value())
        self.alive[new[0]] = new
        return [(Op.INSERT, new)]


    def _time(self) -> int | None:
        """The time of the next row."""
        assert self.moment is not None
        rng, moment = self.rng, self.moment
        moment.at += rng.randrange(4)
        kind = rng.random()
        if kind < 0.05:
            return None
        return max(0, moment.at - rng.randrange(12, 60) if kind < 0.25 else moment.at + rng.randrange(-6, 7))


class Script:
    """An external stream. `changes`: it also updates and deletes its rows; `is_timed`: they have a time."""

    def __init__(self, seed: object, name: str, *, changes: bool = False, is_timed: bool = False) -> None:
        self._seed, self.name, self.changes = f"{seed} {name}", name, changes
        self.columns = TIMED_COLUMNS if is_timed else COLUMNS
        self._moment = Moment() if is_timed else None
        self.splits: dict[str, Split] = {}
        self.is_mended = False
        self.is_reachable = True
        for _ in range(1 + is_timed):
            self.add_split()

    def add_split(self) -> None:
        number = len(self.splits)
        if number < MOST_SPLITS:
            split = Split(random.Random(f"{self._seed} {number}"), number, self.changes, self._moment)
            if self._moment is not None:
                split.produce((number + 1) % 2)     # some hold the watermark back
            self.splits[f"p{number}"] = split

    def rows(
        self, offsets: Mapping[str, str], left_out: Sequence[tuple[str, int, int]] = (),
        late: Collection[tuple[str, int]] = (),
    ) -> list[Row]:
        """The rows that the records up to the offsets leave, without those of the ranges (split, begin, end), and
        without the `late` records (split, number)."""
        rows: dict[int, Row] = {}
        for name, offset in offsets.items():
            skipped = {number for split, begin, end in left_out if split == name for number in range(begin, end)}
            skipped |= {number for split, number in late if split == name}
            for number in range(int(offset)):
                for op, row in () if number in skipped else self.splits[name].records[number]:
                    if op in DELETED:
                        assert rows.pop(row[0]) == row
                    else:
                        assert row[0] not in rows
                        rows[row[0]] = row
        return list(rows.values())

    def end_of_skip(self, split: str, begin: int, rows: int) -> int:
        """The record at which a job goes on that skips so many rows from `begin` on."""
        found, end = self.splits[split], begin
        while rows > 0 and end < found.available:
            fault = found.faults.get(end)
            rows -= fault.is_malformed if fault is not None else len(found.records[end])
            end += 1
        return end

    def is_read(self, offsets: Mapping[str, str]) -> bool:
        """Whether the offsets are the ends of all splits."""
        return all(offsets.get(name, "0") == str(split.available) for name, split in self.splits.items())


SCRIPTS: dict[str, Script] = {}


class _Reader(NumberedReader):
    def __init__(self, script: Script, split: str, columns: Sequence[int]) -> None:
        super().__init__()
        self._script, self._name, self._columns = script, split, columns

    def next_chunk(self, max_rows: int) -> StreamChunk | None:
        split, changes = self._script.splits[self._name], []
        while self.next < split.available and len(changes) + len(split.records[self.next]) <= max_rows:
            fault = split.faults.get(self.next)
            if fault is Fault.BROKEN and self._script.is_mended:
                fault = None
            if fault is not None and changes:
                break
            if fault is Fault.BROKEN:
                raise RuntimeError(f"the reader cannot go on at record {self.next}")
            changes += split.records[self.next]
            self.next += 1
            if fault is Fault.UNDECODABLE:
                raise MalformedRows(NAME, self._name, "these bytes are no record")
            if fault is Fault.INVALID:
                return _invalid().project(self._columns)
        return StreamChunk.from_rows(SCHEMA, changes).project(self._columns) if changes else None

    @property
    def is_finished(self) -> bool:
        split = self._script.splits[self._name]
        return split.has_ended and self.next >= split.available


def _invalid() -> StreamChunk:
    chunk = StreamChunk.from_rows(SCHEMA, [(Op.INSERT, (0, 0, 0))])
    return StreamChunk(chunk.columns, np.array([9], np.uint8))


class _Scripted(Connector):
    is_remote = True  # for tasks, which run in this process too

    def __init__(self, options: Mapping[str, str], schema: Schema) -> None:
        self._script = SCRIPTS[options["name"]]
        if not self._script.is_reachable:
            raise ConnectorError(NAME, f"{self._script.name} is out of reach")
        self.is_append_only = not self._script.changes
        self.is_consistent = True

    def enumerator(self) -> SplitEnumerator:
        return _Splits(self._script)

    def open_split(self, split: str, columns: Sequence[int]) -> SplitReader:
        return _Reader(self._script, split, columns)


class _Splits(SplitEnumerator):
    def __init__(self, script: Script) -> None:
        self._script = script

    def list_splits(self) -> Sequence[str]:
        return list(self._script.splits)


def scripts(seed: object, names: Collection[str], *, changing: str, timed: Collection[str]) -> dict[str, Script]:
    """New external streams, which replace those of earlier simulations: one that also updates and deletes, and some
    with times."""
    register_connector(NAME, _Scripted)
    SCRIPTS.clear()
    SCRIPTS.update({name: Script(seed, name, changes=name == changing, is_timed=name in timed) for name in names})
    return SCRIPTS
