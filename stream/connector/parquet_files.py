"""Parquet files as sources. A group is a row group, decoded in batches of bounded size; page checksums are verified.

A row group whose statistics exclude a comparison of the job's filter is not read. Statistics leave out NaN, and bounds
of long texts may be shortened, to smaller and larger ones: neither excludes too much.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from relational.chunk.arrow_import import cast_array
from relational.expr.comparisons import Comparison
from stream.connector.files import GroupedConnector, GroupedFile

BATCH_ROWS = 65_536


class ParquetFile(GroupedFile):
    """`is_remote`: ranges that lie close together are read at once. What is read may have more columns than are wanted:
    pyarrow takes `a.b` for a field of a struct, too."""

    def __init__(self, source: pa.NativeFile, *, is_remote: bool) -> None:
        self._file = pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=is_remote)
        self._leaves: dict[str, int] | None = None  # name of a flat column -> its number in the metadata

    @property
    def fields(self) -> pa.Schema:
        return self._file.schema_arrow

    @property
    def groups(self) -> int:
        return int(self._file.num_row_groups)

    def read(self, group: int, names: Sequence[str]) -> tuple[int, Iterator[pa.RecordBatch]]:
        rows = self._file.metadata.row_group(group).num_rows
        return rows, self._file.iter_batches(BATCH_ROWS, row_groups=[group], columns=list(names), use_threads=False)

    def may_have(self, group: int, name: str, comparison: Comparison) -> bool:
        if self._leaves is None:
            self._leaves = _flat_columns(self.fields)
        leaf = self._leaves.get(name)
        if leaf is None:
            return True
        column = self._file.metadata.row_group(group).column(leaf)
        statistics = column.statistics
        if statistics is None:
            return True
        if statistics.has_null_count and statistics.null_count == column.num_values:
            return False
        if not statistics.has_min_max:
            return True
        stored, wanted = self.fields.field(name).type, comparison.data_type.arrow
        try:
            bounds = [_converted(bound, stored, wanted) for bound in (statistics.min, statistics.max)]
            return not comparison.excludes(*bounds)
        except (pa.ArrowException, TypeError, ValueError, NotImplementedError):
            return True


def _flat_columns(fields: pa.Schema) -> dict[str, int]:
    """The numbers of the columns without parts, among the leaves of all columns."""
    found, leaf = {}, 0
    for field in fields:
        if not _parts(field.type):
            found[field.name] = leaf
        leaf += _leaf_count(field.type)
    return found


def _leaf_count(arrow: pa.DataType) -> int:
    return sum(map(_leaf_count, _parts(arrow))) if _parts(arrow) else 1


def _parts(arrow: pa.DataType) -> list[pa.DataType]:
    """The types of the values that a value consists of."""
    if isinstance(arrow, pa.BaseExtensionType):
        return _parts(arrow.storage_type)
    if pa.types.is_map(arrow):
        return [arrow.key_type, arrow.item_type]
    return [arrow.field(at).type for at in range(arrow.num_fields)]


def _converted(bound: Any, stored: pa.DataType, wanted: pa.DataType) -> Any:
    """A bound of the file's type as a Python value of the column's."""
    value = pa.scalar(bound, stored)
    if pa.types.is_decimal(wanted) or stored == wanted:
        return value.as_py()
    return cast_array(pa.array([value]), wanted)[0].as_py()


class ParquetFilesConnector(GroupedConnector):
    """`WITH (connector = 'parquet', path = …)`."""

    name = "parquet"
    suffixes = (".parquet",)
    accepts_filters = True

    def open_file(self, source: pa.NativeFile) -> GroupedFile:
        return ParquetFile(source, is_remote=self.directory.is_remote)
