"""Records that are changes of a table with a primary key, and the ops that they become.

    upsert    {"key": {…}, "value": {…} or null}: the row of a key, or its end. `key` has the columns of the primary
              key, `value` the others. + or -; the table has ON CONFLICT OVERWRITE, as a row replaces that of its key
    debezium  {"before": {…} or null, "after": {…} or null, "op": "c", "r", "u" or "d"}, by itself or as the `payload`
              of an envelope. c and r: + of after; u: U- of before, U+ of after; d: - of before. Without `before`, u
              deletes the key of `after`. A line `null`, Kafka's tombstone, is no change

The table fits all of them to its rows by its conflict rule: of a deleted row only the key counts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.catalog.objects import ConflictBehaviour, TableKind
from relational.chunk import Column, Op, StreamChunk
from relational.types import Field
from stream.connector.text_files import batch_of
from stream.errors import ConnectorError

if TYPE_CHECKING:
    from relational.catalog.objects import TableCatalog

NO_CHANGE = 255  # instead of an op


class OtherLayout(ValueError):
    """A record does not have the members of a layout, but may have those of the next one."""


OP = "op"


class Records(Protocol):
    """Parsed records, see `ndjson_files.JsonRecords`."""

    def __len__(self) -> int: ...

    def member(self, *path: str) -> pa.Array: ...

    def columns(self, fields: Sequence[Field], *path: str) -> list[pa.Array]: ...


class ChangeFormat(ABC):
    """One format over the columns `fields`; `key` are the names of the primary key. `rows_of_record`: at most.
    `has_tombstones`: a record may be JSON's null instead of an object, which is no change."""

    rows_of_record = 1
    has_tombstones = False

    def __init__(self, fields: Sequence[Field], key: Sequence[str]) -> None:
        self.fields, self.key = fields, key

    @classmethod
    def check_table(cls, connector: str, table: TableCatalog) -> None:
        """ConnectorError for a table that the format cannot feed."""
        if table.row_id_index is not None or table.kind is not TableKind.TABLE:
            raise ConnectorError(connector, "updates and deletes need stored rows: CREATE TABLE … (…, PRIMARY KEY (…))")

    @abstractmethod
    def layouts(self, row: pa.StructType) -> Sequence[pa.Schema]:
        """The members of a record, where `row` has those of the columns; the later ones have more, and cost more."""

    @abstractmethod
    def parsed(self, records: Records, fields: Sequence[Field], layout: int, tombstones: int) -> pa.RecordBatch:
        """One row per record, with the values of `fields`, of records read by a layout; `tombstones` of them were null.
        ValueError for a record of another form, OtherLayout if the next layout may have it."""

    @abstractmethod
    def chunk(self, rows: pa.RecordBatch) -> StreamChunk | None:
        """The changes of parsed records with all fields; None if there are none."""


class UpsertFormat(ChangeFormat):
    """A parsed row has the op and the columns."""

    @classmethod
    def check_table(cls, connector: str, table: TableCatalog) -> None:
        super().check_table(connector, table)
        if table.conflict is not ConflictBehaviour.OVERWRITE:
            raise ConnectorError(connector, "rows of format upsert replace those of their keys: declare the table with "
                                            "ON CONFLICT OVERWRITE")

    def layouts(self, row: pa.StructType) -> Sequence[pa.Schema]:
        in_key = [field for field in row if field.name in self.key]
        return [pa.schema([("key", pa.struct(in_key)), ("value", row)])]

    def parsed(self, records: Records, fields: Sequence[Field], layout: int, tombstones: int) -> pa.RecordBatch:
        if records.member("key").null_count:
            raise ValueError("it has no key")
        value = records.member("value")
        in_key = [field for field in fields if field.name in self.key]
        columns = {field.name: column
                   for part, path in ((fields, "value"), (in_key, "key"))
                   for field, column in zip(part, records.columns(part, path), strict=True)}
        ops = np.where(value.is_null().to_numpy(zero_copy_only=False), Op.DELETE, Op.INSERT).astype(np.uint8)
        return batch_of([pa.array(ops), *columns.values()], [OP, *columns], len(records))

    def chunk(self, rows: pa.RecordBatch) -> StreamChunk | None:
        ops, *columns = rows.columns
        return StreamChunk([Column(column) for column in columns], ops.to_numpy())


