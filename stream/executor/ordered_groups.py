"""What executors over ordered groups of rows share: the changes of an epoch are kept until the barrier, or until there
are many, and then applied to all groups at once, so that a group emits what is different after the epoch, however often
it changed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from relational.chunk import Column, DataChunk, Op, StreamChunk
from relational.expr.eval_context import ErrorCounts
from relational.join.join_index import JoinIndex
from relational.join.join_probe import JoinProbe
from relational.join.net_changes import net_changes
from relational.join.rows_by_key import RowsByKey
from relational.order.late_rows import LateRows
from relational.table.row_checks import LONG_KEY, may_be_long, without_long_keys
from relational.table.state_table import StateTable
from relational.types import DataType
from stream.executor.base import Executor, ExecutorInfo, first_barrier, slices
from stream.message import Barrier, Message, Watermark

KEPT_ROWS, KEPT_BYTES = 1 << 18, 64 << 20
"""Changes of an epoch beyond which they are applied before the barrier."""


class OrderedGroupsExecutor(Executor):
    """`table` has the columns of the input first; its key begins with those of the groups. `errors` counts rows dropped
    because their key is too long for the store. `is_append_only`: the input only inserts rows. Watermarks of the
    columns `marked` are passed on after the changes of their epoch; where the column is the first of the key of the
    table, its rows below them are dropped. Others end here."""

    kept_rows: ClassVar[int] = KEPT_ROWS

    def __init__(
        self,
        info: ExecutorInfo,
        input: Executor,
        table: StateTable,
        errors: ErrorCounts,
        *,
        is_append_only: bool,
        chunk_rows: int,
        marked: Sequence[int] = (),
    ) -> None:
        self.info = info
        self._input, self._table, self._errors = input, table, errors
        self._is_append_only, self._chunk_rows = is_append_only, chunk_rows
        self._types = input.info.schema.types
        self._stream_key = tuple(input.info.stream_key or ())
        self._kept: list[StreamChunk] = []
        self._kept_rows = self._kept_bytes = 0
        self._marked = frozenset(marked)
        self._watermarks: dict[int, Watermark] = {}  # of this epoch, by column
        stored = tuple(table.catalog.pk_indices)
        self._long_key = stored if may_be_long(self._types, stored) else None

    def execute(self) -> Iterator[Message]:
        messages = self._input.execute()
        barrier = yield from first_barrier(messages, self.info.identity)
        self._table.init_epoch(barrier.epoch)
        self._begin()
        yield barrier
        for message in messages:
            if isinstance(message, StreamChunk):
                self._keep(message)
                if self._kept_rows >= self.kept_rows or self._kept_bytes >= KEPT_BYTES:
                    yield from self._flush()
                    self._limit_memory()
            elif isinstance(message, Barrier):
                yield from self._flush()
                yield from self._pass_barrier(message)
            elif not isinstance(message, Watermark):
                yield message
            elif message.column in self._marked:
                self._watermarks[message.column] = message

    def _pass_barrier(self, barrier: Barrier) -> Iterator[Message]:
        """Commits the table, without what a watermark has passed, then the watermarks and the barrier."""
        closing = self._watermarks.get(self._table.catalog.pk_indices[0])
        if closing is not None:
            self._table.update_watermark(closing.value)
        self._table.commit(barrier.epoch)
        yield from self._watermarks.values()
        self._watermarks.clear()
        yield barrier
        self._end_epoch()  # behind the barrier, which an eviction would delay

    def _begin(self) -> None:
        """The table can be read."""

    def _limit_memory(self) -> None:
        """Within an epoch, after changes were applied."""

    def _end_epoch(self) -> None:
        """The table was committed."""

    @abstractmethod
    def _changed(self, chunks: Sequence[StreamChunk]) -> Iterator[StreamChunk]:
        """Applies net changes, none of them hidden, to the table; the changes of the result. At least one
        chunk; several only append."""

    def _keep(self, chunk: StreamChunk) -> None:
        if self._long_key is not None:
            chunk, lost = without_long_keys(chunk, self._long_key, self._table.catalog)
            self._errors.add(LONG_KEY, lost)
        self._kept.append(chunk.compact())
        self._kept_rows += chunk.visible_rows
        self._kept_bytes += chunk.nbytes

    def _flush(self) -> Iterator[StreamChunk]:
        if not self._kept_rows:
            return
        kept, self._kept, self._kept_rows, self._kept_bytes = self._kept, [], 0, 0
        if not self._is_append_only:
            kept = [net_changes(StreamChunk.compacted(kept), self._stream_key)]
        changes = [chunk for chunk in kept if chunk.capacity]
        for made in self._changed(changes) if changes else ():
            if made.capacity:
                yield from slices(made, self._chunk_rows)


def positions(chosen: np.ndarray) -> np.ndarray:
    """The positions of true entries: int32[n]."""
    return np.flatnonzero(chosen).astype(np.int32)


def rows_in_memory(index: JoinIndex, ids: np.ndarray, width: int | None = None) -> tuple[DataChunk, np.ndarray]:
    """The first `width` columns, all for None, of the rows of the groups `ids`, and for each row the position of its
    group in `ids`."""
    width = len(index.types) if width is None else width
    found = list(JoinProbe(index, ids))
    if not found:
        return no_rows(index.types[:width]), np.empty(0, np.int32)
    row_ids = np.concatenate([rows for _, rows in found])
    columns = list(map(Column, index.gather(row_ids, range(width))))
    return DataChunk(columns, capacity=len(row_ids)), np.concatenate([at for at, _ in found])


def no_rows(types: Sequence[DataType]) -> DataChunk:
    return DataChunk([Column.nulls(each, 0) for each in types], capacity=0)


def lost_rows(rows: LateRows, deleted: LateRows, name: Sequence[int]) -> np.ndarray:
    """bool[n]: which of `rows`, that differ in the columns `name`, are among those that are deleted."""
    is_lost = np.zeros(rows.count, np.bool_)
    if deleted.count:
        keys = RowsByKey(rows.ascending(None, name), range(len(name)))
        found = keys.find(deleted.ascending(None, name))
        is_lost[found[found >= 0]] = True
    return is_lost


def is_deleted(changes: StreamChunk) -> np.ndarray:
    """bool[capacity]: whether a change takes a row away."""
    return (changes.ops & Op.DELETE).astype(np.bool_)
