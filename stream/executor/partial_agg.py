"""Two-phase aggregation: a partial one before an exchange, a final one behind it.

Instead of each row, one row for each group is sent: the state of the group over the rows that are on this side. The
final aggregation adds the states to its groups. The partial one stores nothing: an epoch ends with nothing left. A
retraction may find nothing to retract there: the count of its group is then negative, and right in the sum of all
states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from relational.agg import AggGroups
from relational.catalog.objects import TableCatalog
from relational.chunk import StreamChunk
from relational.expr.aggregates import AggCall
from relational.expr.eval import Evaluator, masks_of
from relational.expr.eval_context import ErrorCounts
from relational.table.row_checks import LONG_KEY, may_be_long, without_long_keys
from stream.executor.base import Executor, ExecutorInfo, first_barrier
from stream.executor.hash_agg import HashAggExecutor, agg_groups
from stream.message import Barrier, Message, Watermark


class PartialAggExecutor(Executor):
    """Emits states as inserts with the columns of `AggGroups.state_types`, at each barrier and whenever the groups have
    `cache_bytes`. `errors` counts as a HashAggExecutor does; `state_table` is the one of the receivers.

    A watermark of a group column is passed on, as one of the column's position among the group columns, behind the
    states of its epoch; others end here."""

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
    ) -> None:
        self.info = info
        self.errors = errors
        self.rows = 0
        """Visible rows that came."""
        self._input, self._group_by, self._calls = input, tuple(group_by), tuple(calls)
        self._filters = [None if call.filter is None else Evaluator(call.filter) for call in calls]
        self._table = state_table
        self._key = tuple(self._group_by[index] for index in state_table.pk_indices)
        self._may_be_long = may_be_long(input.info.schema.types, self._key)
        self._cache_bytes = cache_bytes
        self._groups = self._none()

    def _none(self) -> AggGroups:
        types = self._input.info.schema.types
        return agg_groups(self._group_by, types, self._calls, (), (), self._cache_bytes, self._table)

    def execute(self) -> Iterator[Message]:
        messages = self._input.execute()
        yield (yield from first_barrier(messages, self.info.identity))
        marks: dict[int, Watermark] = {}
        for message in messages:
            if isinstance(message, StreamChunk):
                self._apply(message)
                if self._groups.size_bytes > self._cache_bytes:
                    yield from self._states()
            elif isinstance(message, Watermark):
                if message.column in self._group_by:
                    position = self._group_by.index(message.column)
                    marks[position] = Watermark(position, message.value)
            elif isinstance(message, Barrier):
                yield from self._states()
                yield from marks.values()
                marks.clear()
                yield message
            else:
                yield message

    def _apply(self, chunk: StreamChunk) -> None:
        self.rows += chunk.visible_rows
        if self._may_be_long:
            chunk, lost = without_long_keys(chunk, self._key, self._table)
            self.errors.add(LONG_KEY, lost)
        located = self._groups.locate(chunk)
        self._groups.apply(chunk, located.ids, masks_of(self._filters, chunk, errors=self.errors))

    def _states(self) -> Iterator[StreamChunk]:
        yield from map(StreamChunk.inserts, self._groups.take_states())
        self._groups.release()
        self._groups = self._none()


class FinalAggExecutor(HashAggExecutor):
    """A HashAggExecutor whose input are the states of PartialAggExecutors, with their watermarks. They have counted the
    rows `partial_errors`, by reason, in this epoch."""

    def __init__(self, *given: Any, partial_errors: Mapping[str, int], **named: Any) -> None:
        super().__init__(*given, **named)
        self._partial_errors = partial_errors

    def execute(self) -> Iterator[Message]:
        messages = super().execute()
        yield (yield from first_barrier(messages, self.info.identity))  # now the counts are those that were stored
        for reason, rows in self._partial_errors.items():
            self._errors.add(reason, rows)
        yield from messages

    def _note(self, watermark: Watermark) -> None:
        self._watermarks[watermark.column] = watermark

    def _apply(self, chunk: StreamChunk) -> None:
        states = chunk.compact()
        located = self._groups.locate(states, of_states=True)
        self._load(located.new_ids)
        self._groups.merge(states, located.ids)
