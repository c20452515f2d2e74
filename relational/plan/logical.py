"""Relational algebra as a tree of immutable nodes: the meaning of a query or a view, independent of its execution.

Every node knows its schema, its stream key and whether its change stream is append-only. The stream key is a set of
output columns that identifies a row among all live rows, and whose insertions and deletions alternate; None where the
node does not output all of its columns (the rule `add_stream_key` then adds them, hidden). Column indices are
positions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import Self

import pyarrow as pa

from relational.catalog.objects import TableCatalog
from relational.expr.aggregates import AggCall
from relational.expr.expression import Expression, InputRef, Literal
from relational.types.ordering import SortKey
from relational.types.schema import Field, Schema


@dataclass(frozen=True, slots=True)
class LogicalPlan:
    """A relation. The defaults below are those of a node that passes the rows of its single input through."""

    @property
    def inputs(self) -> tuple[LogicalPlan, ...]:
        return ()

    def with_inputs(self, inputs: tuple[LogicalPlan, ...]) -> LogicalPlan:
        """The same node over other inputs of the same schemas."""
        assert not inputs
        return self

    @property
    def schema(self) -> Schema:
        """All output columns, hidden ones included."""
        return self.inputs[0].schema

    @property
    def hidden(self) -> frozenset[int]:
        """Output columns that exist for their key only: `*` omits them, and so do results."""
        return self.inputs[0].hidden

    @property
    def stream_key(self) -> tuple[int, ...] | None:
        """Output columns that identify a row; () for a single row; None if the output lacks some of them."""
        return self.inputs[0].stream_key

    @property
    def is_append_only(self) -> bool:
        """Whether rows are never retracted."""
        return self.inputs[0].is_append_only

    @property
    def summary(self) -> str:
        """This node alone as one line of text."""
        return type(self).__name__

    def explain(self) -> str:
        """The tree as indented text, the root first."""
        lines = [self.summary]
        for child in self.inputs:
            lines += ["  " + line for line in child.explain().split("\n")]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _StoredRows(LogicalPlan):
    """Rows of a table: its columns at the indices `columns`, in that order."""

    table: TableCatalog
    columns: tuple[int, ...]

    @property
    def schema(self) -> Schema:
        return table_schema(self.table, self.columns)

    @property
    def hidden(self) -> frozenset[int]:
        return hidden_columns(self.table, self.columns)

    @property
    def stream_key(self) -> tuple[int, ...] | None:
        return positions_of(self.table.stream_key, self.columns)

    @property
    def is_append_only(self) -> bool:
        return self.table.is_append_only


@dataclass(frozen=True, slots=True)
class Scan(_StoredRows):
    """Selected columns of a table, in the order of `columns` (default: all)."""

    columns: tuple[int, ...] = None  # type: ignore[assignment]  # filled in below

    def __post_init__(self) -> None:
        if self.columns is None:
            object.__setattr__(self, "columns", tuple(range(len(self.table.columns))))

    @property
    def summary(self) -> str:
        return f"Scan {self.table.name} ({', '.join(self.schema.names)})"


@dataclass(frozen=True, slots=True)
class PointGet(_StoredRows):
    """The row of a table whose primary key is `key` (one constant per key column, in key order); batch only."""

    key: tuple[Literal, ...]

    @property
    def summary(self) -> str:
        names = [self.table.columns[index].name for index in self.table.pk_indices]
        key = ", ".join(f"{name} = {part.describe()}" for name, part in zip(names, self.key, strict=True))
        return f"PointGet {self.table.name} [{key}] ({', '.join(self.schema.names)})"


@dataclass(frozen=True, slots=True)
class Values(LogicalPlan):
    """Rows written in the statement: expressions without inputs, of the types of `fields`; batch only."""

    fields: Schema
    rows: tuple[tuple[Expression, ...], ...]

    @property
    def schema(self) -> Schema:
        return self.fields

    @property
    def hidden(self) -> frozenset[int]:
        return frozenset()

    @property
    def stream_key(self) -> tuple[int, ...] | None:
        return () if len(self.rows) <= 1 else None

    @property
    def is_append_only(self) -> bool:
        return True

    @property
    def summary(self) -> str:
        return f"Values {len(self.rows)} rows ({', '.join(self.fields.names)})"


@dataclass(frozen=True, slots=True)
class ColumnValues(LogicalPlan):
    """Literal rows of a statement: one Arrow array per field, of its type; batch only."""

    fields: Schema
    columns: tuple[pa.Array, ...]

    @property
    def schema(self) -> Schema:
        return self.fields

    @property
    def hidden(self) -> frozenset[int]:
        return frozenset()

    @property
    def stream_key(self) -> tuple[int, ...] | None:
        return None

    @property
    def is_append_only(self) -> bool:
        return True

    @property
    def summary(self) -> str:
        return f"Values {len(self.columns[0])} rows ({', '.join(self.fields.names)})"


@dataclass(frozen=True, slots=True)
class _Unary(LogicalPlan):
    """A node with one input."""

    input: LogicalPlan

    @property
    def inputs(self) -> tuple[LogicalPlan, ...]:
        return (self.input,)

    def with_inputs(self, inputs: tuple[LogicalPlan, ...]) -> Self:
        return replace(self, input=inputs[0])


@dataclass(frozen=True, slots=True)
class Filter(_Unary):
    """The rows for which `predicate` is true (not NULL)."""

    predicate: Expression

    @property
    def summary(self) -> str:
        return f"Filter {self.predicate.describe(self.input.schema.names)}"


@dataclass(frozen=True, slots=True)
class Project(_Unary):
    """One output column per expression, named by `names`; `concealed` are the positions of hidden ones."""

    expressions: tuple[Expression, ...]
    names: tuple[str, ...]
    concealed: frozenset[int] = dataclass_field(default_factory=frozenset)

    @property
    def schema(self) -> Schema:
        pairs = zip(self.names, self.expressions, strict=True)
        return Schema(tuple(Field(name, expression.data_type) for name, expression in pairs))

    @property
    def hidden(self) -> frozenset[int]:
        return self.concealed

    @property
    def stream_key(self) -> tuple[int, ...] | None:
        key = self.input.stream_key
        passed = [part.index if isinstance(part, InputRef) else -1 for part in self.expressions]
        return None if key is None else positions_of(key, passed)

    @property
    def summary(self) -> str:
        names = self.input.schema.names
        parts = []
        for position, (name, expression) in enumerate(zip(self.names, self.expressions, strict=True)):
            text = expression.describe(names)
            text = text if text == name else f"{text} AS {name}"
            parts.append(f"{text} (hidden)" if position in self.concealed else text)
        return f"Project {', '.join(parts)}"


@dataclass(frozen=True, slots=True)
class Aggregate(_Unary):
    """One row per group: the input columns `group_by` (hidden or not, visible in the output), then one column per call.

    Without groups it is one row, even for an empty input. Without calls it is DISTINCT. `names` name the calls'
    columns.
    """

    group_by: tuple[int, ...]
    calls: tuple[AggCall, ...]
    names: tuple[str, ...]

    @property
    def schema(self) -> Schema:
        fields = tuple(self.input.schema)
        groups = tuple(fields[index] for index in self.group_by)
        pairs = zip(self.names, self.calls, strict=True)
        return Schema(groups + tuple(Field(name, call.data_type) for name, call in pairs))

    @property
    def hidden(self) -> frozenset[int]:
        return frozenset()

    @property
    def stream_key(self) -> tuple[int, ...] | None:
        return tuple(range(len(self.group_by)))

    @property
    def is_append_only(self) -> bool:
        return False

    @property
    def summary(self) -> str:
        names = self.input.schema.names
        groups = ", ".join(names[index] for index in self.group_by)
        calls = ", ".join(call.describe(names) for call in self.calls)
        return f"Aggregate [{groups}] {calls}".rstrip()


@dataclass(frozen=True, slots=True)
class Sort(_Unary):
    """The input's rows in the order of `keys`; ties in any order; batch only."""

    keys: tuple[SortKey, ...]

    @property
    def summary(self) -> str:
        names = self.input.schema.names
        return "Sort " + ", ".join(f"{names[key.column]} {key.order}" for key in self.keys)


@dataclass(frozen=True, slots=True)
class Limit(_Unary):
    """At most `count` rows (None: all) after skipping `offset`; batch only."""

    count: int | None
    offset: int = 0

    @property
    def summary(self) -> str:
        return f"Limit {'all' if self.count is None else self.count} offset {self.offset}"


def table_schema(table: TableCatalog, columns: tuple[int, ...]) -> Schema:
    """The schema of selected columns of a table."""
    chosen = (table.columns[index] for index in columns)
    return Schema(tuple(Field(column.name, column.data_type) for column in chosen))


def hidden_columns(table: TableCatalog, columns: tuple[int, ...]) -> frozenset[int]:
    """Positions within `columns` of the table's hidden columns."""
    return frozenset(position for position, index in enumerate(columns) if table.columns[index].is_hidden)


def positions_of(key: tuple[int, ...], columns: tuple[int, ...] | list[int]) -> tuple[int, ...] | None:
    """The position of each column of `key` in `columns`; None if one is missing."""
    positions = {index: position for position, index in reversed(list(enumerate(columns)))}
    return tuple(positions[index] for index in key) if all(index in positions for index in key) else None
