"""The catalog entry of a table: its columns, its keys, and the layout of its rows in the store.

A `TableCatalog` describes a table, a materialized view or an executor's state table alike, since all three are rows
under a table id. It is an immutable value: DDL makes a new one (`alter.py`). Table ids and column ids are never reused,
so bytes written under an id keep their meaning for as long as they exist, whichever version of the table reads them.

Storage layout: the primary key columns are memcomparable in the key, in `pk` order, after `table id | vnode`. The value
holds `value_indices`: every column that cannot be decoded exactly from the key (lossy key encodings are stored in
both).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from hummock.base.json_fields import check_format, natural
from relational.catalog.watermarks import WatermarkCatalog
from relational.types.data_type import DataType, TypeKind
from relational.types.ordering import OrderType, SortKey
from relational.types.schema import Field, Schema
from relational.types.value_json import value_from_json, value_to_json
from relational.types.vnode_rule import VnodeRule
from relational.types.vnodes import DEFAULT_VNODE_COUNT

FORMAT_VERSION = 6
READABLE_VERSIONS = (1, 2, 3, 4, 5, 6)
"""The first had neither defaults nor versions of a schema, the second neither constraints nor a kernel version, the
third neither sources nor sinks, the fourth neither stored stream plans nor a time to live nor vnode rules, the fifth no
watermarks. An object is written as of the first version that has all of it: older releases read the others. They cannot
run the jobs of views, indexes and sinks of the fifth."""
TABLE_VERSION, SOURCE_VERSION, TTL_VERSION, RULE_VERSION, JOB_VERSION, WATERMARK_VERSION = 3, 4, 5, 5, 5, 6
KEY_FORM_LOSES = frozenset((TypeKind.REAL, TypeKind.DOUBLE, TypeKind.INTERVAL))
"""Types whose key decodes to an SQL-equal value that need not be the same one [R4], so also what holds one."""


class TableKind(StrEnum):
    """By writer: statements or a connector, a query's change stream, the changes of a table in another order, an
    executor for its own use; none for a named query, and for a source, which every job that names it reads for itself.
    A sink delivers the changes of its query; its rows are the state of the delivery.
    """

    TABLE = "table"
    MATERIALIZED_VIEW = "materialized view"
    INDEX = "index"
    INTERNAL = "internal"
    VIEW = "view"
    SOURCE = "source"
    SINK = "sink"

    @property
    def is_job(self) -> bool:
        """Whether an actor writes it and all may read it."""
        return self in (TableKind.TABLE, TableKind.MATERIALIZED_VIEW, TableKind.INDEX, TableKind.SINK)

    @property
    def has_rows(self) -> bool:
        """Whether it has stored rows of its own."""
        return self not in (TableKind.VIEW, TableKind.SOURCE)

    @property
    def one(self) -> str:
        """A noun with its article, for messages."""
        return f"an {self}" if self[0] in "aeiou" else f"a {self}"


class ConflictBehaviour(StrEnum):
    """What an inserted row does when its primary key is already present."""

    ERROR = "error"
    OVERWRITE = "overwrite"
    IGNORE = "ignore"


TABLE_CONNECTOR = "table"
"""The connector of sinks into tables: their options are written by `SinkTable`, and never by a user."""


class SinkOrder(StrEnum):
    """How the changes of an epoch reach the table: inserted rows and changes whose stream key is part of the table's
    key as they come; others netted at the barrier, deletions first, since a key may pass from one row to another.
    """

    ARRIVAL = "arrival"
    NETTED = "netted"


@dataclass(frozen=True, slots=True)
class SinkTable:
    """The table that a sink writes, and the ids of its columns that the query gives, in the query's order."""

    table_id: int
    name: str
    column_ids: tuple[int, ...]
    order: SinkOrder

    def to_options(self) -> dict[str, str]:
        """The options of the sink; `of_options` restores an equal value."""
        return {
            "connector": TABLE_CONNECTOR,
            "table": self.name,
            "table_id": str(self.table_id),
            "columns": ",".join(map(str, self.column_ids)),
            "order": self.order.value,
        }

    @classmethod
    def of_options(cls, options: Mapping[str, str]) -> SinkTable | None:
        """None for a sink of another connector."""
        if options.get("connector") != TABLE_CONNECTOR:
            return None
        columns = tuple(map(int, options["columns"].split(",")))
        return cls(int(options["table_id"]), options["table"], columns, SinkOrder(options["order"]))


class RowFormat(StrEnum):
    """Store entries per row: one, or one per value, so that an update of one column writes that entry alone."""

    ROW = "row"
    CELL = "cell"


