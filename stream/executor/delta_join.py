"""Delta join: the pairs of rows of two stored tables with equal keys, kept up to date without rows of its own.

Tables are read at `prev` of the barrier that began the epoch, to which their actors have written everything [R25].
Changes of the left input meet the rows that the right table has then. Changes of the right input wait for the barrier
that ends the epoch, and meet those of the left table with all left changes of the epoch, which are kept until then:
dA ⋈ B_old + (A_old + dA) ⋈ dB. So no read is of the running epoch, which a task could not see. The left input reads the
existing rows like that of any other job, while the right one brings changes alone. Until it has read all of them, only
those rows of the left table count that it has read, as its stored positions say [R17].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hummock.epoch import Epoch, EpochPair
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
from relational.types import DataType
from stream.executor.barrier_align import align_barriers
from stream.executor.base import Executor, ExecutorInfo, slices
from stream.message import Barrier, Message, Wait, Watermark

LOOKED_UP_AT_ONCE = 4_096
"""Changes whose keys are looked up together."""
KEPT_BYTES = 64 << 20
"""Of changes in an epoch, beyond which a barrier is requested."""


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The rows of an input as `table` has them: the first columns are those of the input, of `types`, behind them are
    the columns of the primary key that it lacks. `keys`: the columns of the join key; `prefix`: the numbers of those
    that are the first columns of the primary key, in their order. `progress`: the table of the positions of the input;
    None: it has read all rows."""

    table: StorageTable
    keys: tuple[int, ...]
    prefix: tuple[int, ...]
    types: tuple[DataType, ...]
    progress: StateTable | None

    def under(self, keys: DataChunk, epoch: Epoch, positions: ScanPositions | None) -> Iterator[DataChunk]:
        """The rows with these keys at `epoch`, in the columns of the input; those at or below `positions`."""
        serde = self.table.serde
        for rows in self.table.rows_under(keys, epoch):
            if positions is not None:
                pk = [rows.columns[serde.columns.index(column)] for column in self.table.catalog.pk_indices]
                passed = positions.passed(RowKeys(*serde.keys_of_pks(pk, rows.capacity)))
                rows = rows.filter(passed).compact()
            yield rows.project(range(len(self.types)))


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
        self._kept: tuple[list[StreamChunk], list[StreamChunk]] = ([], [])
        self._kept_bytes = 0
        self._is_read = stored[0].progress is None

    def execute(self) -> Iterator[Message]:
        began: EpochPair | None = None
        epoch = Epoch(0)
        for message in align_barriers(self._inputs, self.info.identity):
            if isinstance(message, Wait):
                yield message
            elif isinstance(message, Barrier):
                if began is not None:
                    yield from self._changes_of_right(began, epoch)
                yield message
                began, epoch, self._since = message.epoch, self._since or message.epoch.prev, None
            elif isinstance(message.message, StreamChunk):
                self._keep(message.input, message.message)
                if message.input == 0:
                    yield from self._changes_of_left(message.message.compact(), epoch)
            elif not isinstance(message.message, Watermark):
                raise AssertionError(f"{type(message.message).__name__} at a join")

    def _keep(self, number: int, changes: StreamChunk) -> None:
        self._kept[number].append(changes)
        before, self._kept_bytes = self._kept_bytes, self._kept_bytes + changes.nbytes
        if before <= KEPT_BYTES < self._kept_bytes:
            self._request_barrier()

    def _changes_of_left(self, chunk: StreamChunk, epoch: Epoch) -> Iterator[StreamChunk]:
        """Those that follow from changes of the left input."""
        for changes in _parts(chunk):
            keys = self._keys_of(0, changes)
            index, ids = self._rows_at(1, keys, epoch, None)
            yield from self._joined(0, changes, index, ids)

    def _changes_of_right(self, began: EpochPair, epoch: Epoch) -> Iterator[StreamChunk]:
        """Those that follow from the changes of the right input in the epoch that the barrier with `began` began."""
        left, right = self._kept
        self._kept, self._kept_bytes = ([], []), 0
        if not right:
            return
        own = self._net(0, left) if left else None
        positions = self._positions(began)
        for changes in _parts(self._net(1, right)):
            index, ids = self._rows_at(0, self._keys_of(1, changes), epoch, positions)
            if own is not None:
                index.apply(own, index.locate(self._keys_of(0, own, 0), is_adding=False).ids)
            yield from self._joined(1, changes, index, ids)

    def _net(self, number: int, chunks: Sequence[StreamChunk]) -> StreamChunk:
        """The net changes of input `number` for each row and join key: an index is distributed by the columns of its
        own key, so of a row that moves in it the insertion may come before the deletion [R8]."""
        key = (*(self._inputs[number].info.stream_key or ()), *self._stored[number].keys)
        return net_changes(StreamChunk.compacted(chunks), tuple(dict.fromkeys(key)))

    def _positions(self, began: EpochPair) -> ScanPositions | None:
        """How far the left input had read its table at a barrier; None: to the end."""
        left = self._stored[0]
        if self._is_read or left.progress is None:
            return None
        positions = ScanPositions(left.table.catalog, left.progress)
        positions.init_epoch(began)
        self._is_read = positions.is_done
        return None if self._is_read else positions

    def _keys_of(self, number: int, rows: DataChunk, looked_up: int | None = None) -> list[Column]:
        """The key columns of rows of input `number` by which those of `looked_up`, the other one, are found."""
        prefix = self._stored[1 - number if looked_up is None else looked_up].prefix
        return [rows.columns[self._stored[number].keys[at]] for at in prefix]

    def _rows_at(
        self, number: int, keys: list[Column], epoch: Epoch, positions: ScanPositions | None
    ) -> tuple[JoinIndex, np.ndarray]:
        """The rows of input `number` with these keys, and the id of each key."""
        stored = self._stored[number]
        index = JoinIndex(
            stored.types, [stored.keys[at] for at in stored.prefix], self._inputs[number].info.stream_key or ())
        located = index.locate(keys)
        if len(located.new_ids):
            for rows in stored.under(DataChunk(keys).take(located.new_rows), epoch, positions):
                index.load(rows)
        return index, located.ids

    def _joined(self, number: int, changes: StreamChunk, index: JoinIndex, ids: np.ndarray) -> Iterator[StreamChunk]:
        """Changes of input `number` with the rows of the other one in `index`."""
        for at, row_ids in JoinProbe(index, ids, self._chunk_rows):
            mine, theirs = changes.take(at), list(map(Column, index.gather(row_ids)))
            columns = [*mine.columns, *theirs] if number == 0 else [*theirs, *mine.columns]
            pairs = StreamChunk(columns, (mine.ops & Op.DELETE).astype(np.uint8))
            if self._condition is not None:
                pairs = pairs.filter(mask_of(self._condition(pairs, errors=self._errors))).compact()
            if pairs.capacity:
                yield from slices(pairs, self._chunk_rows)


def _parts(chunk: StreamChunk) -> Iterator[StreamChunk]:
    """The changes whose keys are looked up together."""
    for first in range(0, chunk.capacity, LOOKED_UP_AT_ONCE):
        yield chunk.slice(first, min(LOOKED_UP_AT_ONCE, chunk.capacity - first))
