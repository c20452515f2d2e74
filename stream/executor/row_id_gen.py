"""Generates the key of tables and sources that declare none: see `relational/chunk/row_ids.pyx` for the ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hummock.epoch import SPILL_BITS
from relational.catalog.objects import TableCatalog
from relational.chunk import Column, Op, RowIdGenerator, StreamChunk
from relational.types.vnodes import DEFAULT_VNODE_COUNT
from stream.errors import InconsistentStream
from stream.executor.base import Executor, ExecutorInfo
from stream.message import Barrier, EvaluatedChanges, InsertRows, Message, Proposed, Replayed, Statement, Watermark


def id_vnodes(table: TableCatalog) -> int:
    """How many vnodes occur in the ids of a table that one actor writes. A row is in the vnode of its id modulo the
    table's count: with fewer than the default in the ids, fast inserts would run ahead of the epochs."""
    return min(max(table.vnode_count, DEFAULT_VNODE_COUNT), 1 << table.row_id_layout.vnode_bits)


class RowIdGenExecutor(Executor):
    """Generates column `row_id_index` of inserted rows, in chunks and in INSERT statements; it is inserted into chunks
    of an `input` without it. The connector of a table without a key can only insert: its other changes would not
    identify a row. `table` is the job's; the column moves with its ALTERs. `vnodes` are those of the actor, None:
    all. `after_ms`: ids up to this millisecond were given by an actor before this one."""

    def __init__(
        self,
        info: ExecutorInfo,
        input: Executor,
        table: TableCatalog,
        row_id_index: int,
        vnodes: Sequence[int] | np.ndarray | None = None,
        after_ms: int = 0,
    ) -> None:
        self.info = info
        self._input = input
        self._table = table
        self._row_id_index = row_id_index
        self._is_lacking = len(input.info.schema) < len(info.schema)
        own = range(id_vnodes(table)) if vnodes is None else vnodes
        self._generator = RowIdGenerator(own, table.row_id_layout)
        self._after_ms = after_ms

    @property
    def last_ms(self) -> int:
        """The millisecond of the last id, 0 if there is none. An actor that gives many is ahead of its epoch."""
        return self._generator.last_millisecond

    def execute(self) -> Iterator[Message]:
        for message in self._input.execute():
            if isinstance(message, Barrier):
                self._generator.open_epoch(max(message.epoch.curr >> SPILL_BITS, self._after_ms + 1))
                self._follow(message)
                yield message
            elif isinstance(message, InsertRows):
                yield self._inserting(message)
            elif isinstance(message, Proposed):
                statements = tuple(map(self._inserting, message.part.statements))
                yield replace(message, part=message.part._replace(statements=statements))
            elif isinstance(message, StreamChunk):
                self._check_inserts(message)
                yield self._with_ids(message)
            elif isinstance(message, Watermark):
                is_behind = self._is_lacking and message.column >= self._row_id_index
                yield replace(message, column=message.column + 1) if is_behind else message
            else:
                if isinstance(message, Replayed):
                    self._skip_ids_of(message.evaluation)
                yield message

    def _inserting(self, statement: Statement) -> Statement:
        if not isinstance(statement, InsertRows):
            return statement
        return replace(statement, chunk=self._with_ids(statement.chunk))

    def _follow(self, barrier: Barrier) -> None:
        """The generated key may have another position in the next version of the table."""
        altered = barrier.altered(self._table.id)
        if altered is not None:
            assert altered.row_id_index is not None
            self._table, self._row_id_index = altered, altered.row_id_index

    def _skip_ids_of(self, evaluation: EvaluatedChanges) -> None:
        """Replayed rows keep their ids, which may be ahead of the epoch."""
        if evaluation.changes is not None and evaluation.changes.capacity:
            column_id = self._table.column_ids[self._row_id_index]
            ids = evaluation.changes.columns[evaluation.column_ids.index(column_id)].array
            self._generator.skip_past(pc.max(ids).as_py())

    def _with_ids(self, chunk: StreamChunk) -> StreamChunk:
        columns, ids = list(chunk.columns), Column(pa.array(self._generator.next_ids(chunk.capacity)))
        if self._is_lacking:
            columns.insert(self._row_id_index, ids)
        else:
            columns[self._row_id_index] = ids
        return chunk.with_columns(columns)

    def _check_inserts(self, chunk: StreamChunk) -> None:
        others = chunk.ops != Op.INSERT
        if chunk.visibility is not None:
            others &= chunk.visibility.astype(bool)
        if others.any():
            row = int(np.flatnonzero(others)[0])
            raise InconsistentStream(
                self.info.identity, f"row {row} is no insert, and the table has no key to find its row by"
            )
