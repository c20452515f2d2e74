"""The first stage of a bulk load, in tasks: encodes rows of a frame as keys and values, each with its target partition.

The encoders are those of the table's own writer. After its rows each task sends every partition an account of the rows
sent to it, by which the partition detects lost rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from hummock.errors import ExecutorUnfit
from hummock.spark.worker import begin_task
from relational.catalog.objects import ColumnCatalog
from relational.chunk.arrow_import import imported
from relational.chunk.column import Column
from relational.chunk.data_chunk import DataChunk
from relational.errors import InvalidValue, RelationalError
from relational.spark.load_spec import LoadSpec
from relational.spark.message_writer import MessageWriter
from relational.table.row_checks import check_rows
from relational.table.row_serde import RowSerde

PARTITION = "part"
MESSAGES = f"{PARTITION} int, message binary"
MESSAGE_BYTES = 512 << 10       # to one partition, approximately
WAITING_BYTES = 16 << 20        # in one task; this limit may reduce the message size
RANK_BITS = 36          # low bits of a rank: the row within the task; the others: the index of its partition


def encode_rows(version: str, spec: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of MESSAGES: packed rows, then an account for each partition."""
    encoder = RowEncoder(LoadSpec.from_bytes(spec))
    try:
        begin_task(version)
    except ExecutorUnfit as error:
        yield encoder.refused(str(error))
        return
    try:
        for batch in batches:
            encoder.encode(batch)
            if encoder.is_full:
                yield encoder.messages()
    except (RelationalError, ValueError) as error:
        yield encoder.refused(f"{type(error).__name__}: {error}")
        return
    yield encoder.messages()
    yield encoder.accounts()


class RowEncoder:
    """The row encoder of one task."""

    def __init__(self, spec: LoadSpec):
        self._spec, self._serde = spec, RowSerde(spec.table)
        self._writer = MessageWriter(spec.partitions, spec.needs_ranks)
        self._room_bytes = min(WAITING_BYTES, spec.partitions * MESSAGE_BYTES)
        self._rows = 0
        vnodes = np.arange(spec.table.vnode_count)
        firsts = [spec.first_vnode(partition) for partition in range(spec.partitions)]
        self._partition_of = (np.searchsorted(firsts, vnodes, side="right") - 1).astype(np.int32)

    def encode(self, batch: pa.RecordBatch) -> None:
        """Buffers the rows for `messages`. RelationalError or ValueError for rows that the table cannot store."""
        chunk = self._chunk(batch)
        keys, vnodes = self._serde.keys_of(chunk)
        self._writer.add(keys, self._serde.values_of(chunk), self._partition_of[vnodes], self._ranks(len(keys)))

    @property
    def is_full(self) -> bool:
        return self._writer.nbytes >= self._room_bytes

    def messages(self) -> pa.RecordBatch:
        """All buffered rows."""
        return sent(*self._writer.take())

    def accounts(self) -> pa.RecordBatch:
        """The account of each partition."""
        return sent(range(self._spec.partitions), self._writer.accounts())

    def refused(self, reason: str) -> pa.RecordBatch:
        """The message that aborts the load."""
        return sent([0], [MessageWriter.refusal(reason)])

    def _chunk(self, batch: pa.RecordBatch) -> DataChunk:
        table, rows = self._spec.table, batch.num_rows
        try:
            columns = [self._column(batch, column, index)
                       for column, index in zip(table.columns, self._spec.columns, strict=True)]
            chunk = DataChunk(columns, capacity=rows)
            check_rows(table, chunk)
        except InvalidValue as error:
            row = None if error.row is None else self._rows + error.row
            reason = f"{error.reason} (row of partition {_task_partition()} of the frame)"
            raise InvalidValue(reason, column_name=error.column_name, row=row) from error
        return chunk

    def _column(self, batch: pa.RecordBatch, column: ColumnCatalog, index: int) -> Column:
        if index < 0:
            return constant(column, batch.num_rows)
        return Column(imported(batch.column(index), column.data_type, column.name), column.data_type)

    def _ranks(self, rows: int) -> np.ndarray | None:
        positions = np.arange(self._rows, self._rows + rows, dtype=np.int64)
        self._rows += rows
        if not self._spec.needs_ranks:
            return None
        ranks = (np.int64(_task_partition()) << RANK_BITS) + positions + 1
        return ranks if self._spec.on_duplicate == "last" else np.iinfo(np.int64).max - ranks


def sent(partitions: Sequence[int], messages: Sequence[bytes]) -> pa.RecordBatch:
    """Rows of MESSAGES."""
    return pa.record_batch({PARTITION: pa.array(partitions, pa.int32()), "message": pa.array(messages, pa.binary())})


def constant(column: ColumnCatalog, rows: int) -> Column:
    """The default of a column, for rows that omit it."""
    if column.default is None:
        return Column.nulls(column.data_type, rows)
    one = Column.from_pylist([column.default], column.data_type)
    return DataChunk([one], capacity=1).take(np.zeros(rows, np.int32)).columns[0]


def _task_partition() -> int:
    """The index of this task's partition in the frame."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
