"""Temporal join: each row of a stream with the row that a table has under its key, as of the beginning of the epoch.

The right input brings the changes of the table, without its existing rows: these are read by key from the table itself,
at `prev` of the barrier that began the epoch, to which the table's actors have written everything when both inputs have
delivered that barrier [R25]. Rows that were read are kept in memory, and so are keys without a row; a change of a known
key is applied to them at the barrier. The result depends on where the epochs of the left rows begin, on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hummock.epoch import Epoch
from relational.chunk import Column, DataChunk, Op, StreamChunk, mask_of
from relational.expr.eval import Evaluator
from relational.expr.eval_context import ErrorCounts
from relational.expr.expression import Expression
from relational.join.join_index import JoinIndex
from relational.join.join_probe import JoinProbe
from relational.join.net_changes import net_changes
from relational.memory_budget import MemoryShare
from relational.memory_use import MemoryUse
from relational.table.storage_table import StorageTable
from stream.errors import InconsistentStream
from stream.executor.barrier_align import align_barriers
from stream.executor.base import Executor, ExecutorInfo, slices
from stream.message import Barrier, Message, Wait, Watermark

KEPT_ROWS = 1 << 18
"""Changes of the table in one epoch, beyond which the rows in memory are read again."""


class TemporalJoinExecutor(Executor):
    """The first columns of the left input, as many as those of `info` without the right ones, then the columns of
    `table`. `key`: the left columns that are equal to the primary key, in its order; `pk`: its columns in the right
    input, whose stream key is `stream_key`. `condition`: over the columns of the output. `keeps_left`: left rows
    without a partner are emitted, with NULL. `memory`: for rows of the table. Watermarks of the left input pass."""

    def __init__(
        self,
        info: ExecutorInfo,
        inputs: Sequence[Executor],
        table: StorageTable,
        key: Sequence[int],
        pk: Sequence[int],
        stream_key: Sequence[int],
        condition: Expression | None,
        errors: ErrorCounts,
        *,
        keeps_left: bool,
        memory: MemoryShare,
        chunk_rows: int,
    ) -> None:
        self.info = info
        self._inputs, self._table = tuple(inputs), table
        self._key, self._pk, self._stream_key = tuple(key), tuple(pk), tuple(stream_key)
        self._types = table.schema.types
        self._width = len(info.schema) - len(self._types)
        self._condition = None if condition is None else Evaluator(condition)
        self._errors, self._keeps_left = errors, keeps_left
        self._memory, self._chunk_rows = memory, chunk_rows
        self._index = self._new_index()
        self._kept: list[StreamChunk] = []
        self._kept_rows = 0
        self._epoch = Epoch(0)

    def execute(self) -> Iterator[Message]:
        for message in align_barriers(self._inputs, self.info.identity):
            if isinstance(message, Wait):
                yield message
            elif isinstance(message, Barrier):
                yield message
                self._begin(message.epoch.prev)
            elif isinstance(message.message, StreamChunk):
                if message.input == 1:
                    self._keep(message.message)
                else:
                    yield from self._joined(message.message)
                    self._index.limit_memory()
            elif isinstance(message.message, Watermark):
                if message.input == 0 and message.message.column < self._width:
                    yield message.message
            else:
                raise AssertionError(f"{type(message.message).__name__} at a join")

    def memory(self) -> list[tuple[str, MemoryUse]]:
        return [("rows of the table", self._index.memory())]

    def _new_index(self) -> JoinIndex:
        return JoinIndex(self._types, self._pk, self._stream_key, memory=self._memory)

    def _keep(self, changes: StreamChunk) -> None:
        """The changes of an epoch are those of the version that the next one reads."""
        self._kept_rows += changes.visible_rows
        if self._kept_rows <= KEPT_ROWS:
            self._kept.append(changes)
        else:
            self._kept.clear()

    def _begin(self, epoch: Epoch) -> None:
        """The table is read at `epoch` from now on."""
        self._epoch = epoch
        if self._kept_rows > KEPT_ROWS:
            self._index = self._new_index()
        for chunk in self._kept:
            changes = net_changes(chunk, self._stream_key)
            self._index.apply(changes, self._index.locate(self._columns(changes, self._pk), is_adding=False).ids)
        self._kept, self._kept_rows = [], 0
        self._index.end_epoch()

    def _joined(self, chunk: StreamChunk) -> Iterator[StreamChunk]:
        chunk = chunk.compact()
        if chunk.op_bits:
            raise InconsistentStream(self.info.identity, "a row of the left side of a temporal join changes")
        ids = self._located(self._columns(chunk, self._key))
        has_partner = np.zeros(chunk.capacity, np.bool_)
        own = DataChunk(chunk.columns[: self._width], capacity=chunk.capacity)
        for rows, row_ids in JoinProbe(self._index, ids, self._chunk_rows):
            pairs = DataChunk([*own.take(rows).columns, *map(Column, self._index.gather(row_ids))], capacity=len(rows))
            if self._condition is not None:
                holds = mask_of(self._condition(pairs, errors=self._errors))
                pairs, rows = pairs.filter(holds).compact(), rows[holds.view(np.bool_)]
            has_partner[rows] = True
            if pairs.capacity:
                yield from slices(StreamChunk.inserts(pairs), self._chunk_rows)
        if self._keeps_left and not has_partner.all():
            alone = own.filter((~has_partner).astype(np.uint8)).compact()
            absent = [Column.nulls(data_type, alone.capacity) for data_type in self._types]
            ops = np.full(alone.capacity, Op.INSERT, np.uint8)
            yield from slices(StreamChunk([*alone.columns, *absent], ops), self._chunk_rows)

    def _located(self, keys: Sequence[Column]) -> np.ndarray:
        """The ids of the keys, whose rows are in memory then."""
        located = self._index.locate(keys)
        if len(located.new_ids):
            wanted = DataChunk(list(keys)).take(located.new_rows)
            rows, found = self._table.get_rows(wanted, self._epoch)
            self._index.load(rows.filter(found).compact())
        return located.ids

    def _columns(self, chunk: DataChunk, columns: Sequence[int]) -> list[Column]:
        return [chunk.columns[column] for column in columns]
