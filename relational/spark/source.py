"""`spark.read.format("hummock")` and `spark.readStream.format("hummock")`, once `register(spark)` has been called.

Options: `url` (or the path passed to `load`), `table`, `meta`, `columns` (names, separated by commas; default: all).
For reads: `epoch` (default: the newest committed), `where` (a condition in SQL: other rows are not returned, and are
not read if the key excludes them), `since` (changes, with `_op` first, as returned by `changes` in scan.py).

Spark plans the read of a frame once, at its first query: all queries of the frame read that epoch. Its files are kept
while queries of the frame run, and half a minute more, at least a minute from planning and at least `held_ms`
(read_service.py); a query later than that may fail: load the frame again, give `held_ms`, or read a `PinnedTable` by
`scan`. With Spark Connect nothing is known of queries: files are kept for `held_ms` (default: an hour) from planning.

pyspark's data source API (4.3) has no column pruning: Spark passes neither the columns that a query needs nor a hook
for them. `columns`, or the names in `spark.read.schema(...)`, determine what is read and passed.

Filters of a frame are evaluated by Spark and are not pushed down: Spark caches the filters pushed to a Python source
for one query of a frame, and reuses that source for the next query of the frame, so that `df.where("id < 10").count()`
before `df.count()` would give the second the rows of the first. `where`, like `columns`, belongs to the frame and
applies to all of its queries.

For streams: `start`, required (`snapshot`: all rows first; `latest`; an epoch), and `max_bytes`, the approximate amount
of new data per batch. Rows have `_op` first too. An offset is an epoch; that of the last committed batch remains
readable while the query runs, and afterwards only as long as the store retains history anyway.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes
from pyspark.sql.types import StructType

from hummock.base.key import KeyRange
from hummock.base.process import installed_version
from hummock.epoch import NEVER, Epoch, pure_epoch, to_unix_ms
from hummock.errors import InvalidOption
from hummock.spark.worker import begin_task
from hummock.version import HummockVersion
from relational.chunk.arrow_export import OP_COLUMN
from relational.spark.pinned_table import PinnedTable
from relational.spark.read_options import ReadOptions, number_in
from relational.spark.read_plan import planned_specs, schema_of, stream_specs
from relational.spark.read_service import SOURCE, ServiceAddress, service_of
from relational.spark.read_spec import ReadSpec, read_batches, read_schema
from relational.spark.table_writer import WritableSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HELD_MS = 3_600_000
PLANNED_SLOTS = 8               # a process of Spark's cannot determine the number of slots
IDLE_MS = 60_000                # an idle table's offset advances this often, so that it does not expire
START_SNAPSHOT, START_LATEST = "snapshot", "latest"


def register(spark: SparkSession) -> None:
    """Registers the format for this application's sessions. Changes no setting of theirs."""
    service = service_of(spark)
    if service is None:
        spark.dataSource.register(HummockSource)
        return
    served = type(HummockSource.__name__, (HummockSource,), {"service": service.address})
    spark.dataSource.register(served)       # pickled by value, with the address


class HummockSource(WritableSource):
    """A Spark data source over a table of a store. `service` plans its reads; None: the process that Spark asks."""

    service: ServiceAddress | None = None

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> StructType:
        options = ReadOptions(self.options)
        if self.service is not None:
            with suppress(OSError, EOFError):         # the service has ended
                return StructType.fromJson(json.loads(self.service.schema(options)))
        with options.table() as table:
            return schema_of(table, options)

    def reader(self, schema: StructType) -> TableReader:
        return TableReader(ReadOptions(self.options), schema, self.service)

    def streamReader(self, schema: StructType) -> TableStream:
        options = ReadOptions(self.options)
        if options.start is None:
            raise InvalidOption("start", "", "snapshot, latest or an epoch, for a stream: by it the schema has `_op`")
        return TableStream(options, schema)


class TablePart(InputPartition):
    """The input of one task: a ReadSpec as bytes."""

    def __init__(self, spec: bytes):
        super().__init__(spec)
        self.spec = spec