class DebeziumFormat(ChangeFormat):
    """A parsed row has the op of its first change, the columns before it and those after it."""

    rows_of_record = 2
    has_tombstones = True
    ops: Mapping[str, int] = {"c": Op.INSERT, "r": Op.INSERT, "u": Op.UPDATE_DELETE, "d": Op.DELETE}

    def layouts(self, row: pa.StructType) -> Sequence[pa.Schema]:
        change = [pa.field("before", row), pa.field("after", row), pa.field(OP, pa.utf8())]
        return [pa.schema(change), pa.schema([*change, pa.field("payload", pa.struct(change))])]

    def parsed(self, records: Records, fields: Sequence[Field], layout: int, tombstones: int) -> pa.RecordBatch:
        is_enveloped = np.zeros(len(records), bool)
        if layout:  # a record that is a change itself is no envelope, whatever else it has, as in the other layout
            is_enveloped = _validity(records.member("payload")) & ~_validity(records.member(OP))
        ops = self._ops(_chosen(is_enveloped, lambda *path: [records.member(*path, OP)])[0])
        has_before = _validity(_chosen(is_enveloped, lambda *path: [records.member(*path, "before")])[0])
        has_after = _validity(_chosen(is_enveloped, lambda *path: [records.member(*path, "after")])[0])
        if np.count_nonzero(ops == NO_CHANGE) > tombstones:
            raise ValueError("it has no op") if layout else OtherLayout("it has no op")
        self._check(ops, has_before, has_after)
        before = _chosen(is_enveloped, lambda *path: records.columns(fields, *path, "before"))
        after = _chosen(is_enveloped, lambda *path: records.columns(fields, *path, "after"))
        for number, field in enumerate(fields):
            if field.name in self.key and not has_before.all():
                before[number] = _either(has_before, before[number], after[number])
        names = [f"{side} {field.name}" for side in ("before", "after") for field in fields]
        return batch_of([pa.array(ops), *before, *after], [OP, *names], len(records))

    def _check(self, ops: np.ndarray, has_before: np.ndarray, has_after: np.ndarray) -> None:
        """ValueError for a record that lacks a part."""
        if not has_after[(ops == Op.INSERT) | (ops == Op.UPDATE_DELETE)].all():
            raise ValueError("after is missing")
        if not has_before[ops == Op.DELETE].all():
            raise ValueError("before is missing, so the deleted row is unknown")

    def chunk(self, rows: pa.RecordBatch) -> StreamChunk | None:
        first, count = rows.column(0).to_numpy(), rows.num_rows
        before, after = rows.columns[1 : len(self.fields) + 1], rows.columns[len(self.fields) + 1 :]
        if not first.any():  # inserts only
            return StreamChunk([Column(column) for column in after], first)
        changes = np.select([first == Op.UPDATE_DELETE, first == NO_CHANGE], [2, 0], 1)
        if not changes.any():
            return None
        record = np.repeat(np.arange(count), changes)
        ops = first[record]
        ops[1:][(ops[1:] == Op.UPDATE_DELETE) & (record[1:] == record[:-1])] = Op.UPDATE_INSERT
        is_new = (ops == Op.INSERT) | (ops == Op.UPDATE_INSERT)
        taken = pa.array(record + np.where(is_new, count, 0))
        pairs = zip(before, after, strict=True)
        return StreamChunk([Column(pa.concat_arrays(pair).take(taken)) for pair in pairs], ops)

    def _ops(self, names: pa.Array) -> np.ndarray:
        """uint8[records]: the op of the first change. ValueError for a name that is none."""
        codes = pc.index_in(names, pa.array(list(self.ops)))
        unknown = pc.and_(codes.is_null(), names.is_valid())
        if pc.any(unknown).as_py():
            name = names[pc.index(unknown, True).as_py()]
            raise ValueError(f"op {str(name)[:20]!r} is not one of {', '.join(self.ops)}")
        values = np.array([*self.ops.values(), NO_CHANGE], np.uint8)
        return values[codes.fill_null(len(self.ops)).to_numpy()]


def _validity(column: pa.Array) -> np.ndarray:
    """bool[rows]: whether each value is not NULL."""
    if not column.null_count:
        return np.ones(len(column), bool)
    return column.is_valid().to_numpy(zero_copy_only=False)


def _chosen(is_enveloped: np.ndarray, columns_at: Callable[..., list[pa.Array]]) -> list[pa.Array]:
    """The columns of each record at the path of its change: its `payload` if it is enveloped, else itself."""
    if not is_enveloped.any():
        return columns_at()
    if is_enveloped.all():
        return columns_at("payload")
    pairs = zip(columns_at("payload"), columns_at(), strict=True)
    return [_either(is_enveloped, enveloped, plain) for enveloped, plain in pairs]


def _either(condition: np.ndarray, first: pa.Array, second: pa.Array) -> pa.Array:
    """The value of `first` where the condition is true, else that of `second`; of any type, unlike if_else."""
    rows = np.arange(len(condition))
    return pa.concat_arrays([first, second]).take(pa.array(np.where(condition, rows, len(condition) + rows)))


CHANGE_FORMATS: Mapping[str, type[ChangeFormat]] = {"upsert": UpsertFormat, "debezium": DebeziumFormat}
