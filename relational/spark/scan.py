"""Scans and change feeds of a table as DataFrames: a task reads key ranges from the store, no row passes the driver.

A partition is a few vnodes, or a part of one, of about as many bytes as the others. Compared with
`spark.read.format("hummock")` a scan has no planning process, and the driver holds what it reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hummock.compaction.split import cuts_of
from hummock.epoch import NEVER, Epoch, pure_epoch
from hummock.errors import InvalidEpoch
from hummock.key import KeyRange
from hummock.options import MIB
from hummock.process import installed_version
from hummock.spark.jobs import slots
from relational.errors import BindError
from relational.spark.key_filters import Condition, key_filter
from relational.spark.pinned_table import PinnedTable
from relational.spark.read_spec import ReadSpec, read_schema, read_task

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

PARTS_OF_A_SLOT = 4             # so that the last ones to end wait for little
LEAST_PART_BYTES, MOST_PART_BYTES = 16 * MIB, 1024 * MIB    # stored; a task costs as much as reading some megabytes
Where = Iterable[tuple[str, str, object]]


def scan(spark: SparkSession, table: PinnedTable, *, columns: Sequence[str] | None = None,
         where: Where = ()) -> DataFrame:
    """The rows of `table` at its epoch that meet all conditions of `where`: (column, one of = < <= > >=, value).

    Conditions on key columns leave rows unread where they can, the others are filters of Spark. The frame, and what is
    derived from it, may be used until the table is closed. BindError for a column whose type Spark does not have.
    """
    conditions = tuple(Condition(*each) for each in where)
    chosen = table.columns_of(columns)
    asked = table.columns_of(each.column for each in conditions)
    read = (*chosen, *(column for column in dict.fromkeys(asked) if column not in chosen))
    found = key_filter(table.catalog, conditions)
    frame = _frame(spark, table, read, plan(table, found.ranges, slots(spark)), None)
    for each in found.rest:
        frame = frame.filter(_column_of(frame, each))
    return frame if read == chosen else _held(table, frame.select(*(_named(table, column) for column in chosen)))


def changes(spark: SparkSession, table: PinnedTable, *, since: Epoch, until: Epoch | None = None,
            columns: Sequence[str] | None = None) -> DataFrame:
    """What turns the rows at `since` (0: no rows) into those at `until` (None: the table's epoch), each key once.

    The column `_op` stands first: `+` a row that came, `-` one that went, `U-` and `U+` the two halves of an update,
    which lie in one partition, one after the other. Costs go by what was written in between. Raises EpochTooOld and
    InvalidEpoch.
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
    """The ranges of each partition, ascending: about equal bytes of what is stored in them, of what is newer than
    `since` where that is not None.
    """
    table.check()
    touched = list(dict.fromkeys(info for run in table.version.runs for info in run.within(ranges)))
    files = [info for info in touched if since is None or info.newest_epoch > since]
    total = sum(info.data_bytes for info in files)
    part_bytes = min(max(total // (PARTS_OF_A_SLOT * at_once), LEAST_PART_BYTES), MOST_PART_BYTES)
    pieces = _cut(ranges, cuts_of(files, table.objects, part_bytes)) if files else list(ranges)
    count = min(len(pieces), max(1, round(total / part_bytes)))
    bounds = [len(pieces) * place // count for place in range(count + 1)] if count else [0]
    return [tuple(pieces[first:end]) for first, end in pairwise(bounds)]


def specs_of(table: PinnedTable, columns: tuple[int, ...], parts: Sequence[tuple[KeyRange, ...]], epoch: Epoch,
             since: Epoch | None) -> tuple[bytes, ...]:
    """What the task of each partition is told: no file but those that it may have to read."""
    return tuple(ReadSpec(table.url, table.version.narrowed(part), table.catalog, columns, part, epoch,
                          since).to_bytes() for part in parts)


def spark_schema(table: PinnedTable, columns: tuple[int, ...], has_ops: bool) -> StructType:
    """The schema of a frame of these columns. BindError naming a column that Spark has no type for."""
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
           since: Epoch | None, until: Epoch | None = None) -> DataFrame:
    schema = spark_schema(table, columns, since is not None)
    if not parts:
        return spark.createDataFrame([], schema)
    specs = specs_of(table, columns, parts, table.epoch if until is None else until, since)
    task = partial(read_task, installed_version(), specs)
    return _held(table, spark.range(0, len(specs), 1, len(specs)).mapInArrow(task, schema))


def _held(table: PinnedTable, frame: DataFrame) -> DataFrame:
    frame.__dict__["_hummock_table"] = table        # whose files stay as long as it is held
    return frame


def _cut(ranges: Sequence[KeyRange], cuts: Sequence[bytes]) -> list[KeyRange]:
    """The ranges, parted at those cuts that fall inside of one."""
    pieces = []
    for part in ranges:
        inside = [cut for cut in cuts if part.start < cut and (part.end is None or cut < part.end)]
        bounds = [part.start, *inside, part.end]
        pieces += [KeyRange(start or b"", end) for start, end in pairwise(bounds)]
    return pieces


def _column_of(frame: DataFrame, condition: Condition) -> Column:
    from pyspark.sql.functions import lit

    column: Any = frame[_quoted(condition.column)]
    value = lit(condition.value)
    compared = {"=": column == value, "<": column < value, "<=": column <= value, ">": column > value,
                ">=": column >= value}
    return compared[condition.operator]


def _named(table: PinnedTable, column: int) -> str:
    return _quoted(table.catalog.columns[column].name)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
