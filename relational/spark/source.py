"""`spark.read.format("hummock")` and `spark.readStream.format("hummock")`, once `register(spark)` has been called.

Options: `url` (or the path passed to `load`), `table`, `meta`, `columns` (names, separated by commas; default: all).
For reads: `epoch` (default: the newest committed), `where` (a condition in SQL: other rows are not returned, and are
not read if the key excludes them), `since` (changes, with `_op` first, as returned by `changes` in scan.py). A plan is
made in a short-lived Spark process, so files are kept for `held_ms` from then on (default: an hour), independent of the
job: a longer job reads a `PinnedTable` by `scan`.

Filters of a frame are evaluated by Spark and are not pushed down: Spark caches the filters pushed to a Python source
for one query of a frame, and reuses that source for the next query of the frame, so that `df.where("id < 10").count()`
before `df.count()` would give the second the rows of the first. `where`, like `columns`, belongs to the frame and
applies to all of its queries.

For streams: `start`, required (`snapshot`: all rows first; `latest`; an epoch), and `max_bytes`, the approximate amount
of new data per batch. Rows have `_op` first too. An offset is an epoch; that of the last committed batch remains
readable while the query runs, and afterwards only as long as the store retains history anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes

from hummock.base.key import KeyRange
from hummock.epoch import NEVER, Epoch, pure_epoch, to_unix_ms
from hummock.errors import InvalidOption
from hummock.version import HummockVersion
from relational.spark.pinned_table import PinnedTable
from relational.spark.read_spec import ReadSpec, read_batches
from relational.spark.scan import period, plan, spark_schema, specs_of
from relational.spark.selection import Selection, selection
from relational.spark.table_writer import WritableSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

HELD_MS = 3_600_000
PLANNED_SLOTS = 8               # the planning process cannot determine the number of slots
IDLE_MS = 60_000                # an idle table's offset advances this often, so that it does not expire
START_SNAPSHOT, START_LATEST = "snapshot", "latest"


def register(spark: SparkSession) -> None:
    """Registers the format for this application's sessions. Changes no setting of theirs."""
    spark.dataSource.register(HummockSource)


class HummockSource(WritableSource):
    """A Spark data source over a table of a store."""

    @classmethod
    def name(cls) -> str:
        return "hummock"

    def schema(self) -> StructType:
        options = ReaderOptions(self.options)
        with options.table() as table:
            has_ops = options.since is not None or options.start is not None
            selection(table.catalog, options.where)        # errors in the condition are reported before a query
            return spark_schema(table, table.columns_of(options.columns), has_ops)

    def reader(self, schema: StructType) -> TableReader:
        return TableReader(ReaderOptions(self.options))

    def streamReader(self, schema: StructType) -> TableStream:
        options = ReaderOptions(self.options)
        if options.start is None:
            raise InvalidOption("start", "", "snapshot, latest or an epoch, for a stream: by it the schema has `_op`")
        return TableStream(options)


class ReaderOptions:
    """Parsed options of a read. InvalidOption naming one that is missing or not a number."""

    def __init__(self, options: Mapping[str, str]):
        self.url = options.get("url") or options.get("path") or _missing("url")
        self.name = options.get("table") or _missing("table")
        self.meta = options.get("meta")
        columns = options.get("columns")
        self.columns = None if columns is None else [name.strip() for name in columns.split(",")]
        self.epoch, self.since = _number(options, "epoch"), _number(options, "since")
        self.held_ms = _number(options, "held_ms") or HELD_MS
        self.start, self.max_bytes = options.get("start"), _number(options, "max_bytes")
        self.where = options.get("where")
        if self.where is not None and (self.since is not None or self.start is not None):
            raise InvalidOption("where", self.where, "left out beside since or start: filter the frame of changes, for "
                                                     "one half of an update may meet the condition and the other not")

    def table(self, epoch: int | None = None, held_ms: int | None = None) -> PinnedTable:
        wanted = self.epoch if epoch is None else epoch
        return PinnedTable(self.url, self.name, epoch=None if wanted is None else Epoch(wanted), meta=self.meta,
                           held_ms=held_ms)


class TablePart(InputPartition):
    """The input of one task: a ReadSpec as bytes."""

    def __init__(self, spec: bytes):
        super().__init__(spec)
        self.spec = spec


class TableReader(DataSourceReader):
    """Reads a snapshot, or the changes since an epoch. Its state between calls can be pickled."""

    def __init__(self, options: ReaderOptions):
        self._options = options

    def partitions(self) -> Sequence[TablePart]:
        options = self._options
        table = options.table(held_ms=options.held_ms)
        try:
            columns = table.columns_of(options.columns)
            if options.since is not None:
                begins, ends = period(table, Epoch(options.since), None)
                return _parts(table, columns, Selection((table.key_range,)), ends, begins)
            return _parts(table, columns, selection(table.catalog, options.where), table.epoch, None)
        finally:
            table.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition)


class TableStream(DataSourceStreamReader):
    """Streams the changes of a table in batches. Lives in one Spark process as long as the query."""

    def __init__(self, options: ReaderOptions):
        self._options = options
        self._table: PinnedTable | None = None      # at the epoch where the next batch begins
        self._planned: dict[int, PinnedTable] = {}  # by the epoch where a batch ends; not committed yet

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_table": None, "_planned": {}}    # tasks read, and pin nothing

    def initialOffset(self) -> dict[str, int]:
        start = self._options.start
        if start == START_SNAPSHOT:
            return {"epoch": NEVER}
        if start == START_LATEST:
            return {"epoch": self._at(None).epoch}
        return {"epoch": pure_epoch(_number({"start": start or ""}, "start") or NEVER)}

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
        begins, ends = period(table, Epoch(start["epoch"]), Epoch(end["epoch"]))
        return _parts(table, table.columns_of(self._options.columns), Selection((table.key_range,)), ends, begins)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition)

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


def _parts(table: PinnedTable, columns: tuple[int, ...], selected: Selection, epoch: Epoch,
           since: Epoch | None) -> list[TablePart]:
    parts = plan(table, selected.ranges, PLANNED_SLOTS, since)
    return [TablePart(spec) for spec in specs_of(table, columns, parts, epoch, since, selected.rest)]


def _read(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, TablePart)
    return read_batches(ReadSpec.from_bytes(partition.spec))


def _missing(name: str) -> str:
    raise InvalidOption(name, "", "given: option(\"" + name + "\", ...)")


def _number(options: Mapping[str, str], name: str) -> int | None:
    value = options.get(name)
    if value is None:
        return None
    if not value.isdecimal():
        raise InvalidOption(name, value, "a whole number")
    return int(value)
