"""`spark.read.format("hummock")` and `spark.readStream.format("hummock")`, once `register(spark)` has been called.

Options: `url` (or what `load` is given), `table`, `meta`, `columns` (names, separated by commas; none: all). To read:
`epoch` (none: the newest committed), `where` (a condition in SQL: other rows are not given, and are left unread where
the key says so), `since` (changes, with `_op` in front, as `changes` in scan.py gives them). A plan is made in a
process of Spark's that does not last, so files are held for `held_ms` from then on (an hour by default), whatever
becomes of the job: what lasts longer reads a `PinnedTable` by `scan`.

Filters of a frame are Spark's own and are not pushed down: Spark keeps what a Python source was pushed for one query of
a frame, and asks the next query of that frame with it, so that `df.where("id < 10").count()` before `df.count()` gives
the second the rows of the first. `where` is of the frame, as `columns` is, and holds for all of its queries.

To stream: `start`, always (`snapshot`: all rows come first; `latest`; an epoch), and `max_bytes` of new data that a
batch goes on for, about. Rows have `_op` in front too. An offset is an epoch; that of the last batch that was committed
stays readable while the query runs, and after it only as long as the store keeps history by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
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

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

HELD_MS = 3_600_000
PLANNED_SLOTS = 8               # the planning process cannot find out how many there are
IDLE_MS = 60_000                # an offset moves that often where nothing is written, so that it does not grow old
START_SNAPSHOT, START_LATEST = "snapshot", "latest"


def register(spark: SparkSession) -> None:
    """From here on sessions of this application know the format. No setting of theirs is changed."""
    spark.dataSource.register(HummockSource)


class HummockSource(DataSource):
    """A table of a store."""

    @classmethod
    def name(cls) -> str:
        return "hummock"

    def schema(self) -> StructType:
        options = ReaderOptions(self.options)
        with options.table() as table:
            has_ops = options.since is not None or options.start is not None
            selection(table.catalog, options.where)        # what is wrong with the condition is said before a query
            return spark_schema(table, table.columns_of(options.columns), has_ops)

    def reader(self, schema: StructType) -> TableReader:
        return TableReader(ReaderOptions(self.options))

    def streamReader(self, schema: StructType) -> TableStream:
        options = ReaderOptions(self.options)
        if options.start is None:
            raise InvalidOption("start", "", "snapshot, latest or an epoch, for a stream: by it the schema has `_op`")
        return TableStream(options)


class ReaderOptions:
    """Options of a read, parsed. InvalidOption naming what is missing or not a number."""

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
    """What one task reads: a ReadSpec as bytes."""

    def __init__(self, spec: bytes):
        super().__init__(spec)
        self.spec = spec


class TableReader(DataSourceReader):
    """A snapshot, or the changes since an epoch. What it holds between calls can be pickled."""

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
    """The changes of a table, batch after batch. Runs in one process of Spark's as long as the query does."""

    def __init__(self, options: ReaderOptions):
        self._options = options
        self._table: PinnedTable | None = None      # at the epoch that the next batch begins with
        self._planned: dict[int, PinnedTable] = {}  # by the epoch that a batch ends with; not committed yet

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_table": None, "_planned": {}}    # a task reads, and holds nothing

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
        """A table that keeps the epoch readable: the one at hand, where it is that of the query's last batch."""
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
    """Where a batch ends that begins at `begins`: there itself where nothing of the range was written since, else at
    the newest committed epoch, or at one before it where about `max_bytes` were written.
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
