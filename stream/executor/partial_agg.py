"""Two-phase aggregation: a partial one before an exchange, a HashAggExecutor behind it.

Instead of each row, one row for each group is sent: the state of the group over the rows that are on this side. The
receiver adds the states to its groups. The partial one stores nothing: an epoch ends with nothing left. A retraction
may find nothing to retract there: the count of its group is then negative, and right in the sum of all states. What a
sender emits about a group is in the order of its rows, so the sum of all that has come is never negative.

That pays where a group has many rows. To make a group, to send its state and to merge it takes as long as to send about
LEAST_REDUCTION rows. So the rows that come in are compared with the states that go out; where these are too many, rows
are passed on as they are for a while, which costs nothing for each of them, before groups are tried again. (DuckDB and
Velox abandon a partial aggregation in the same way.)

States of all groups of an epoch at its barrier would be work that begins when the barrier has come, for every operator
below. So they are sent as soon as there are many, with LEAST_REDUCTION rows each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from relational.agg import AggGroups
from relational.catalog.objects import TableCatalog
from relational.chunk import StreamChunk
from relational.expr.aggregates import AggCall
from relational.expr.eval import Evaluator, masks_of
from relational.expr.eval_context import ErrorCounts
from relational.memory_use import MemoryUse
from relational.table.row_checks import LONG_KEY, may_be_long, without_long_keys
from stream.executor.base import Executor, ExecutorInfo, first_barrier, slices
from stream.executor.flush_pace import EARLY_GROUPS, near_barrier
from stream.executor.hash_agg import HashAggExecutor, agg_groups
from stream.message import Barrier, GroupStates, Message, Watermark
from stream.runtime.barrier_forecast import BarrierForecast

LEAST_REDUCTION = 8
"""Rows for each group, below which they are sent themselves."""
SAMPLE_ROWS = 1 << 14
"""After so many a partial aggregation is judged."""
FIRST_PASSED, MORE_PASSED, MOST_PASSED = 16, 4, 256
"""Times SAMPLE_ROWS that are passed on before groups are tried again: at first, each time so many times more, and at
most."""


class Reduction:
    """Decides whether groups are worth making."""

    def __init__(self) -> None:
        self._rows = self._states = 0  # of the sample
        self._to_pass = 0  # rows, before the next sample
        self._patience = FIRST_PASSED

    @property
    def is_poor(self) -> bool:
        """Whether rows are to be passed on."""
        return self._to_pass > 0

    def pass_on(self, rows: int) -> None:
        """So many rows were passed on."""
        self._to_pass -= rows

    def take(self, rows: int, groups: int) -> bool:
        """Rows became part of groups, of which `groups` are not sent yet. Whether rows are passed on from now on."""
        self._rows += rows
        if self._rows < SAMPLE_ROWS:
            return False
        is_poor = (self._states + groups) * LEAST_REDUCTION > self._rows
        if is_poor:
            self._to_pass = SAMPLE_ROWS * self._patience
            self._patience = min(MORE_PASSED * self._patience, MOST_PASSED)
        else:
            self._patience = FIRST_PASSED
        self._rows, self._states = 0, -groups
        return is_poor

    def sent(self, groups: int) -> None:
        """So many states were sent."""
        self._states += groups


class PartialAggExecutor(Executor):
    """Emits GroupStates, of at most `chunk_rows` groups each, at each barrier, whenever the groups have `cache_bytes`,
    and from `early_groups` groups on that have enough rows, fewer shortly before the barriers that `forecast` expects;
    and its input as it is, while `reduction` says so; None: never. `errors` counts for the groups as a HashAggExecutor
    does for rows; `state_table` is the one of the receivers.

    `sends_rows`: instead of states the groups themselves, which have all columns, as rows: the receiver drops those
    that it knows.

    A watermark of a group column is passed on behind the rows and states of its epoch; others end here."""

    def __init__(
        self,
        info: ExecutorInfo,
        input: Executor,
        group_by: Sequence[int],
        calls: Sequence[AggCall],
        state_table: TableCatalog,
        errors: ErrorCounts,
        *,
        cache_bytes: int,
        chunk_rows: int,
        reduction: Reduction | None,
        early_groups: int = EARLY_GROUPS,
        sends_rows: bool = False,
        forecast: BarrierForecast | None = None,
    ) -> None:
        self.info = info
        self.errors = errors
        self.rows = 0
        """Visible rows that became part of groups."""
        self._input, self._group_by, self._calls = input, tuple(group_by), tuple(calls)
        self._filters = [None if call.filter is None else Evaluator(call.filter) for call in calls]
        self._table = state_table
        self._key = tuple(self._group_by[index] for index in state_table.pk_indices)
        self._may_be_long = may_be_long(input.info.schema.types, self._key)
        self._cache_bytes, self._chunk_rows = cache_bytes, chunk_rows
        self._reduction, self._early_groups = reduction, early_groups
        self._sends_rows = sends_rows
        self._forecast = BarrierForecast() if forecast is None else forecast
        self._unsent_rows = 0  # of the groups
        self._groups = self._none()

    def _none(self) -> AggGroups:
        types = self._input.info.schema.types
        return agg_groups(self._group_by, types, self._calls, (), (), None, self._table)

    def execute(self) -> Iterator[Message]:
        messages = self._input.execute()
        yield (yield from first_barrier(messages, self.info.identity))
        marks: dict[int, Watermark] = {}
        for message in messages:
            if isinstance(message, StreamChunk):
                yield from self._taken(message)
            elif isinstance(message, Watermark):
                if message.column in self._group_by:
                    marks[message.column] = message
            elif isinstance(message, Barrier):
                yield from self._states()
                yield from marks.values()
                marks.clear()
                yield message
            else:
                yield message

    def memory(self) -> list[tuple[str, MemoryUse]]:
        return [("groups to send", replace(self._groups.memory(), budget_bytes=self._cache_bytes))]

    def _taken(self, chunk: StreamChunk) -> Iterator[Message]:
        """What follows from a chunk at once."""
        reduction = self._reduction
        if reduction is not None and reduction.is_poor:
            reduction.pass_on(chunk.visible_rows)
            yield chunk
            return
        self._apply(chunk)
        is_poor = reduction is not None and reduction.take(chunk.visible_rows, self._groups.dirty_groups)
        if is_poor or self._groups.size_bytes > self._cache_bytes or self._has_many:
            yield from self._states()

    @property
    def _has_many(self) -> bool:
        """Whether groups are sent ahead of the barrier."""
        groups = self._groups.dirty_groups
        early = near_barrier(self._early_groups, self._forecast)
        return groups >= early and self._unsent_rows >= LEAST_REDUCTION * groups

    def _apply(self, chunk: StreamChunk) -> None:
        self.rows += chunk.visible_rows
        self._unsent_rows += chunk.visible_rows
        if self._may_be_long:
            chunk, lost = without_long_keys(chunk, self._key, self._table)
            self.errors.add(LONG_KEY, lost)
        located = self._groups.locate(chunk)
        self._groups.apply(chunk, located.ids, masks_of(self._filters, chunk, errors=self.errors))

    def _states(self) -> Iterator[StreamChunk | GroupStates]:
        """All that there are, and none are left."""
        if not self._groups.dirty_groups:
            return
        if self._reduction is not None:
            self._reduction.sent(self._groups.dirty_groups)
        for states in map(StreamChunk.inserts, self._groups.take_states()):
            for part in slices(states, self._chunk_rows):
                yield part.project(self._group_by) if self._sends_rows else GroupStates(part, self._group_by)
        self._groups.release()
        self._groups, self._unsent_rows = self._none(), 0


class FinalAggExecutor(HashAggExecutor):
    """A HashAggExecutor whose rows, or states of groups of them, come from other tasks, which have counted the rows
    `partial_errors`, by reason, in this epoch."""

    def __init__(self, *given: Any, partial_errors: Mapping[str, int], **named: Any) -> None:
        super().__init__(*given, **named)
        self._partial_errors = partial_errors

    def execute(self) -> Iterator[Message]:
        messages = super().execute()
        yield (yield from first_barrier(messages, self.info.identity))  # now the counts are those that were stored
        for reason, rows in self._partial_errors.items():
            self._errors.add(reason, rows)
        yield from messages
