"""Join: the pairs of rows of two inputs with equal keys, kept up to date.

A chunk of changes of one input meets the rows that the other one has at that moment; then it is applied to its own
input's rows. Of a chunk only the net changes count, at most one deletion and one insertion of a row, so everything that
a chunk retracts is emitted before what it adds: first the pairs of deleted rows, last those of inserted ones.

Where the other input has at most one row for each key, which never goes, a row that has found it is not needed any
more: only rows that still wait are kept.

A row that is shown only with, or only without, partners is emitted or retracted when the first one comes or the last
one goes. Without a further condition the partners of a row are the rows of the other input with its key, whose number
is known; with one, each row in memory has the number of its partners, its degree. Degrees are not stored: they are
counted again when rows come into memory, for which the rows of the other input with the same keys are there as well.

Matches are emitted in slices of `chunk_rows`, so memory does not depend on how many rows one change joins [R43]. Where
only pairs are shown, and the rows under the keys of a chunk exceed the budget, these rows do not come into memory: they
are read from the table, a part at a time, and look up the changes, once the deleted rows and once the inserted ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from relational.chunk import Column, DataChunk, Op, StreamChunk, mask_of
from relational.expr.eval import Evaluator
from relational.expr.eval_context import ErrorCounts
from relational.expr.expression import Expression, input_columns, remap
from relational.join.join_index import JoinIndex
from relational.join.join_probe import JoinProbe
from relational.memory_use import MemoryUse
from stream.executor.barrier_align import align_barriers
from stream.executor.base import Executor, ExecutorInfo, slices
from stream.executor.join_side import NO_KEYS, JoinSide, Shown
from stream.executor.join_watermarks import JoinWatermarks
from stream.message import Barrier, Message, Wait, Watermark

SIDES = "left rows", "right rows"
NO_ROWS = np.empty(0, np.int32)


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
        self._has_pairs = has_pairs
        self._chunk_rows = chunk_rows
        self._condition: _Condition | None = None
        if condition is not None:
            self._condition = _Condition(condition, sides[0].input.width)
        self._shows_pairs_alone = not any(side.is_tracked or side.input.is_passing for side in sides)
        self._types = [side.input.types[: side.input.width] for side in sides]

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
                for chunk in self._joined(message.input, message.message):
                    yield from slices(chunk, self._chunk_rows)
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

    def _joined(self, number: int, chunk: StreamChunk) -> Iterator[StreamChunk]:
        """The changes of the result that follow from those of input `number`."""
        own, other = self._sides[number], self._sides[1 - number]
        changes = own.net(chunk, self._errors)
        if not changes.capacity:
            return
        step = self._located(number, own, other, changes)
        is_deletion = (changes.ops & Op.DELETE).astype(np.bool_)
        if is_deletion.any():
            yield from self._matched(step, is_deletion, Op.DELETE)
            yield from self._shown_of_chunk(step, is_deletion, Op.DELETE)
        if other.is_tracked and not other.has_degrees:
            yield from self._counted(step, is_deletion)
        if not is_deletion.all():
            yield from self._matched(step, ~is_deletion, Op.INSERT)
            yield from self._shown_of_chunk(step, ~is_deletion, Op.INSERT)
        self._store(step)
        if len(step.unmatched):
            op = Op.INSERT if other.input.shown is Shown.UNMATCHED else Op.DELETE
            yield from self._shown(step, step.unmatched, op)

    def _store(self, step: _Step) -> None:
        """Applies the changes to their own side. Rows that pass are stored only if they have no partner yet; those that
        have waited for a row of the chunk go."""
        own, changes, ids = step.own, step.changes, step.own_ids
        if own.input.is_passing:
            waits = step.other.index.counts(step.other_ids) == 0
            changes, ids = changes.filter(waits.astype(np.uint8)).compact(), ids[waits]
        if changes.capacity:
            own.apply(changes, ids, step.partners if own.has_degrees else None)
        if step.other.input.is_passing:
            passed = _rows_under(step.other, np.unique(step.other_ids[step.other_ids >= 0]))
            if len(passed):
                step.other.remove(passed)

    def _located(self, number: int, own: JoinSide, other: JoinSide, changes: StreamChunk) -> _Step:
        """The changes with the ids of their keys, on both sides, whose rows are in memory where they are needed."""
        keys = own.key_of(changes)
        own_ids, own_new = own.locate(keys, is_loading=other.is_tracked, is_adding=True)
        if self._shows_pairs_alone:
            other_ids, unread = other.locate_within_budget(keys)
            return _Step(number, own, other, changes, own_ids, other_ids, np.zeros(changes.capacity, np.int32), unread)
        other_ids, other_new = other.locate(keys, is_loading=True, is_adding=False)
        if own.has_degrees:
            self._count(own, other, own_new, number)
        if other.has_degrees:
            self._count(other, own, other_new, 1 - number)
        is_known = self._condition is None
        partners = other.index.counts(other_ids) if is_known else np.zeros(changes.capacity, np.int32)
        return _Step(number, own, other, changes, own_ids, other_ids, partners)

    def _matched(self, step: _Step, rows: np.ndarray, op: Op) -> Iterator[StreamChunk]:
        """The changes of the pairs of some rows of the chunk (bool[capacity]), and before insertions the changes of
        rows of the other side that find a first partner."""
        if not self._has_pairs and self._condition is None:
            return
        for chunk_rows, row_ids in JoinProbe(step.other.index, np.where(rows, step.other_ids, -1), self._chunk_rows):
            if self._condition is not None:
                kept = self._holds(step, chunk_rows, row_ids, op)
                chunk_rows, row_ids = chunk_rows[kept], row_ids[kept]
                step.partners += np.bincount(chunk_rows, minlength=len(step.partners)).astype(np.int32)
            if step.other.has_degrees:
                yield from self._changed_degrees(step, row_ids, op)
            if self._has_pairs and len(chunk_rows):
                own = step.changes.project(range(step.own.input.width)).take(chunk_rows).columns
                yield self._output(step.number, own, self._gathered(step.other, row_ids), op)
        if step.unread.capacity:
            yield from self._matched_in_table(step, rows, op)

    def _matched_in_table(self, step: _Step, rows: np.ndarray, op: Op) -> Iterator[StreamChunk]:
        """The same with stored rows of the other side that are not in memory."""
        changes = step.changes.filter(rows.view(np.uint8)).compact()
        index = JoinIndex(step.own.input.types, step.own.input.key, (), null_safe=step.own.index.null_safe)
        index.apply(StreamChunk.inserts(changes), index.locate(step.own.key_of(changes)).ids)
        widths = step.own.input.width, step.other.input.width
        for stored in step.other.read(step.unread):
            ids = index.locate(step.other.key_of(stored), is_adding=False).ids
            for at, row_ids in JoinProbe(index, ids, self._chunk_rows):
                own = DataChunk(list(map(Column, index.gather(row_ids))), capacity=len(at))
                other = stored.take(at)
                if self._condition is not None:
                    wanted = self._condition.columns
                    kept = self._is_true(own.project(wanted[step.number]).columns,
                                         other.project(wanted[1 - step.number]).columns, step.number, op)
                    own, other = (each.take(np.flatnonzero(kept).astype(np.int32)) for each in (own, other))
                if own.capacity:
                    yield self._output(step.number, own.columns[: widths[0]], other.columns[: widths[1]], op)

    def _holds(self, step: _Step, chunk_rows: np.ndarray, row_ids: np.ndarray, op: Op) -> np.ndarray:
        """Whether the condition is true of pairs: bool[n]."""
        assert self._condition is not None
        wanted = self._condition.columns
        own = step.changes.project(wanted[step.number]).take(chunk_rows).columns
        other = list(map(Column, step.other.index.gather(row_ids, wanted[1 - step.number])))
        return self._is_true(own, other, step.number, op)

    def _is_true(self, own: Sequence[Column], other: Sequence[Column], number: int, op: Op) -> np.ndarray:
        """Whether the condition is true of pairs with these columns that it reads, for changes of input `number`."""
        assert self._condition is not None
        columns = [*own, *other] if number == 0 else [*other, *own]
        return self._condition(StreamChunk(columns, np.full(len(columns[0]), op, np.uint8)), self._errors)

    def _changed_degrees(self, step: _Step, row_ids: np.ndarray, op: Op) -> Iterator[StreamChunk]:
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

    def _counted(self, step: _Step, is_deletion: np.ndarray) -> Iterator[StreamChunk]:
        """The same where all rows of the other side with one key have the same partners."""
        known = np.flatnonzero(step.own_ids >= 0)
        ids, first = np.unique(step.own_ids[known], return_index=True)
        before = step.own.index.counts(ids)
        weights = np.where(is_deletion, -1.0, 1.0)[known]
        after = before + np.bincount(np.searchsorted(ids, step.own_ids[known]), weights, len(ids)).astype(np.int64)
        other_ids = step.other_ids[known][first]
        step.unmatched = _rows_under(step.other, other_ids[(before > 0) & (after == 0)])
        yield from self._first_matched(step, _rows_under(step.other, other_ids[(before == 0) & (after > 0)]))

    def _first_matched(self, step: _Step, row_ids: np.ndarray) -> Iterator[StreamChunk]:
        if len(row_ids):
            is_shown_alone = step.other.input.shown is Shown.UNMATCHED
            yield from self._shown(step, row_ids, Op.DELETE if is_shown_alone else Op.INSERT)

    def _shown(self, step: _Step, row_ids: np.ndarray, op: Op) -> Iterator[StreamChunk]:
        """Rows of the other side without a partner beside them."""
        for first in range(0, len(row_ids), self._chunk_rows):
            part = np.ascontiguousarray(row_ids[first : first + self._chunk_rows])
            absent = self._absent(step.number, len(part))
            yield self._output(step.number, absent, self._gathered(step.other, part), op)

    def _shown_of_chunk(self, step: _Step, rows: np.ndarray, op: Op) -> Iterator[StreamChunk]:
        """Some rows of the chunk without a partner beside them, if they are shown."""
        shown = step.own.input.shown
        if shown is Shown.NONE:
            return
        taken = np.flatnonzero(rows & ((step.partners > 0) == (shown is Shown.MATCHED))).astype(np.int32)
        if len(taken):
            own = step.changes.project(range(step.own.input.width)).take(taken).columns
            yield self._output(step.number, own, self._absent(1 - step.number, len(taken)), op)

    def _count(self, side: JoinSide, other: JoinSide, keys: np.ndarray, number: int) -> None:
        """Counts the partners of the rows of `side`, input `number`, that were read just now."""
        assert self._condition is not None
        for _, row_ids in JoinProbe(side.index, keys, self._chunk_rows):
            found = other.index.locate(list(map(Column, side.index.gather(row_ids, side.input.key))), is_adding=False)
            wanted = self._condition.columns
            for at, other_ids in JoinProbe(other.index, found.ids, self._chunk_rows):
                own = list(map(Column, side.index.gather(row_ids[at], wanted[number])))
                theirs = list(map(Column, other.index.gather(other_ids, wanted[1 - number])))
                columns = [*own, *theirs] if number == 0 else [*theirs, *own]
                partnered = row_ids[at][self._condition(DataChunk(columns), None)]
                side.index.change_degrees(partnered, np.ones(len(partnered), np.int8))

    def _gathered(self, side: JoinSide, row_ids: np.ndarray) -> list[Column]:
        """The columns of rows of `side` that are part of the result."""
        if not side.input.width:
            return []
        return list(map(Column, side.index.gather(row_ids, range(side.input.width))))

    def _absent(self, number: int, rows: int) -> list[Column]:
        """So many rows of NULL for input `number`."""
        return [Column.nulls(data_type, rows) for data_type in self._types[number]]

    def _output(self, number: int, own: Sequence[Column], other: Sequence[Column], op: Op) -> StreamChunk:
        left, right = (own, other) if number == 0 else (other, own)
        columns = [*left, *right] if self._has_pairs else list(left)
        return StreamChunk(columns, np.full(len(columns[0]), op, np.uint8))


@dataclass(slots=True)
class _Step:
    """Net changes of input `number`, which is `own`. `own_ids`, `other_ids`: the key id of each of them on both sides.
    `partners`: how many each has on the other side, complete when all were looked up. `unread`: keys whose rows
    on the other side are not in memory. `unmatched`: ids of rows of the other side that have lost their last partner.
    """

    number: int
    own: JoinSide
    other: JoinSide
    changes: StreamChunk
    own_ids: np.ndarray
    other_ids: np.ndarray
    partners: np.ndarray
    unread: DataChunk = field(default_factory=lambda: NO_KEYS)
    unmatched: np.ndarray = field(default_factory=lambda: NO_ROWS)


class _Condition:
    """A condition over the columns of both sides, of which the left one has `width`. `columns`: those of each side that
    it reads, of which its rows are made."""

    def __init__(self, condition: Expression, width: int) -> None:
        read = sorted(input_columns(condition)) or [0]
        self._evaluator = Evaluator(remap(condition, {old: new for new, old in enumerate(read)}))
        self.columns = (
            [column for column in read if column < width],
            [column - width for column in read if column >= width],
        )

    def __call__(self, pairs: DataChunk, errors: ErrorCounts | None) -> np.ndarray:
        """bool[capacity]."""
        return mask_of(self._evaluator(pairs, errors=errors)).view(np.bool_)


def _rows_under(side: JoinSide, keys: np.ndarray) -> np.ndarray:
    """The ids of the rows with these keys."""
    found = [row_ids for _, row_ids in JoinProbe(side.index, np.ascontiguousarray(keys, np.int32))]
    return np.concatenate(found) if found else NO_ROWS
