"""Row ids: the generated key of a table that declares none.

    id, BIGINT   0 | milliseconds 41 | vnode 10 | sequence 12

The milliseconds (since 2021-04-01) are those of the epoch in which the row is inserted, so they are above every epoch
that was committed before, whatever the machine's clock says, and no id is reused after a recovery. They are one ahead
of the epoch for each 4,096 rows times the vnodes of the generator, which is two orders of magnitude more than a barrier
interval can insert. The vnode is one of the actor's own, so the ids of parallel actors never collide [R5].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hummock.epoch import SPILL_BITS, Epoch
from relational.catalog.objects import TableCatalog
from relational.chunk import Column, Op, StreamChunk
from relational.types.vnodes import DEFAULT_VNODE_COUNT
from stream.errors import InconsistentStream
from stream.executor.base import Executor, ExecutorInfo
from stream.message import Barrier, EvaluatedChanges, InsertRows, Message, Replayed

SEQUENCE_BITS = 12
VNODE_BITS = 10


class RowIdGenerator:
    """Generates strictly ascending ids. REQUIRES `open_epoch` before the first one."""

    def __init__(self, vnodes: Sequence[int] | np.ndarray) -> None:
        if not len(vnodes) or min(vnodes) < 0 or max(vnodes) >= 1 << VNODE_BITS:
            raise ValueError(f"vnodes must lie within 0 and {(1 << VNODE_BITS) - 1}, at least one")
        self._vnodes = np.sort(np.asarray(vnodes, dtype=np.int64))
        self._millisecond = 0
        self._position = 0  # ids generated within `_millisecond`

    def open_epoch(self, epoch: Epoch) -> None:
        """Later ids are at or above the milliseconds of `epoch`."""
        millisecond = epoch >> SPILL_BITS
        if millisecond > self._millisecond:
            self._millisecond, self._position = millisecond, 0

    def skip_past(self, row_id: int) -> None:
        """Later ids are above `row_id`, which was generated before a recovery."""
        millisecond = row_id >> (VNODE_BITS + SEQUENCE_BITS)
        per_millisecond = len(self._vnodes) << SEQUENCE_BITS
        if millisecond >= self._millisecond + self._position // per_millisecond:
            self._millisecond, self._position = millisecond + 1, 0

    def next_ids(self, count: int) -> np.ndarray:
        """The next `count` ids, int64, ascending."""
        per_millisecond = len(self._vnodes) << SEQUENCE_BITS
        positions = np.arange(self._position, self._position + count, dtype=np.int64)
        milliseconds = self._millisecond + positions // per_millisecond
        within = positions % per_millisecond
        vnodes = self._vnodes[within >> SEQUENCE_BITS]
        sequence = within & ((1 << SEQUENCE_BITS) - 1)
        self._position += count
        return (milliseconds << (VNODE_BITS + SEQUENCE_BITS)) | (vnodes << SEQUENCE_BITS) | sequence


def id_vnodes(vnode_count: int) -> int:
    """How many vnodes occur in the ids of a table that one actor writes. They only make ids distinct: a row is in the
    vnode that its id hashes to. With fewer than the default, fast inserts would run ahead of the epochs."""
    return min(max(vnode_count, DEFAULT_VNODE_COUNT), 1 << VNODE_BITS)


class RowIdGenExecutor(Executor):
    """Generates column `row_id_index` of inserted rows, in chunks and in INSERT statements; it is inserted into chunks
    of an `input` without it. The connector of a table without a key can only insert: its other changes would not
    identify a row. `table` is the job's; the column moves with its ALTERs. `vnodes` are those of the actor; None:
    all."""

    def __init__(
        self,
        info: ExecutorInfo,
        input: Executor,
        table: TableCatalog,
        row_id_index: int,
        vnodes: Sequence[int] | np.ndarray | None = None,
    ) -> None:
        self.info = info
        self._input = input
        self._table = table
        self._row_id_index = row_id_index
        self._is_lacking = len(input.info.schema) < len(info.schema)
        self._generator = RowIdGenerator(range(id_vnodes(table.vnode_count)) if vnodes is None else vnodes)

    def execute(self) -> Iterator[Message]:
        for message in self._input.execute():
            if isinstance(message, Barrier):
                self._generator.open_epoch(message.epoch.curr)
                self._follow(message)
                yield message
            elif isinstance(message, InsertRows):
                yield replace(message, chunk=self._with_ids(message.chunk))
            elif isinstance(message, StreamChunk):
                self._check_inserts(message)
                yield self._with_ids(message)
            else:
                if isinstance(message, Replayed):
                    self._skip_ids_of(message.evaluation)
                yield message

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
