"""Conflict resolution: turns arbitrary changes into a legal change stream, by the table's conflict rule.

Input, whether an INSERT statement or a connector's chunk, may insert a key that exists, delete one that does not,
contain an outdated old row, and change a key several times in one chunk. The result is a legal change stream for the
table: per key insert and delete alternate, and every deletion has the row that the table holds. A chunk is resolved as
a whole: one lookup in the table, then passes over arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from relational.catalog.objects import ConflictBehaviour
from relational.chunk import DataChunk, Op, StreamChunk
from relational.encoding import KeyEncoder
from relational.table.state_table import StateTable
from stream.errors import DuplicateKey


@dataclass(frozen=True, slots=True)
class Resolved:
    """`chunk`: the legal changes, None when there are none; `rows`: the input rows that had an effect."""

    chunk: StreamChunk | None
    rows: int


class Meeting(NamedTuple):
    """The state that each of n input rows is applied to, in row order."""

    is_insert: np.ndarray
    """bool[n]: the input row inserts; otherwise it deletes."""
    is_held: np.ndarray
    """bool[n]: its key exists when it is applied."""
    holder: np.ndarray
    """int64[n]: the existing row: r < n is input row r, n + r the row that the table held for input row r."""
    group: np.ndarray
    """int64[n]: rows of equal keys have equal numbers."""


class ConflictResolver:
    """Resolves chunks against the current state of `table`, which it reads but does not write.

    An insert of a key that exists: ERROR raises DuplicateKey, OVERWRITE turns it into an update, IGNORE drops it. A
    delete of a key that does not exist is dropped.
    """

    def __init__(self, table: StateTable, conflict: ConflictBehaviour) -> None:
        self._table = table
        self._conflict = conflict
        self._pk = table.catalog.pk_indices
        types = table.catalog.schema.types
        orders = [key.order for key in table.catalog.pk]
        self._encoder = KeyEncoder([types[index] for index in self._pk], orders)

    def resolve(self, chunk: StreamChunk) -> Resolved:
        """The effect of `chunk` on the table. DuplicateKey as described above."""
        chunk = chunk.compact()
        if not chunk.capacity:
            return Resolved(None, 0)
        keys = chunk.project(self._pk)
        held, found = self._table.get_rows(keys)
        meeting = self._meeting(chunk, keys, found.astype(bool))
        clash = meeting.is_insert & meeting.is_held
        if self._conflict is ConflictBehaviour.ERROR and clash.any():
            first = np.flatnonzero(clash)[:1].astype(np.int32)
            raise DuplicateKey(self._table.catalog.name, next(iter(keys.take(first).rows())))
        return self._changes(chunk, held, meeting)

    def _meeting(self, chunk: StreamChunk, keys: DataChunk, found: np.ndarray) -> Meeting:
        rows = np.arange(chunk.capacity)
        is_insert = (chunk.ops & Op.DELETE) == 0
        group = self._encoder.encode(keys.columns).to_arrow().dictionary_encode().indices.to_numpy()
        if int(group[-1]) == chunk.capacity - 1:  # numbered in order of appearance: all keys differ
            return Meeting(is_insert, found, chunk.capacity + rows, group)
        order = np.argsort(group, kind="stable")
        is_first = np.diff(group[order], prepend=-1) != 0
        inserts = is_insert[order]
        is_held = np.where(is_first, found[order], np.roll(inserts, 1))
        stays = inserts if self._conflict is not ConflictBehaviour.IGNORE else inserts & ~is_held
        last_put = np.roll(np.maximum.accumulate(np.where(stays, rows, -1)), 1)
        begin = np.maximum.accumulate(np.where(is_first, rows, 0))
        is_put_here = ~is_first & (last_put >= begin)
        holder = np.where(is_put_here, order[last_put], chunk.capacity + order)
        back = np.empty_like(order)
        back[order] = rows
        return Meeting(is_insert, is_held[back], holder[back], group)

    def _changes(self, chunk: StreamChunk, held: DataChunk, meeting: Meeting) -> Resolved:
        """The resulting chunk: each input row emits the row that it deletes, the row that it inserts, both or none."""
        overwrites = self._conflict is ConflictBehaviour.OVERWRITE
        puts = meeting.is_insert & (overwrites | ~meeting.is_held)
        takes = meeting.is_held & (overwrites | ~meeting.is_insert)
        rows = int(np.count_nonzero(puts | takes))
        if not takes.any():
            if rows < chunk.capacity:
                chunk = chunk.take(np.flatnonzero(puts).astype(np.int32))
            return Resolved(chunk.with_ops(np.zeros(chunk.capacity, np.uint8)) if rows else None, rows)
        end = np.cumsum(puts.astype(np.int64) + takes)
        source = np.empty(int(end[-1]), np.int32)
        ops = np.empty(len(source), np.uint8)
        input_row = np.empty(len(source), np.int64)
        taken, put = np.flatnonzero(takes), np.flatnonzero(puts)
        at_taken, at_put = end[taken] - 1 - puts[taken], end[put] - 1
        source[at_taken], source[at_put] = meeting.holder[taken], put
        ops[at_taken], ops[at_put] = Op.DELETE, Op.INSERT
        input_row[at_taken], input_row[at_put] = taken, put
        self._pair(ops, meeting.group[input_row])
        pool = DataChunk.concat([DataChunk(chunk.columns), DataChunk(held.columns)])
        return Resolved(StreamChunk(pool.take(source).columns, ops), rows)

    def _pair(self, ops: np.ndarray, group: np.ndarray) -> None:
        """Turns each deletion that immediately precedes an insertion of the same key into an update, in `ops`."""
        is_pair = (ops[:-1] == Op.DELETE) & (ops[1:] == Op.INSERT) & (group[:-1] == group[1:])
        first = np.flatnonzero(is_pair)
        ops[first] = Op.UPDATE_DELETE
        ops[first + 1] = Op.UPDATE_INSERT