class Batches:
    """Reads the input of a task as record batches in `schema`, whose columns the specs have. A task can unpickle it."""

    def __init__(self, schema: StructType, has_ops: bool):
        if has_ops and schema.names[:1] != [OP_COLUMN]:
            raise InvalidOption("schema", ", ".join(schema.names), f"{OP_COLUMN} first, where changes are read")
        self.columns = schema.names[has_ops:]
        self._schema, self._version = to_arrow_schema(schema, timezone="UTC"), installed_version()

    def of(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, TablePart):        # what Spark passes where there are none
            return
        begin_task(self._version)
        spec = ReadSpec.from_bytes(partition.spec)
        found = read_schema(spec.table, spec.columns, spec.since is not None)
        for field, wanted in zip(found, self._schema, strict=True):
            if field.type != wanted.type or (field.nullable and not wanted.nullable):
                raise InvalidOption("schema", f"{wanted.name} {wanted.type}", f"{field.type}, as the table has it")
        for batch in read_batches(spec):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)


class TableReader(DataSourceReader):
    """Reads a snapshot, or the changes since an epoch. Its state between calls can be pickled."""

    def __init__(self, options: ReadOptions, schema: StructType, service: ServiceAddress | None):
        self._options, self._service = options, service
        self._batches = Batches(schema, options.has_ops)

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": None, "_service": None, "_batches": self._batches}      # tasks read, and plan nothing

    def partitions(self) -> Sequence[TablePart]:
        options, columns = self._options, self._batches.columns
        if self._service is not None:
            with suppress(OSError, EOFError):         # the service has ended
                return [TablePart(spec) for spec in self._service.specs(options, columns)]
        with options.table(held_ms=options.held_ms or HELD_MS) as table:
            return [TablePart(spec) for spec in planned_specs(table, options, columns, PLANNED_SLOTS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._batches.of(partition)


class TableStream(DataSourceStreamReader):
    """Streams the changes of a table in batches. Lives in one Spark process as long as the query."""

    def __init__(self, options: ReadOptions, schema: StructType):
        self._options, self._batches = options, Batches(schema, options.has_ops)
        self._table: PinnedTable | None = None      # at the epoch where the next batch begins
        self._planned: dict[int, PinnedTable] = {}  # by the epoch where a batch ends; not committed yet

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_table": None, "_planned": {}}    # tasks read, and pin nothing

    def initialOffset(self) -> dict[str, int]:
        start = self._options.start
        if start == START_SNAPSHOT:
            return {"epoch": NEVER}
        if start == START_LATEST:
            return {"epoch": self._at(None).epoch}
        return {"epoch": pure_epoch(number_in({"start": start or ""}, "start") or NEVER)}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._options.max_bytes is None else ReadMaxBytes(self._options.max_bytes)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        begins = Epoch(start["epoch"])
        table = self._at(begins)
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        return {"epoch": next_epoch(table.newest, table.key_range, begins, most)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[TablePart]:
        if start == end:
            return []
        self._at(Epoch(start["epoch"]))
        table = self._options.table(end["epoch"])
        table.keep_history()
        self._planned[end["epoch"]] = table
        specs = stream_specs(table, self._batches.columns, PLANNED_SLOTS, Epoch(start["epoch"]), Epoch(end["epoch"]))
        return [TablePart(spec) for spec in specs]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._batches.of(partition)

    def commit(self, end: dict[str, int]) -> None:
        for epoch in sorted(self._planned):
            if epoch <= end["epoch"]:
                self._move_to(self._planned.pop(epoch))

    def stop(self) -> None:
        for table in (self._table, *self._planned.values()):
            if table is not None:
                table.close()

    def _at(self, epoch: Epoch | None) -> PinnedTable:
        """A table that keeps the epoch readable: the current one, if its epoch is that of the query's last batch."""
        if self._table is None:
            table = self._options.table(epoch or None)
            table.keep_history()
            self._table = table
        return self._table

    def _move_to(self, table: PinnedTable) -> None:
        if self._table is not None:
            self._table.close()
        self._table = table


def next_epoch(version: HummockVersion, key_range: KeyRange, begins: Epoch, max_bytes: int | None) -> Epoch:
    """The end epoch of a batch that begins at `begins`: `begins` itself if nothing in the range was written since, else
    the newest committed epoch, or an earlier one after about `max_bytes` of writes.
    """
    committed = version.max_committed_epoch
    if begins == NEVER:
        return committed
    written = sorted((pure_epoch(info.newest_epoch), info.data_bytes) for run in version.runs
                     for info in run.overlapping(key_range.start, key_range.end) if info.newest_epoch > begins | 0xFFFF)
    if not written and to_unix_ms(committed) - to_unix_ms(begins) < IDLE_MS:
        return begins
    bytes_so_far = 0
    for epoch, size in written:
        bytes_so_far += size
        if max_bytes is not None and bytes_so_far >= max_bytes:
            return max(epoch, begins)
    return committed

