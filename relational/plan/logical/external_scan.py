"""ExternalScan: rows that are stored outside, such as in files; batch only."""

from __future__ import annotations

from dataclasses import dataclass, replace

from relational.expr.expression import Expression
from relational.plan.logical.filter import where
from relational.plan.logical.node import (
    AddKeys,
    Leaf,
    LogicalPlan,
    Positions,
    Properties,
    Prune,
    Push,
    renumbered,
    unchanged,
)
from relational.types.row_source import RowSource


@dataclass(frozen=True, slots=True)
class ExternalScan(Leaf):
    """Selected columns of `source`, in the order of `columns` (default: all)."""

    source: RowSource
    columns: tuple[int, ...] = None  # type: ignore[assignment]  # filled in below

    def __post_init__(self) -> None:
        if self.columns is None:
            object.__setattr__(self, "columns", tuple(range(len(self.source.schema))))
        LogicalPlan.__post_init__(self)

    def _derived(self) -> Properties:
        return Properties(self.source.schema.project(self.columns), is_append_only=True)

    @property
    def summary(self) -> str:
        return f"Read {self.source.name} ({', '.join(self.schema.names)})"

    def pruned(self, wanted: frozenset[int], prune: Prune) -> tuple[LogicalPlan, Positions]:
        kept = sorted(wanted) or [0]  # rows without any column could not be counted
        if len(kept) == len(self.columns):
            return self, unchanged(len(kept))
        return replace(self, columns=tuple(self.columns[position] for position in kept)), renumbered(kept)

    def filtered(self, terms: tuple[Expression, ...], push: Push) -> LogicalPlan:
        return where(self, terms)

    def keyed(self, is_needed: bool, add: AddKeys) -> LogicalPlan:
        return self
