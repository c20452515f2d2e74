"""Scans and change feeds of a table as DataFrames: tasks read key ranges from the store, no row passes the driver.

A partition is a few vnodes, or a part of one, and partitions are of about equal size in bytes. Compared with
`spark.read.format("hummock")` a scan has no planning process, and the driver pins the version that it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa

from hummock.base.key import USER_KEY_PREFIX_BYTES, KeyRange
from hummock.base.process import installed_version
from hummock.compaction.subcompaction_planner import split_of
from hummock.epoch import NEVER, Epoch, pure_epoch
from hummock.errors import InvalidEpoch
from hummock.options import MIB
from hummock.spark.jobs import slots
from relational.catalog.objects import RowFormat, TableCatalog
from relational.errors import BindError
from relational.expr.expression import Expression
from relational.spark.pinned_table import PinnedTable
from relational.spark.read_spec import ReadSpec, read_schema, read_spec_task, read_task
from relational.spark.selection import Where, selection
from relational.table.cell_rows import CELL_BYTES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

PARTS_OF_A_SLOT = 4             # so that stragglers are short
LEAST_PART_BYTES, MOST_PART_BYTES = 48 * MIB, 1024 * MIB    # stored; a task costs as much as reading some megabytes
LEAST_SHARE = 3                 # of those least bytes a part has this share where slots would be idle otherwise
CLOSURE_BYTES = 128 << 10       # specs that all tasks may receive; more are sent each to its task, by a shuffle


def scan(spark: SparkSession, table: PinnedTable, *, columns: Sequence[str] | None = None,
         where: Where | None = None) -> DataFrame:
    """The rows of `table` at its epoch that meet `where`: a condition in SQL, or several that must all hold, each as
    (column, one of = < <= > >=, value).

    Conditions on key columns restrict the key ranges that are read, tasks evaluate the others: no other rows reach
    Spark. The frame, and frames derived from it, may be used until the table is closed. BindError for a column whose
    type Spark lacks; also raises the errors of `selection`.
    """
    found = selection(table.catalog, where)
    parts = plan(table, found.ranges, slots(spark))
    return _frame(spark, table, table.columns_of(columns), parts, None, where=found.rest)


def changes(spark: SparkSession, table: PinnedTable, *, since: Epoch, until: Epoch | None = None,
            columns: Sequence[str] | None = None) -> DataFrame:
    """The changes from the rows at `since` (0: no rows) to those at `until` (None: the table's epoch), each key once.

    The first column is `_op`: `+` an inserted row, `-` a deleted one, `U-` and `U+` the two halves of an update, which
    are adjacent in one partition. The cost depends on the data written in between. Raises EpochTooOld and InvalidEpoch.
    """
    begins, ends = period(table, since, until)
    parts = plan(table, [table.key_range], slots(spark), begins)
    return _frame(spark, table, table.columns_of(columns), parts, begins, ends)


def period(table: PinnedTable, since: Epoch, until: Epoch | None) -> tuple[Epoch, Epoch]:
    """The epochs between which changes are read. Raises EpochTooOld and InvalidEpoch."""
    ends = table.readable(table.epoch if until is None else until)
    if pure_epoch(since) > ends:
        raise InvalidEpoch(since, f"the changes end at {ends}")
    return table.readable(since) if since else NEVER, ends


def plan(table: PinnedTable, ranges: Sequence[KeyRange], at_once: int,
         since: Epoch | None = None) -> list[tuple[KeyRange, ...]]:
    """The ranges of each partition, ascending: about equal stored bytes, counting only data newer than `since` if that
    is not None.
    """
    table.check()
    touched = list(dict.fromkeys(info for run in table.version.runs for info in run.within(ranges)))
    files = [info for info in touched if since is None or info.newest_epoch > since]
    total = sum(info.data_bytes for info in files)
    part_bytes = _part_bytes(total, at_once)
    cuts = split_of(files, part_bytes, table.samples_of).cuts if files else ()
    pieces = _cut(ranges, [_between_rows(table.catalog, cut) for cut in cuts])
    count = min(len(pieces), max(1, round(total / part_bytes)))
    bounds = [len(pieces) * index // count for index in range(count + 1)] if count else [0]
    return [tuple(pieces[first:end]) for first, end in pairwise(bounds)]


def _part_bytes(total: int, at_once: int) -> int:
    """Few rounds of tasks, with a part for each slot in all of them: the last round leaves no slot idle."""
    rounds = min(max(total // (at_once * LEAST_PART_BYTES), 1), PARTS_OF_A_SLOT)
    return min(max(total // (rounds * at_once), LEAST_PART_BYTES // LEAST_SHARE), MOST_PART_BYTES)


def specs_of(table: PinnedTable, columns: tuple[int, ...], parts: Sequence[tuple[KeyRange, ...]], epoch: Epoch,
             since: Epoch | None, where: Expression | None = None) -> tuple[bytes, ...]:
    """The spec of each partition's task, with only the files that it may have to read."""
    return tuple(ReadSpec(table.url, table.version.narrowed(part), table.catalog, columns, part, epoch, since,
                          where).to_bytes() for part in parts)


def spark_schema(table: PinnedTable, columns: tuple[int, ...], has_ops: bool) -> StructType:
    """The schema of a frame of these columns. BindError naming a column whose type Spark lacks."""
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructType

    found = StructType()
    for field in read_schema(table.catalog, columns, has_ops):
        try:
            found = found.add(field.name, from_arrow_type(field.type, prefer_timestamp_ntz=True), field.nullable)
        except PySparkTypeError as error:
            raise BindError(f"Spark has no type for column {field.name!r}, {field.type}: choose others") from error
    return found


def _frame(spark: SparkSession, table: PinnedTable, columns: tuple[int, ...], parts: Sequence[tuple[KeyRange, ...]],
           since: Epoch | None, until: Epoch | None = None, where: Expression | None = None) -> DataFrame:
    schema = spark_schema(table, columns, since is not None)
    if not parts:
        return spark.createDataFrame([], schema)
    specs = specs_of(table, columns, parts, table.epoch if until is None else until, since, where)
    if sum(map(len, specs)) <= CLOSURE_BYTES:
        task = partial(read_task, installed_version(), specs)
        frame = spark.range(0, len(specs), 1, len(specs)).mapInArrow(task, schema)
    else:
        frame = _spec_per_task(spark, specs).mapInArrow(partial(read_spec_task, installed_version()), schema)
    frame.__dict__["_hummock_table"] = table        # referenced: keeps its files while the frame is alive
    return frame


def _spec_per_task(spark: SparkSession, specs: Sequence[bytes]) -> DataFrame:
    """The specs as rows, each alone in a partition. A spec names up to thousands of files: what is part of a function
    would reach every task."""
    rows = pa.table({"index": pa.array(range(len(specs)), pa.int32()), "spec": pa.array(specs, pa.binary())})
    return spark.createDataFrame(rows).repartitionById(len(specs), "index")


def _between_rows(table: TableCatalog, cut: bytes) -> bytes:
    """A key in the place of `cut`, the key of an entry or of a vnode, that parts no row: the entries of one stay
    together.
    """
    is_entry = table.row_format is RowFormat.CELL and len(cut) > USER_KEY_PREFIX_BYTES
    return cut[:-CELL_BYTES] if is_entry else cut


def _cut(ranges: Sequence[KeyRange], cuts: Sequence[bytes]) -> list[KeyRange]:
    """The ranges, split at those cuts that are inside of one."""
    pieces = []
    for part in ranges:
        inside = [cut for cut in cuts if part.start < cut and (part.end is None or cut < part.end)]
        bounds = [part.start, *inside, part.end]
        pieces += [KeyRange(start or b"", end) for start, end in pairwise(bounds)]
    return pieces
