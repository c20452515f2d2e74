"""Delta join: the pairs of rows of two stored tables with equal keys, kept up to date without rows of its own.

Changes of the left input meet the rows of the right table as of the beginning of the epoch, `prev` of the barrier that
began it. Changes of the right input wait for the barrier that ends the epoch, by which the actors of both tables have
written it, and meet the rows that the left table has then [R25]: dA ⋈ B_old + A_new ⋈ dB. The rows of the beginning are
those of the left input, which reads them like any other job, while the right one brings changes alone; until it has
read all of them, of the left table only those rows count that it has read, as its stored positions say [R17].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hummock.epoch import Epoch
from relational.chunk import Column, DataChunk, Op, StreamChunk, mask_of
from relational.expr.eval import Evaluator
from relational.expr.eval_context import ErrorCounts
from relational.expr.expression import Expression
from relational.join.join_index import JoinIndex
from relational.join.join_probe import JoinProbe
from relational.join.net_changes import net_changes
from relational.table.scan_positions import RowKeys, ScanPositions
from relational.table.state_table import StateTable
from relational.table.storage_table import StorageTable
from stream.executor.barrier_align import align_barriers
from stream.executor.base import Executor, ExecutorInfo, slices
from stream.message import Barrier, Message, Wait, Watermark

LOOKED_UP_AT_ONCE = 4_096
"""Changes whose keys are looked up together."""
KEPT_BYTES = 64 << 20
"""Of right changes, beyond which a barrier is requested."""


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The rows of an input as `table` has them: the first `width` columns are those of the input, behind them are the
    columns of the primary key that it lacks. `keys`: the columns of the join key; `prefix`: the numbers of those that
    are the first columns of the primary key, in their order. `progress`: the table of the positions of the input; None:
    it has read all rows."""

    table: StorageTable
    keys: tuple[int, ...]
    prefix: tuple[int, ...]
    width: int
    progress: StateTable | None


class DeltaJoinExecutor(Executor):
    """`stored`: the rows of both inputs. `condition`, over the columns of both, must be true for a pair; `errors`
    counts those for which it fails. `since`: the inputs begin with the changes since then. Watermarks end here."""

    def __init__(
        self,
        info: ExecutorInfo,
        inputs: Sequence[Executor],
        stored: Sequence[StoredRows],
        condition: Expression | None,
        errors: ErrorCounts,
        *,
        chunk_rows: int,
        since: Epoch | None,
        request_barrier: Callable[[], None],
    ) -> None:
        self.info = info
        self._inputs, self._stored = tuple(inputs), tuple(stored)
        self._condition = None if condition is None else Evaluator(condition)
        self._errors, self._chunk_rows, self._since = errors, chunk_rows, since
        self._request_barrier = request_barrier
        self._kept: list[StreamChunk] = []
        self._kept_bytes = 0
        self._is_read = stored[0].progress is None

    def execute(self) -> Iterator[Message]:
        epoch = Epoch(0)
        for message in align_barriers(self._inputs, self.info.identity):
            if isinstance(message, Wait):
                yield message
            elif isinstance(message, Barrier):
                yield from self._changes_of_right(message)
                yield message
                epoch, self._since = self._since or message.epoch.prev, None
            elif isinstance(message.message, StreamChunk):
                if message.input == 0:
                    yield from self._joined(0, message.message, epoch, None)
                else:
                    self._keep(message.message)
            elif not isinstance(message.message, Watermark):
                raise AssertionError(f"{type(message.message).__name__} at a join")

    def _keep(self, changes: StreamChunk) -> None:
        self._kept.append(changes)
        before, self._kept_bytes = self._kept_bytes, self._kept_bytes + changes.nbytes
        if before <= KEPT_BYTES < self._kept_bytes:
            self._request_barrier()

    def _changes_of_right(self, barrier: Barrier) -> Iterator[StreamChunk]:
        """Those that follow from the changes of the right input in the epoch that `barrier` ends."""
        if not self._kept:
            return
        changes = net_changes(StreamChunk.compacted(self._kept), self._inputs[1].info.stream_key or ())
        self._kept, self._kept_bytes = [], 0
        yield from self._joined(1, changes, barrier.epoch.prev, self._positions(barrier))

    def _positions(self, barrier: Barrier) -> ScanPositions | None:
        """How far the left input had read its table at `barrier`; None: to the end."""
        left = self._stored[0]
        if self._is_read or left.progress is None:
            return None
        positions = ScanPositions(left.table.catalog, left.progress)
        positions.init_epoch(barrier.epoch)
        self._is_read = positions.is_done
        return None if self._is_read else positions

    def _joined(
        self, number: int, chunk: StreamChunk, epoch: Epoch, positions: ScanPositions | None
    ) -> Iterator[StreamChunk]:
        """The changes of input `number` with the rows of the other table at `epoch`; of those up to `positions`."""
        own, other = self._stored[number], self._stored[1 - number]
        chunk = chunk.compact()
        for first in range(0, chunk.capacity, LOOKED_UP_AT_ONCE):
            changes = chunk.slice(first, min(LOOKED_UP_AT_ONCE, chunk.capacity - first))
            index = JoinIndex(other.table.schema.types, [other.keys[at] for at in other.prefix], ())
            keys = [changes.columns[own.keys[at]] for at in other.prefix]
            located = index.locate(keys)
            if len(located.new_ids):
                for rows in other.table.rows_under(DataChunk(keys).take(located.new_rows), epoch):
                    index.load(rows if positions is None else _up_to(positions, rows, other.table))
            for at, row_ids in JoinProbe(index, located.ids, self._chunk_rows):
                mine = changes.take(at)
                theirs = list(map(Column, index.gather(row_ids, range(other.width))))
                columns = [*mine.columns, *theirs] if number == 0 else [*theirs, *mine.columns]
                yield from self._pairs(StreamChunk(columns, (mine.ops & Op.DELETE).astype(np.uint8)))

    def _pairs(self, pairs: StreamChunk) -> Iterator[StreamChunk]:
        if self._condition is not None:
            pairs = pairs.filter(mask_of(self._condition(pairs, errors=self._errors))).compact()
        if pairs.capacity:
            yield from slices(pairs, self._chunk_rows)


def _up_to(positions: ScanPositions, rows: DataChunk, table: StorageTable) -> DataChunk:
    """Those of `rows` that are at or below the position of their vnode."""
    columns = [rows.columns[table.serde.columns.index(column)] for column in table.catalog.pk_indices]
    keys, vnodes = table.serde.keys_of_pks(columns, rows.capacity)
    return rows.filter(positions.passed(RowKeys(keys, vnodes))).compact()
