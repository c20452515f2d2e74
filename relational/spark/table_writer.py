"""Writers of the Spark format: frames and streaming queries insert rows into a table of a store that a session serves.

    frame.write.format("hummock").option("url", url).option("table", "orders").mode("append").save()

    (frame.writeStream.format("hummock").option("url", url).option("table", "orders").option("writer", "orders")
          .option("checkpointLocation", ...).start())

Tasks write their rows as objects of the store. What they return is committed by a process of Spark's, which hands the
names of the objects to the serving session through the inbox. Objects of tasks that do not count are left to vacuum.
A batch of a streaming query is identified by the option `writer`, the id of the query, which Spark keeps in its
checkpoint and gives to tasks, and its number: so a batch that Spark repeats is inserted once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType, YearMonthIntervalType

from hummock.base.process import installed_version
from hummock.errors import InvalidOption
from hummock.spark.worker import shared_url
from relational.inbox.client import TIMEOUT_MS, Inbox
from relational.inbox.payload import PayloadObject
from relational.inbox.records import QUERY_ID, WriterBatch
from relational.spark.frame_payload import write_rows


class WriterOptions:
    """Parsed options of a write. InvalidOption naming one that is missing or malformed."""

    def __init__(self, options: Mapping[str, str]):
        self.url = shared_url(options.get("url") or options.get("path") or _missing("url"))
        self.table = options.get("table") or _missing("table")
        self.meta = options.get("meta")
        self.writer = options.get("writer") or ""
        timeout = options.get("timeout_ms", str(TIMEOUT_MS))
        if not timeout.isdecimal():
            raise InvalidOption("timeout_ms", timeout, "a number of milliseconds")
        self.timeout_ms = int(timeout)

    def inbox(self) -> Inbox:
        return Inbox(self.url, meta=self.meta, timeout_ms=self.timeout_ms)


@dataclass(frozen=True)
class WrittenObjects(WriterCommitMessage):
    """The objects that one task wrote, under `prefix`; `query_id`: of the streaming query, "" for another write."""

    objects: tuple[PayloadObject, ...]
    prefix: str
    query_id: str


class TaskSide:
    """What a writer does in tasks. Its state, when it is sent to them, has a prefix that is registered by then, so
    that vacuum keeps the objects that they write; a task never uses the meta store.
    """

    def __init__(self, options: WriterOptions):
        self.options = options
        self._prefix = ""
        self._version = installed_version()

    def __getstate__(self) -> dict[str, Any]:
        if not self._prefix:
            with self.options.inbox() as inbox:
                self._prefix = inbox.register_prefix()
        return self.__dict__

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes the rows of one partition. Raises `ExecutorUnfit`."""
        context = TaskContext.get()
        query_id = None if context is None else context.getLocalProperty(QUERY_ID)
        objects = write_rows(self._version, self.options.url, (self._prefix,), iterator)
        return WrittenObjects(objects, self._prefix, query_id or "")


class FrameWriter(TaskSide, DataSourceArrowWriter):
    """Inserts the rows of a frame, all or none, once."""

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Returns when the rows are committed. RequestRefused; RequestUnanswered: then they may be, later."""
        with self.options.inbox() as inbox:
            request_id = inbox.submit(self.options.table, _objects(messages), (self._prefix,))
            inbox.wait(request_id, self.options.table)


class QueryWriter(TaskSide, DataSourceStreamArrowWriter):
    """Inserts the rows of each batch of a streaming query, all or none, once."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Returns when the rows are committed, or were before. BatchGap, CheckpointChanged, RequestRefused;
        RequestUnanswered: the batch is repeated when the query is started again.
        """
        written = [message for message in messages if isinstance(message, WrittenObjects)]
        query_ids = {message.query_id for message in written}
        if len(query_ids) != 1 or "" in query_ids:
            raise InvalidOption("checkpointLocation", sorted(query_ids), "that of one streaming query, which its tasks "
                                                                         "know")
        batch = WriterBatch(self.options.writer, query_ids.pop(), batchId)
        prefixes = sorted({message.prefix for message in written})
        with self.options.inbox() as inbox:
            request_id = inbox.submit(self.options.table, _objects(messages), prefixes, batch)
            inbox.wait(request_id, self.options.table, batch)


class WritableSource(DataSource):
    """The writing half of the format. The schema of a frame is matched with the table by name when it is committed."""

    def writer(self, schema: StructType, overwrite: bool) -> FrameWriter:
        _check_appends(overwrite)
        _check_types(schema)
        return FrameWriter(WriterOptions(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> QueryWriter:
        _check_appends(overwrite)
        _check_types(schema)
        options = WriterOptions(self.options)
        if not options.writer:
            raise InvalidOption("writer", "", "a name of the writer, its own in this table: with it a batch that Spark "
                                              "repeats is recognised")
        WriterBatch(options.writer, "any", 0).check()
        return QueryWriter(options)


def _check_appends(overwrite: bool) -> None:
    if overwrite:
        cure = ("append, which inserts; Session.bulk_load overwrites a table. For output mode complete, which writes "
                "all rows again at each batch, use update with foreachBatch and Session.ingest into a table with ON "
                "CONFLICT OVERWRITE: Spark has no update mode for formats in Python")
        raise InvalidOption("mode", "overwrite", cure)


def _check_types(schema: StructType) -> None:
    """ValueError for a column that Spark gives no task as Arrow."""
    for field in schema.fields:
        if isinstance(field.dataType, YearMonthIntervalType):
            raise ValueError(f"column {field.name!r} is {field.dataType.simpleString()}, which Spark does not pass on: "
                             "cast it to a number of months, or to interval day to second")


def _objects(messages: Sequence[WriterCommitMessage | None]) -> tuple[PayloadObject, ...]:
    """In the order of the partitions."""
    return tuple(each for message in messages if isinstance(message, WrittenObjects) for each in message.objects)


def _missing(name: str) -> str:
    raise InvalidOption(name, "", "given: option(\"" + name + "\", ...)")
