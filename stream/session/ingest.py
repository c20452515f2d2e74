"""Batches of streaming writers: the rows of a batch become readable in the commit that also records the batch [R40].

A batch is one INSERT, however many rows it has, so all of it belongs to one epoch and the table's constraints refuse it
as a whole. The INSERT brings the row of the writer's position, which the commit of its epoch stores in the same
transaction: after any failure either both are there or neither. One batch of a writer is under way at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hummock.errors import InvalidOption, OutcomeUnknown, PreconditionFailed
from hummock.meta.records import WRITER, encode
from hummock.meta.store.base import MetaOperations
from relational.catalog.names import ObjectName
from relational.catalog.objects import TableCatalog
from relational.chunk import DataChunk
from relational.inbox.payload import read_payload, remove_payload
from relational.inbox.records import QUERY_ID, WriterBatch, WriterPosition, is_new_batch, writer_key
from relational.plan.changes import writable
from stream.errors import LostStatement, StatementsLost
from stream.options import NAME_PREFIXES
from stream.session.rows import chunk_of_rows

if TYPE_CHECKING:
    from stream.playground import Playground
    from stream.session.queries import SessionQueries

ATTEMPTS = 16
"""At one transaction of unknown outcome."""

Operations = Callable[[int], MetaOperations]


@dataclass(frozen=True, slots=True)
class IngestReport:
    """Batch `batch_id` of streaming writer `writer` is in `table`: its `rows`, before the table's conflict rule, are
    readable from `epoch` on. `was_repeated`: they were there before this call, which wrote nothing; `rows` is 0 then if
    the batch is not the writer's newest."""

    table: str
    writer: str
    batch_id: int
    rows: int
    epoch: int
    was_repeated: bool = False


class BatchIngestion:
    """Writes batches of streaming writers, and the rows of requests. Thread safe."""

    def __init__(self, playground: Playground, queries: SessionQueries) -> None:
        self._playground = playground
        self._queries = queries
        self._meta_store = playground.meta_store
        self._held: set[str] = set()  # keys of the positions of writers with a batch under way
        self._changed = threading.Condition()

    def ingest(self, rows: Any, table: str, writer: str, batch_id: int, checkpoint: str | None) -> IngestReport:
        """See `Session.ingest`."""
        batch = WriterBatch(writer, _checkpoint_of(rows) if checkpoint is None else checkpoint, batch_id)
        batch.check()
        found = self.table_of(table)
        with self.held(found, batch):
            position = self.position(found, batch)
            if not is_new_batch(position, batch, table):
                assert position is not None
                is_last = position.batch_id == batch_id
                return IngestReport(table, writer, batch_id, position.rows if is_last else 0, position.epoch, True)
            with self._chunk_of(found, rows) as chunk:
                self._write(found, chunk, batch)
            position = self.position(found, batch)
        if position is None or (position.checkpoint, position.batch_id) != (batch.checkpoint, batch_id):
            raise StatementsLost((LostStatement(0, table),))  # in a recovery, after it had been evaluated
        return IngestReport(table, writer, batch_id, position.rows, position.epoch)

    def _write(self, table: TableCatalog, chunk: DataChunk, batch: WriterBatch) -> None:
        """Returns when the rows are committed, or lost."""
        rows = chunk.visible_rows
        if not rows:
            self.transact(position_of(table, batch, 0)(self._playground.manager.refresh().max_committed_epoch))
            return
        self._queries.ingest_rows(table, chunk, position_of(table, batch, rows))
        self._playground.meta.flush().result()

    # -- also of requests ------------------------------------------------------------------------------

    def table_of(self, name: str) -> TableCatalog:
        """The table of a name. NotFound; BindError for what statements may not write."""
        return writable(self._playground.catalog.resolve(ObjectName.parse(name)))

    def position(self, table: TableCatalog, batch: WriterBatch) -> WriterPosition | None:
        """The newest committed batch of the writer."""
        key = writer_key(table.id, batch.writer)
        row = self._meta_store.get(key)
        return None if row is None else WriterPosition.from_bytes(key, row)

    @contextmanager
    def held(self, table: TableCatalog, batch: WriterBatch) -> Iterator[None]:
        """Within the block no other batch of the writer is under way."""
        with self._changed:
            self._changed.wait_for(lambda: self.try_hold(table, batch))
        try:
            yield
        finally:
            self.release(table, batch)

    def try_hold(self, table: TableCatalog, batch: WriterBatch) -> bool:
        """Whether no batch of the writer was under way: from now on one is, until `release`."""
        key = writer_key(table.id, batch.writer)
        with self._changed:
            if key in self._held:
                return False
            self._held.add(key)
            return True

    def release(self, table: TableCatalog, batch: WriterBatch) -> None:
        with self._changed:
            self._held.discard(writer_key(table.id, batch.writer))
            self._changed.notify_all()

    def transact(self, operations: MetaOperations) -> None:
        """A transaction of this session while it has the writer role; repeated where its outcome is unknown, so it only
        puts and deletes rows that nobody else changes. Fenced."""
        session = self._playground.storage.session
        assert session is not None
        guarded = MetaOperations(require={WRITER: encode(session)}) + operations
        for attempt in range(ATTEMPTS):
            try:
                self._meta_store.transaction(guarded)
                return
            except PreconditionFailed:
                self._playground.check_serves()
                raise
            except OutcomeUnknown:
                if attempt + 1 == ATTEMPTS:
                    raise

    # -- rows ------------------------------------------------------------------------------------------

    @contextmanager
    def _chunk_of(self, table: TableCatalog, rows: Any) -> Iterator[DataChunk]:
        """The rows in the table's columns. Those of a Spark frame are written as objects by Spark's executors, and
        deleted when the block ends. InvalidStatement; SparkJobFailed."""
        if not _is_spark_frame(rows):
            yield chunk_of_rows(table, rows)
            return
        from relational.spark.frame_payload import write_frame_payload

        objects = self._playground.object_store
        with self._playground.storage.upload_prefixes(NAME_PREFIXES) as prefixes:
            payload = write_frame_payload(rows, self._playground.url, prefixes, f"hummock: ingest into {table.name}")
            try:
                self._queries.check_bytes(table, sum(each.row_bytes for each in payload))
                read = read_payload(payload, objects)
                yield chunk_of_rows(table, [] if read is None else read)
            finally:
                remove_payload(payload, objects)


def position_of(table: TableCatalog, batch: WriterBatch, rows: int) -> Operations:
    """The operations that record a batch, by the epoch of the commit that holds its rows."""

    def operations(epoch: int) -> MetaOperations:
        position = WriterPosition(batch.checkpoint, batch.batch_id, epoch, rows)
        return MetaOperations(put={writer_key(table.id, batch.writer): position.to_bytes()})

    return operations


def _is_spark_frame(rows: Any) -> bool:
    return hasattr(rows, "mapInArrow") and hasattr(rows, "sparkSession")


def _checkpoint_of(rows: Any) -> str:
    """The id of the checkpoint of the streaming query whose `foreachBatch` has this frame. InvalidOption."""
    found = None
    if _is_spark_frame(rows) and hasattr(rows.sparkSession, "sparkContext"):
        found = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    if not found:
        raise InvalidOption("checkpoint", None, "given, except for the frame of a foreachBatch: the id of whatever the "
                                                "numbers of the batches are counted by, another one for each new count")
    return str(found)