@dataclass(frozen=True, slots=True)
class ColumnCatalog:
    """One stored column. `column_id` is never reused; `SELECT *` omits hidden columns. `default` is its value in rows
    written before the column was added, and in inserted rows that omit it. `not_null` and `max_length` (characters of a
    VARCHAR, None without a limit) are constraints on written rows. `comment` is that of COMMENT ON; "": none.
    """

    name: str
    column_id: int
    data_type: DataType
    is_hidden: bool = False
    default: Any = field(default=None, hash=False)
    not_null: bool = False
    max_length: int | None = None
    comment: str = ""

    def to_json(self) -> dict:
        return {
            **({"comment": self.comment} if self.comment else {}),
            "name": self.name,
            "column_id": self.column_id,
            "data_type": str(self.data_type),
            "is_hidden": self.is_hidden,
            "default": value_to_json(self.default, self.data_type),
            "not_null": self.not_null,
            "max_length": self.max_length,
        }

    @classmethod
    def from_json(cls, record: Mapping) -> ColumnCatalog:
        data_type = DataType.parse(record["data_type"])
        default = value_from_json(record.get("default"), data_type)
        return cls(
            record["name"],
            record["column_id"],
            data_type,
            record["is_hidden"],
            default,
            record.get("not_null", False),
            record.get("max_length"),
            record.get("comment", ""),
        )


