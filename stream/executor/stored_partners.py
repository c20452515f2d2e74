"""StoredPartners: the rows of the other side of a join under keys that exceed its budget, which meet the changes of a
step a part at a time, as they are read from the table.

Such rows have no degree in memory. Whether a row finds a first partner, or loses its last one, depends on its other
partners only where a change is one of those, so only these rows are compared with the rows of the changed input: until
one is found for each.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from relational.chunk import Column, DataChunk, Op, StreamChunk
from relational.join.join_index import JoinIndex
from relational.join.join_probe import JoinProbe
from relational.types import DataType
from stream.executor.join_result import JoinResult
from stream.executor.join_side import Shown
from stream.executor.join_step import JoinStep
from stream.message import PAUSE, Wait

FEWEST, GROWTH = 64, 8
"""Rows of the changed input that are compared first, and how many times as many next."""


class StoredPartners:
    """Of the keys of `step.unread`. Where the degrees of rows of the other side matter, REQUIRES that the deletions of
    the step were applied to the changed input, and its insertions not yet."""

    def __init__(self, result: JoinResult, step: JoinStep, chunk_rows: int) -> None:
        self._result, self._step, self._chunk_rows = result, step, chunk_rows
        self._changes = self._index()
        self._changes.locate(step.keys_at(step.unread))  # the id of a key is its position in `step.unread`
        positions = np.arange(step.changes.capacity, dtype=np.int32)
        ids = self._changes.locate(step.keys, is_adding=False).ids
        self._changes.apply(_with_positions(step.keys, positions), ids)
        self._is_deletion = (step.changes.ops & Op.DELETE).astype(np.bool_)

    def changes(self, ops: Sequence[Op]) -> Iterator[StreamChunk | Wait]:
        """The changes of the result of kinds `ops`: those of pairs of some changes of the step with stored rows, and of
        stored rows that find a first partner or lose the last one; counts the partners of these changes. Yields a Wait
        between two parts."""
        step = self._step
        wanted = step.unread
        if not self._result.has_pairs and not self._result.has_condition:
            wanted = wanted[step.gained[wanted] | step.lost[wanted]]
        if not len(wanted):
            return
        for part in step.other.read(step.keys_at(wanted)):
            ids = self._changes.locate(step.other.key_of(part), is_adding=False).ids
            gained, lost = (yield from self._matched(part, ids)) if step.other.is_tracked else (None, None)
            for op in ops:
                for positions, at in self._met(part, ids, op, is_counted=True):
                    step.partners += np.bincount(positions, minlength=len(step.partners)).astype(np.int32)
                    if self._result.has_pairs and len(at):
                        yield self._pairs(part, positions, at, op)
                if gained is not None and lost is not None:
                    is_shown_alone = step.other.input.shown is Shown.UNMATCHED
                    yield from self._alone(part, lost if is_shown_alone == (op is Op.INSERT) else gained, op)
            if step.other.input.is_passing:
                step.other.discard(part)
            yield PAUSE

    def _index(self) -> JoinIndex:
        """Of keys, with the positions of the rows that have them."""
        own = self._step.own
        types = [own.input.types[column] for column in own.input.key]
        return JoinIndex((*types, DataType.INT), range(len(types)), (), null_safe=own.index.null_safe)

    def _index_of(self, keys: Sequence[Column], rows: np.ndarray) -> JoinIndex:
        """The positions of some rows with these keys."""
        index, taken = self._index(), DataChunk(list(keys)).take(rows).columns
        index.apply(_with_positions(taken, rows), index.locate(taken).ids)
        return index

    def _met(
        self, part: DataChunk, ids: np.ndarray, op: Op, *, is_counted: bool
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(changes of the step, rows of the part) of pairs, for changes of kind `op`; whose errors count or not."""
        for at, found in JoinProbe(self._changes, ids, self._chunk_rows):
            positions = _positions(self._changes, found)
            kept = np.flatnonzero(self._is_deletion[positions] == (op is Op.DELETE))
            at, positions = at[kept], positions[kept]
            if self._result.has_condition and len(at):
                own, other = self._of_condition(self._step.changes, positions), self._of_condition(part, at, True)
                holds = self._result.holds(self._step.number, own, other, op if is_counted else None)
                at, positions = at[holds], positions[holds]
            yield positions, at

    def _of_condition(self, rows: DataChunk, at: np.ndarray, is_other: bool = False) -> Sequence[Column]:
        """The columns of rows of the changed input, or the other one, that the condition reads."""
        wanted = self._result.condition_columns[1 - self._step.number if is_other else self._step.number]
        return rows.project(wanted).take(at).columns if wanted else ()

    def _matched(self, part: DataChunk, ids: np.ndarray) -> Generator[Wait, None, tuple[np.ndarray, np.ndarray]]:
        """Which rows of a part find a first partner, and which lose their last one: bool[capacity] each."""
        step = self._step
        if not step.other.has_degrees:
            known = ids >= 0
            rows = step.unread[ids]
            return known & step.gained[rows], known & step.lost[rows]
        touched = {op: np.zeros(part.capacity, np.bool_) for op in (Op.DELETE, Op.INSERT)}
        for op, is_touched in touched.items():
            for _, at in self._met(part, ids, op, is_counted=False):
                is_touched[at] = True
        is_open = touched[Op.DELETE] != touched[Op.INSERT]
        found = yield from self._have_others(part, ids, np.flatnonzero(is_open).astype(np.int32))
        return is_open & ~found & touched[Op.INSERT], is_open & ~found & touched[Op.DELETE]

    def _have_others(
        self, part: DataChunk, ids: np.ndarray, rows: np.ndarray
    ) -> Generator[Wait, None, np.ndarray]:
        """Whether `rows` of a part have partners among the rows of the changed input: bool[capacity]."""
        found = np.zeros(part.capacity, np.bool_)
        if not len(rows):
            return found
        step, keys = self._step, self._step.other.key_of(part)
        waiting, left = self._index_of(keys, rows), rows
        for own in self._own_rows(np.unique(ids[rows])):
            if 2 * np.count_nonzero(~found[left]) < len(left):
                left = left[~found[left]]
                if not len(left):
                    break
                waiting = self._index_of(keys, left)
            hits = waiting.locate(step.own.key_of(own), is_adding=False).ids
            for at, row_ids in JoinProbe(waiting, hits, self._chunk_rows):
                positions = _positions(waiting, row_ids)
                undecided = np.flatnonzero(~found[positions])
                if len(undecided):
                    at, positions = at[undecided], positions[undecided]
                    holds = self._result.holds(
                        step.number, self._of_condition(own, at), self._of_condition(part, positions, True), None)
                    found[positions[holds]] = True
            yield PAUSE
        return found

    def _own_rows(self, keys: np.ndarray) -> Iterator[DataChunk]:
        """The rows of the changed input with some of the keys of `step.unread`: few at first, then more at a time."""
        step = self._step
        changes = step.unread[keys]
        key_ids = step.own_ids[changes]
        yield from _growing(step.own.rows_in_memory(key_ids[key_ids >= 0]))
        if len(step.own_unread) and (key_ids < 0).any():
            yield from _growing(step.own.read(step.keys_at(changes[key_ids < 0])))

    def _pairs(self, part: DataChunk, positions: np.ndarray, at: np.ndarray, op: Op) -> StreamChunk:
        step = self._step
        own = step.changes.project(range(step.own.input.width)).take(positions).columns
        other = part.project(range(step.other.input.width)).take(at).columns
        return self._result.pairs(step.number, own, other, op)

    def _alone(self, part: DataChunk, is_shown: np.ndarray, op: Op) -> Iterator[StreamChunk]:
        step = self._step
        rows = np.flatnonzero(is_shown).astype(np.int32)
        for first in range(0, len(rows), self._chunk_rows):
            taken = rows[first : first + self._chunk_rows]
            columns = part.project(range(step.other.input.width)).take(taken).columns
            yield self._result.alone(1 - step.number, columns, len(taken), op)


def _with_positions(keys: Sequence[Column], positions: np.ndarray) -> StreamChunk:
    return StreamChunk.inserts(DataChunk([*keys, Column(pa.array(positions, pa.int32()))]))


def _positions(index: JoinIndex, row_ids: np.ndarray) -> np.ndarray:
    (found,) = index.gather(row_ids, [len(index.key_columns)])
    return found.to_numpy()


def _growing(chunks: Iterable[DataChunk]) -> Iterator[DataChunk]:
    rows = FEWEST
    for chunk in chunks:
        first = 0
        while first < chunk.capacity:
            end = min(first + rows, chunk.capacity)
            yield chunk.slice(first, end - first)
            first, rows = end, rows * GROWTH
