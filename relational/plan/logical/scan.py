"""Scan: the rows of a table."""

from __future__ import annotations

from dataclasses import dataclass, replace

from relational.catalog.objects import TableCatalog, TableKind
from relational.expr.expression import Expression
from relational.plan.logical.filter import where
from relational.plan.logical.node import (
    NONE,
    AddKeys,
    Leaf,
    LogicalPlan,
    Positions,
    Properties,
    Prune,
    Push,
    positions_of,
    renumbered,
    unchanged,
)
from relational.types.schema import Field, Schema


@dataclass(frozen=True, slots=True)
class Scan(Leaf):
    """Selected columns of a table, in the order of `columns` (default: all); at `epoch`, None: at that of the query.
    One with spill bits is the end of a millisecond, for the last committed epoch up to it."""

    table: TableCatalog
    columns: tuple[int, ...] = None  # type: ignore[assignment]  # filled in below
    epoch: int | None = None

    def __post_init__(self) -> None:
        if self.columns is None:
            object.__setattr__(self, "columns", tuple(range(len(self.table.columns))))
        LogicalPlan.__post_init__(self)

    def _derived(self) -> Properties:
        table = self.table
        key = positions_of(_stream_key(table), self.columns)
        stored = key if table.kind is TableKind.SOURCE else positions_of(table.pk_indices, self.columns)
        return Properties(
            schema=table_schema(table, self.columns),
            hidden=hidden_columns(table, self.columns),
            stream_key=key,
            is_append_only=table.is_append_only,
            unique_keys=() if stored is None else (frozenset(stored),),
            watermarks=_marked(table, self.columns) if table.watermarks else NONE,
            not_null=_without_null(table, self.columns),
        )

    @property
    def summary(self) -> str:
        names = self.schema.names
        marked = ", ".join(names[column] for column in sorted(self.watermarks))
        at = "" if self.epoch is None else f" at epoch {self.epoch}"
        return f"Scan {self.table.name}{at} ({', '.join(names)}){f' watermark [{marked}]' if marked else ''}"

    def pruned(self, wanted: frozenset[int], prune: Prune) -> tuple[LogicalPlan, Positions]:
        if self.table.kind is TableKind.SOURCE:
            wanted |= self.watermarks  # whether a row is late does not depend on what the query needs
        kept = sorted(wanted) or [self._key_column()]  # rows without any column could not be counted
        if len(kept) == len(self.columns):
            return self, unchanged(len(kept))
        return replace(self, columns=tuple(self.columns[position] for position in kept)), renumbered(kept)

    def _key_column(self) -> int:
        """The position of one of the key columns, which cannot be dropped from the table; else of the first column."""
        keys = (position for position, column in enumerate(self.columns) if column in self.table.stream_key)
        return next(keys, 0)

    def filtered(self, terms: tuple[Expression, ...], push: Push) -> LogicalPlan:
        return where(self, terms)

    def keyed(self, is_needed: bool, add: AddKeys) -> LogicalPlan:
        if not is_needed or self.stream_key is not None:
            return self
        lacking = tuple(index for index in _stream_key(self.table) if index not in self.columns)
        return replace(self, columns=self.columns + lacking)


def _stream_key(table: TableCatalog) -> tuple[int, ...]:
    """The columns by which changes of a table's rows are known: its stream key, and those by which the rows of an index
    are distributed. An update that moves a row to another actor is a deletion there and an insertion here, which may
    arrive in any order [R8]."""
    return tuple(dict.fromkeys((*table.stream_key, *table.distribution_key)))


def _marked(table: TableCatalog, columns: tuple[int, ...]) -> frozenset[int]:
    """Positions within `columns` of the table's columns with a watermark."""
    marked = table.watermark_columns
    return frozenset(position for position, index in enumerate(columns) if index in marked)


def _without_null(table: TableCatalog, columns: tuple[int, ...]) -> frozenset[int]:
    """Positions within `columns` of the primary key of a table, which refuses NULL [R55], or of its row id."""
    known = table.pk_indices if table.kind is TableKind.TABLE else ()
    if table.row_id_index is not None:
        known = (table.row_id_index,)
    return frozenset(position for position, index in enumerate(columns) if index in known)


def table_schema(table: TableCatalog, columns: tuple[int, ...]) -> Schema:
    """The schema of selected columns of a table."""
    chosen = (table.columns[index] for index in columns)
    return Schema(tuple(Field(column.name, column.data_type) for column in chosen))


def hidden_columns(table: TableCatalog, columns: tuple[int, ...]) -> frozenset[int]:
    """Positions within `columns` of the table's hidden columns."""
    return frozenset(position for position, index in enumerate(columns) if table.columns[index].is_hidden)