@dataclass(frozen=True, slots=True)
class TableCatalog:
    """A table as the store and every executor see it. All indices refer to `columns`.

    `stream_key` identifies a row of its change stream; `pk` orders the stored rows and contains the stream key;
    `distribution_key` determines the vnode by `vnode_rule` and is a subset of `pk` (empty: one vnode, 0).
    `row_id_index` is the generated key column of a table without a declared key. The prefix of the first
    `prefix_columns` key columns has a filter. `plan` is a view's bound logical plan as JSON text, `definition` the
    statement that created the object. `dependencies` are the ids of the tables it reads, and of the table that a sink
    writes; for an internal table the id of the job that owns it. `schema_id` is the schema of its name. `reads` are the
    (table id, column id) pairs that its query needs, None if unknown: then it may need all. `schema_version` increases
    with each change of the columns; ids from `next_column_id` on (0: after the largest in use) were never assigned.
    `kernel_version` is the version of the expression kernels that computed the stored rows of a view. `connector`: the
    options of the connector that feeds a table or is the source; `sink`: those of a sink. A row is not read `ttl_ms`
    after the epoch in which it was written, 0: always. `watermarks`: the declared one of a table or source, those of a
    view's columns. `comment` is that of COMMENT ON; "": none.
    """

    id: int
    name: str
    kind: TableKind
    columns: tuple[ColumnCatalog, ...]
    pk: tuple[SortKey, ...]
    stream_key: tuple[int, ...]
    distribution_key: tuple[int, ...]
    value_indices: tuple[int, ...]
    vnode_count: int = DEFAULT_VNODE_COUNT
    is_append_only: bool = False
    row_id_index: int | None = None
    conflict: ConflictBehaviour = ConflictBehaviour.ERROR
    prefix_columns: int = 0
    definition: str = ""
    plan: str = ""
    connector: Mapping[str, str] | None = field(default=None, hash=False)
    dependencies: tuple[int, ...] = ()
    row_format: RowFormat = RowFormat.ROW
    schema_id: int = 0
    reads: tuple[tuple[int, int], ...] | None = None
    schema_version: int = 0
    next_column_id: int = 0
    kernel_version: int = 0
    version: int = TABLE_VERSION
    sink: Mapping[str, str] | None = field(default=None, hash=False)
    ttl_ms: int = 0
    vnode_rule: VnodeRule = VnodeRule.HASH
    watermarks: tuple[WatermarkCatalog, ...] = ()
    comment: str = ""

    @property
    def inserts_new_keys(self) -> bool:
        """Whether every row ever written has a key that no row had before: generated ids, and no row is retracted."""
        return self.is_append_only and self.vnode_rule.is_row_id

    @property
    def sink_table(self) -> SinkTable | None:
        """The table that this sink writes; None for other sinks and objects."""
        return None if self.sink is None else SinkTable.of_options(self.sink)

    @property
    def inputs(self) -> tuple[int, ...]:
        """The ids of the objects that its query reads: all dependencies but the table that a sink writes."""
        written = self.sink_table
        return tuple(each for each in self.dependencies if written is None or each != written.table_id)

    @property
    def row_id_layout(self) -> VnodeRule:
        """The rule whose layout the generated ids of this job have."""
        return self.vnode_rule if self.vnode_rule.is_row_id else VnodeRule.of_row_ids(self.vnode_count)

    @property
    def schema(self) -> Schema:
        """All columns, hidden ones included, in stored order."""
        return Schema(tuple(Field(column.name, column.data_type) for column in self.columns))

    @property
    def visible_indices(self) -> tuple[int, ...]:
        """The columns a user sees, in order."""
        return tuple(index for index, column in enumerate(self.columns) if not column.is_hidden)

    @property
    def watermark_columns(self) -> frozenset[int]:
        """The indices of the columns with a watermark."""
        marked = {each.column_id for each in self.watermarks}
        return frozenset(index for index, column in enumerate(self.columns) if column.column_id in marked)

    @property
    def declared_watermark(self) -> tuple[int, int] | None:
        """(column index, delay) of the watermark that rows of the connector have; None without one."""
        for each in self.watermarks:
            if each.delay is not None:
                return self.column_ids.index(each.column_id), each.delay
        return None

    @property
    def delivered_columns(self) -> tuple[int, ...]:
        """The columns that a connector delivers: all but a generated key."""
        return tuple(column for column in range(len(self.columns)) if column != self.row_id_index)

    @property
    def pk_indices(self) -> tuple[int, ...]:
        """The key columns in key order."""
        return tuple(key.column for key in self.pk)

    @property
    def column_ids(self) -> tuple[int, ...]:
        """The ids of all columns, in stored order."""
        return tuple(column.column_id for column in self.columns)

    def with_id(self, table_id: int) -> TableCatalog:
        """The same object under an allocated id."""
        return replace(self, id=table_id)

    def to_json(self) -> dict:
        """A JSON-able record; `from_json` restores an equal catalog."""
        return {
            "version": self.version,
            "id": self.id,
            "name": self.name,
            "kind": self.kind.value,
            "columns": [column.to_json() for column in self.columns],
            "pk": [[key.column, key.order.descending, key.order.nulls_first] for key in self.pk],
            "stream_key": list(self.stream_key),
            "distribution_key": list(self.distribution_key),
            "value_indices": list(self.value_indices),
            "vnode_count": self.vnode_count,
            "is_append_only": self.is_append_only,
            "row_id_index": self.row_id_index,
            "conflict": self.conflict.value,
            "prefix_columns": self.prefix_columns,
            "definition": self.definition,
            "plan": self.plan,
            "connector": None if self.connector is None else dict(self.connector),
            "dependencies": list(self.dependencies),
            "row_format": self.row_format.value,
            "schema_id": self.schema_id,
            "reads": None if self.reads is None else [list(pair) for pair in self.reads],
            "schema_version": self.schema_version,
            "next_column_id": self.next_column_id,
            "kernel_version": self.kernel_version,
            **({} if self.sink is None else {"sink": dict(self.sink)}),
            **({"ttl_ms": self.ttl_ms} if self.ttl_ms else {}),
            **({} if self.vnode_rule is VnodeRule.HASH else {"vnode_rule": self.vnode_rule.value}),
            **({"watermarks": [each.to_json() for each in self.watermarks]} if self.watermarks else {}),
            **({"comment": self.comment} if self.comment else {}),
        }

    @classmethod
    def from_json(cls, record: Mapping) -> TableCatalog:
        """The catalog written by `to_json`. FormatTooNew for a format version of a newer release."""
        check_format(f"the catalog of {record['name']!r}", record["version"], FORMAT_VERSION, min(READABLE_VERSIONS))
        return cls(
            id=record["id"],
            name=record["name"],
            kind=TableKind(record["kind"]),
            columns=tuple(ColumnCatalog.from_json(column) for column in record["columns"]),
            pk=tuple(SortKey(column, OrderType(*order)) for column, *order in record["pk"]),
            stream_key=tuple(record["stream_key"]),
            distribution_key=tuple(record["distribution_key"]),
            value_indices=tuple(record["value_indices"]),
            vnode_count=record["vnode_count"],
            is_append_only=record["is_append_only"],
            row_id_index=record["row_id_index"],
            conflict=ConflictBehaviour(record["conflict"]),
            prefix_columns=record["prefix_columns"],
            definition=record["definition"],
            plan=record["plan"],
            connector=record["connector"],
            dependencies=tuple(record["dependencies"]),
            row_format=RowFormat(record.get("row_format", "row")),
            schema_id=record.get("schema_id", 0),
            reads=None if record.get("reads") is None else tuple((table, column) for table, column in record["reads"]),
            schema_version=record.get("schema_version", 0),
            next_column_id=record.get("next_column_id", 0),
            kernel_version=record.get("kernel_version", 0),
            version=max(record["version"], TABLE_VERSION),
            sink=record.get("sink"),
            ttl_ms=natural(record.get("ttl_ms", 0)),
            vnode_rule=VnodeRule(record.get("vnode_rule", VnodeRule.HASH)),
            watermarks=tuple(map(WatermarkCatalog.from_json, record.get("watermarks", ()))),
            comment=record.get("comment", ""),
        )


def value_columns(columns: Sequence[ColumnCatalog], pk: Sequence[SortKey]) -> tuple[int, ...]:
    """The `value_indices` of a table: every column that cannot be decoded exactly from its key."""
    keyed = {key.column for key in pk}
    return tuple(
        index
        for index, column in enumerate(columns)
        if index not in keyed or any(column.data_type.contains(kind) for kind in KEY_FORM_LOSES)
    )


def offset_table_name(table: TableCatalog) -> str:
    """The name of the internal table that stores the source offsets of `table`."""
    return f"{table.name}.offsets"
