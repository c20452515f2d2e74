"""Join: the pairs of rows of two inputs with equal keys, kept up to date.

A chunk of changes of one input meets the rows that the other one has at that moment; then it is applied to its own
input's rows. Of a chunk only the net changes count, at most one deletion and one insertion of a row, so everything that
a chunk retracts is emitted before what it adds: first the pairs of deleted rows, last those of inserted ones.

Where the other input has at most one row for each key, which never goes, a row that has found it is not needed any
more: only rows that still wait are kept.

An input of which only the distinct values of the join key count needs no aggregation below, with groups of its own: a
row whose key was there before is dropped here.

A row that is shown only with, or only without, partners is emitted or retracted when the first one comes or the last
one goes. Without a further condition the partners of a row are the rows of the other input with its key, whose number
is known; with one, each row in memory has the number of its partners, its degree. Degrees are not stored: they are
counted again when rows come into memory.

Matches are emitted in slices of `chunk_rows`, so memory does not depend on how many rows one change joins [R43]. Rows
under keys that exceed the budget do not come into memory: they are read from the table and meet the changes a part at a
time, see `StoredPartners`. Then what a chunk retracts is emitted before what it adds for each key of the result, not
for the chunk as a whole: a row of the result with a stored row is in one part, so only where rows of the changed input
are shown alone deletions and insertions are read for one after the other.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

import numpy as np

from relational.chunk import Column, Op, StreamChunk
from relational.expr.eval_context import ErrorCounts
from relational.expr.expression import Expression
from relational.join.join_index import JoinIndex
from relational.join.join_probe import JoinProbe
from relational.memory_use import MemoryUse
from stream.executor.barrier_align import align_barriers
from stream.executor.base import Executor, ExecutorInfo, slices
from stream.executor.join_result import JoinResult
from stream.executor.join_side import NO_ROWS, JoinSide, Shown
from stream.executor.join_step import JoinStep
from stream.executor.join_watermarks import JoinWatermarks
from stream.executor.stored_partners import StoredPartners
from stream.message import PAUSE, Barrier, Message, Wait, Watermark

SIDES = "left rows", "right rows"


class HashJoinExecutor(Executor):
    """`info`'s columns are the first columns of each side, as many as its width says; of the left one alone if
    `has_pairs` is false. `condition`, over these columns of both sides, must be true for a pair. `errors` counts the
    pairs for which it fails, and rows dropped because their key is too long for the store. `watermarks`: those that
    clean the state, which are passed on; None: watermarks end here."""

    def __init__(
        self,
        info: ExecutorInfo,
        inputs: Sequence[Executor],
        sides: tuple[JoinSide, JoinSide],
        condition: Expression | None,
        errors: ErrorCounts,
        *,
        has_pairs: bool,
        chunk_rows: int,
        watermarks: JoinWatermarks | None = None,
    ) -> None:
        self.info = info
        self._inputs, self._sides = tuple(inputs), sides
        self._errors, self._watermarks = errors, watermarks
        self._chunk_rows = chunk_rows
        types = [side.input.types[: side.input.width] for side in sides]
        self._result = JoinResult((types[0], types[1]), condition, errors, has_pairs=has_pairs)

    def execute(self) -> Iterator[Message]:
        is_open = False
        for message in align_barriers(self._inputs, self.info.identity):
            if isinstance(message, Wait):
                yield message
            elif isinstance(message, Barrier):
                if is_open:
                    yield from self._commit(message)
                else:
                    for side in self._sides:
                        side.open(message)
                is_open = True
                yield message
                for side in self._sides:
                    side.end_epoch()  # behind the barrier, which an eviction would delay
            elif isinstance(message.message, StreamChunk):
                for made in self._joined(message.input, message.message):
                    if isinstance(made, Wait):
                        yield made
                    else:
                        yield from slices(made, self._chunk_rows)
                for side in self._sides:
                    side.index.limit_memory()
            elif not isinstance(message.message, Watermark):
                raise AssertionError(f"{type(message.message).__name__} at a join")
            elif self._watermarks is not None:
                self._watermarks.note(message.input, message.message)

    def memory(self) -> list[tuple[str, MemoryUse]]:
        return [(name, side.index.memory()) for name, side in zip(SIDES, self._sides, strict=True)]

    def _commit(self, barrier: Barrier) -> Iterator[Watermark]:
        """Commits both sides, without the rows that are final now; the watermarks of the result."""
        moved = [] if self._watermarks is None else list(self._watermarks.clean(self._sides))
        for side in self._sides:
            side.commit(barrier)
        yield from moved

    def _joined(self, number: int, chunk: StreamChunk) -> Iterator[StreamChunk | Wait]:
        """The changes of the result that follow from those of input `number`."""
        own, other = self._sides[number], self._sides[1 - number]
        changes = own.net(chunk, self._errors)
        if own.input.is_distinct and changes.capacity:
            changes = yield from own.unknown(changes)
        if not changes.capacity:
            return
        step = yield from self._located(number, own, other, changes)
        is_deletion = (changes.ops & Op.DELETE).astype(np.bool_)
        if len(step.unread) and other.has_degrees and is_deletion.any():
            own.apply(changes.filter(is_deletion.view(np.uint8)).compact(), step.own_ids[is_deletion], None)
        stored = StoredPartners(self._result, step, self._chunk_rows) if len(step.unread) else None
        shows_own_alone = own.is_tracked and not other.is_tracked
        if stored is not None and not shows_own_alone:
            yield from stored.changes((Op.DELETE, Op.INSERT))
        for op, rows in ((Op.DELETE, is_deletion), (Op.INSERT, ~is_deletion)):
            if op is Op.INSERT and other.is_tracked and not other.has_degrees:
                yield from self._first_matched(step, _rows_under(other, step.other_ids[step.gained]))
                step.unmatched = _rows_under(other, step.other_ids[step.lost])
            if rows.any():
                yield from self._matched(step, rows, op)
                if stored is not None and shows_own_alone:
                    yield from stored.changes((op,))
                yield from self._shown_of_chunk(step, rows, op)
        self._store(step, is_deletion)
        if len(step.unmatched):
            op = Op.INSERT if other.input.shown is Shown.UNMATCHED else Op.DELETE
            yield from self._shown(step, step.unmatched, op)

    def _store(self, step: JoinStep, is_deletion: np.ndarray) -> None:
        """Applies the changes to their own side, where that was not done yet. Rows that pass are stored only if they
        have no partner yet; those that have waited for a row of the chunk go."""
        own, changes, ids, partners = step.own, step.changes, step.own_ids, step.partners
        if len(step.unread) and step.other.has_degrees:
            left = ~is_deletion
            changes, ids, partners = changes.filter(left.view(np.uint8)).compact(), ids[left], partners[left]
        if own.input.is_passing:
            changes, ids = changes.filter(step.waits.view(np.uint8)).compact(), ids[step.waits]
        if changes.capacity:
            own.apply(changes, ids, partners if own.has_degrees else None)
        if step.other.input.is_passing:
            passed = _rows_under(step.other, step.other_ids)
            if len(passed):
                step.other.remove(passed)

    def _located(
        self, number: int, own: JoinSide, other: JoinSide, changes: StreamChunk
    ) -> Generator[Wait, None, JoinStep]:
        """The changes with the ids of their keys, on both sides, whose rows are in memory where they are needed and do
        not exceed the budget."""
        keys = own.key_of(changes)
        if other.is_tracked:
            own_ids, own_unread, own_new = yield from own.locate_within_budget(keys, is_adding=True)
        else:
            own_ids, own_unread, own_new = own.locate(keys), NO_ROWS, NO_ROWS
        other_ids, unread, other_new = yield from other.locate_within_budget(keys, is_adding=False)
        nothing = np.zeros(changes.capacity, np.bool_)
        step = JoinStep(number, own, other, changes, keys, own_ids, other_ids, own_unread, unread,
                        np.zeros(changes.capacity, np.int32), nothing, nothing, nothing)
        if own.has_degrees and len(own_new):
            yield from self._count(own, other, own_new, number, step.keys_at(unread))
        if other.has_degrees and len(other_new):
            yield from self._count(other, own, other_new, 1 - number, step.keys_at(own_unread))
        if own.input.is_passing:
            step.waits = (yield from _row_counts(step, other, other_ids, unread)) == 0
        if not self._result.has_condition:
            step.partners = other.index.counts(other_ids)
            if len(unread) and own.is_tracked and not self._result.has_pairs:
                step.partners = (yield from _row_counts(step, other, other_ids, unread)).astype(np.int32)
            if other.is_tracked:
                yield from self._compare(step)
        return step

    def _compare(self, step: JoinStep) -> Generator[Wait, None, None]:
        """Finds the keys under which the changed input gets its first row, or loses the last one."""
        before = yield from _row_counts(step, step.own, step.own_ids, step.own_unread)
        keys = _numbers(step) if len(step.own_unread) else step.own_ids
        known = np.flatnonzero(keys >= 0)
        weights = np.where(step.changes.ops & Op.DELETE, -1.0, 1.0)[known]
        after = before.copy()
        after[known] += np.bincount(keys[known], weights)[keys[known]].astype(np.int64)
        step.gained, step.lost = (before == 0) & (after > 0), (before > 0) & (after == 0)

    def _matched(self, step: JoinStep, rows: np.ndarray, op: Op) -> Iterator[StreamChunk]:
        """The changes of the pairs of some rows of the chunk (bool[capacity]) with rows in memory, and before
        insertions the changes of rows of the other side that find a first partner."""
        result = self._result
        if not result.has_pairs and not result.has_condition:
            return
        for chunk_rows, row_ids in JoinProbe(step.other.index, np.where(rows, step.other_ids, -1), self._chunk_rows):
            if result.has_condition:
                kept = self._holds(step, chunk_rows, row_ids, op)
                chunk_rows, row_ids = chunk_rows[kept], row_ids[kept]
                step.partners += np.bincount(chunk_rows, minlength=len(step.partners)).astype(np.int32)
            if step.other.has_degrees:
                yield from self._changed_degrees(step, row_ids, op)
            if result.has_pairs and len(chunk_rows):
                own = step.changes.project(range(step.own.input.width)).take(chunk_rows).columns
                yield result.pairs(step.number, own, self._gathered(step.other, row_ids), op)

    def _holds(self, step: JoinStep, chunk_rows: np.ndarray, row_ids: np.ndarray, op: Op) -> np.ndarray:
        """Whether the condition is true of pairs: bool[n]."""
        wanted = self._result.condition_columns
        own = step.changes.project(wanted[step.number]).take(chunk_rows).columns
        other = list(map(Column, step.other.index.gather(row_ids, wanted[1 - step.number])))
        return self._result.holds(step.number, own, other, op)

    def _changed_degrees(self, step: JoinStep, row_ids: np.ndarray, op: Op) -> Iterator[StreamChunk]:
        """Notes the rows of the other side that lost their last partner; emits those that found a first one."""
        weight = -1 if op is Op.DELETE else 1
        degrees = step.other.index.change_degrees(row_ids, np.full(len(row_ids), weight, np.int8))
        if op is Op.DELETE:
            step.unmatched = np.concatenate([step.unmatched, row_ids[degrees == 0]])
            return
        matched = row_ids[degrees == 1]
        if len(step.unmatched):
            matched, before = np.setdiff1d(matched, step.unmatched), matched
            step.unmatched = np.setdiff1d(step.unmatched, before)
        yield from self._first_matched(step, matched)

    def _first_matched(self, step: JoinStep, row_ids: np.ndarray) -> Iterator[StreamChunk]:
        if len(row_ids):
            is_shown_alone = step.other.input.shown is Shown.UNMATCHED
            yield from self._shown(step, row_ids, Op.DELETE if is_shown_alone else Op.INSERT)

    def _shown(self, step: JoinStep, row_ids: np.ndarray, op: Op) -> Iterator[StreamChunk]:
        """Rows of the other side without a partner beside them."""
        for first in range(0, len(row_ids), self._chunk_rows):
            part = np.ascontiguousarray(row_ids[first : first + self._chunk_rows])
            yield self._result.alone(1 - step.number, self._gathered(step.other, part), len(part), op)

    def _shown_of_chunk(self, step: JoinStep, rows: np.ndarray, op: Op) -> Iterator[StreamChunk]:
        """Some rows of the chunk without a partner beside them, if they are shown."""
        shown = step.own.input.shown
        if shown is Shown.NONE:
            return
        taken = np.flatnonzero(rows & ((step.partners > 0) == (shown is Shown.MATCHED))).astype(np.int32)
        if len(taken):
            own = step.changes.project(range(step.own.input.width)).take(taken).columns
            yield self._result.alone(step.number, own, len(taken), op)

    def _count(
        self, side: JoinSide, other: JoinSide, key_ids: np.ndarray, number: int, unread: Sequence[Column]
    ) -> Generator[Wait, None, None]:
        """Counts the partners of the rows of `side`, input `number`, that were read just now: those with the keys
        `key_ids`. `unread`: the keys whose rows on the other side are not in memory."""
        wanted = self._result.condition_columns
        for _, row_ids in JoinProbe(side.index, key_ids, self._chunk_rows):
            found = other.index.locate(list(map(Column, side.index.gather(row_ids, side.input.key))), is_adding=False)
            for at, other_ids in JoinProbe(other.index, found.ids, self._chunk_rows):
                theirs = list(map(Column, other.index.gather(other_ids, wanted[1 - number])))
                self._add_partners(side, number, row_ids[at], theirs)
        for part in other.read(unread) if unread else ():
            ids = side.index.locate(other.key_of(part), is_adding=False).ids
            for at, row_ids in JoinProbe(side.index, np.where(ids >= key_ids[0], ids, -1), self._chunk_rows):
                self._add_partners(side, number, row_ids, part.project(wanted[1 - number]).take(at).columns)
            yield PAUSE

    def _add_partners(self, side: JoinSide, number: int, row_ids: np.ndarray, partners: Sequence[Column]) -> None:
        """Adds one to the degree of rows in memory for which the condition holds with these rows of the other side."""
        own = list(map(Column, side.index.gather(row_ids, self._result.condition_columns[number])))
        partnered = row_ids[self._result.holds(number, own, partners, None)]
        side.index.change_degrees(partnered, np.ones(len(partnered), np.int8))

    def _gathered(self, side: JoinSide, row_ids: np.ndarray) -> list[Column]:
        """The columns of rows of `side` that are part of the result."""
        if not side.input.width:
            return []
        return list(map(Column, side.index.gather(row_ids, range(side.input.width))))


def _row_counts(
    step: JoinStep, side: JoinSide, ids: np.ndarray, unread: np.ndarray
) -> Generator[Wait, None, np.ndarray]:
    """How many rows of `side` have the key of each change: int64[capacity]."""
    counts = side.index.counts(ids).astype(np.int64)
    if len(unread):
        found = yield from side.row_counts(step.keys_at(unread))
        numbers = _numbers(step)
        of_number = np.zeros(step.changes.capacity, np.int64)
        of_number[numbers[unread]] = found
        is_unread = (ids < 0) & (numbers >= 0)
        counts[is_unread] = of_number[numbers[is_unread]]
    return counts


def _numbers(step: JoinStep) -> np.ndarray:
    """For each change a number of its key: int32[capacity], -1 for one that equals no key."""
    types = [column.data_type for column in step.keys]
    return JoinIndex(types, range(len(types)), (), null_safe=step.own.index.null_safe).locate(step.keys).ids


def _rows_under(side: JoinSide, key_ids: np.ndarray) -> np.ndarray:
    """The ids of the rows with these keys, each of which may come several times."""
    keys = np.unique(key_ids[key_ids >= 0])
    found = [row_ids for _, row_ids in JoinProbe(side.index, np.ascontiguousarray(keys, np.int32))]
    return np.concatenate(found) if found else NO_ROWS
