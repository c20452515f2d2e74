"""Values and ColumnValues: rows written in a statement; batch only."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from relational.expr.expression import Expression
from relational.plan.logical.filter import where
from relational.plan.logical.node import NONE, AddKeys, Leaf, LogicalPlan, Positions, Properties, Prune, Push, unchanged
from relational.types.schema import Schema


@dataclass(frozen=True, slots=True)
class WrittenRows(Leaf):
    """Rows of the types of `fields`. They keep all of their columns, and never need a key."""

    fields: Schema

    def pruned(self, wanted: frozenset[int], prune: Prune) -> tuple[LogicalPlan, Positions]:
        return self, unchanged(len(self.fields))

    def filtered(self, terms: tuple[Expression, ...], push: Push) -> LogicalPlan:
        return where(self, terms)

    def keyed(self, is_needed: bool, add: AddKeys) -> LogicalPlan:
        return self


@dataclass(frozen=True, slots=True)
class Values(WrittenRows):
    """Expressions without inputs."""

    rows: tuple[tuple[Expression, ...], ...]

    def _derived(self) -> Properties:
        is_single = len(self.rows) <= 1
        return Properties(
            self.fields,
            stream_key=() if is_single else None,
            is_append_only=True,
            unique_keys=(NONE,) if is_single else (),
        )

    @property
    def evaluated(self) -> tuple[Expression, ...]:
        return tuple(cell for row in self.rows for cell in row)

    @property
    def summary(self) -> str:
        return f"Values {len(self.rows)} rows ({', '.join(self.fields.names)})"


@dataclass(frozen=True, slots=True)
class ColumnValues(WrittenRows):
    """Literals: one Arrow array per field, of its type."""

    columns: tuple[pa.Array, ...]

    def _derived(self) -> Properties:
        return Properties(self.fields, is_append_only=True)

    @property
    def summary(self) -> str:
        return f"Values {len(self.columns[0])} rows ({', '.join(self.fields.names)})"
