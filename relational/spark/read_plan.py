"""The plan of a read by the data source: the schema of its frame, and the specs of its tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hummock.epoch import Epoch
from relational.spark.pinned_table import PinnedTable
from relational.spark.read_options import ReadOptions
from relational.spark.scan import period, plan, spark_schema, specs_of
from relational.spark.selection import selection

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def schema_of(table: PinnedTable, options: ReadOptions) -> StructType:
    """The schema of the frame. BindError, CatalogError, and the errors of `selection`, before any query."""
    selection(table.catalog, options.where)
    return spark_schema(table, table.columns_of(options.columns), options.has_ops)


def planned_specs(table: PinnedTable, options: ReadOptions, names: Sequence[str], slots: int) -> tuple[bytes, ...]:
    """The specs of a read of the columns `names`; `slots` tasks run at once."""
    columns = table.columns_of(names)
    if options.since is None:
        selected = selection(table.catalog, options.where)
        parts = plan(table, selected.ranges, slots)
        return specs_of(table, columns, parts, table.epoch, None, selected.rest)
    return stream_specs(table, names, slots, Epoch(options.since), table.epoch)


def stream_specs(table: PinnedTable, names: Sequence[str], slots: int, since: Epoch,
                 until: Epoch) -> tuple[bytes, ...]:
    """The specs of the changes between two epochs."""
    begins, ends = period(table, since, until)
    return specs_of(table, table.columns_of(names), plan(table, [table.key_range], slots, begins), ends, begins)
