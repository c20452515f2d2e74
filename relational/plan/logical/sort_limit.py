"""Sort and Limit: the order of the rows, and how many of them; batch only."""

from __future__ import annotations

from dataclasses import dataclass

from relational.expr.expression import Expression
from relational.plan.logical.filter import where
from relational.plan.logical.node import NONE, AddKeys, LogicalPlan, Positions, Properties, Prune, Push, UnaryPlan
from relational.plan.tree_text import order_text
from relational.types.ordering import SortKey


@dataclass(frozen=True, slots=True)
class Sort(UnaryPlan):
    """The input's rows in the order of `keys`; ties in any order."""

    keys: tuple[SortKey, ...]

    def _derived(self) -> Properties:
        known = self.input.properties
        return known.but(order=self.keys)

    @property
    def evaluated(self) -> tuple[Expression, ...]:
        return ()

    @property
    def summary(self) -> str:
        names = self.input.schema.names
        return "Sort " + order_text(self.keys, names)

    def pruned(self, wanted: frozenset[int], prune: Prune) -> tuple[LogicalPlan, Positions]:
        child, positions = prune(self.input, wanted | {key.column for key in self.keys})
        if child is self.input:
            return self, positions
        return Sort(child, tuple(SortKey(positions[key.column], key.order) for key in self.keys)), positions

    def filtered(self, terms: tuple[Expression, ...], push: Push) -> LogicalPlan:
        return self.over((push(self.input, terms),))

    def keyed(self, is_needed: bool, add: AddKeys) -> LogicalPlan:
        return self.over((add(self.input, is_needed),))


@dataclass(frozen=True, slots=True)
class Limit(UnaryPlan):
    """At most `count` rows (None: all) after skipping `offset`."""

    count: int | None
    offset: int = 0

    def _derived(self) -> Properties:
        known = self.input.properties
        return known.but(unique_keys=(NONE,)) if self.count is not None and self.count <= 1 else known

    @property
    def evaluated(self) -> tuple[Expression, ...]:
        return ()

    @property
    def summary(self) -> str:
        return f"Limit {'all' if self.count is None else self.count} offset {self.offset}"

    def pruned(self, wanted: frozenset[int], prune: Prune) -> tuple[LogicalPlan, Positions]:
        child, positions = prune(self.input, wanted)
        return self.over((child,)), positions

    def filtered(self, terms: tuple[Expression, ...], push: Push) -> LogicalPlan:
        """Which rows it keeps depends on all of them: no term goes below."""
        return where(self.over((push(self.input, ()),)), terms)

    def keyed(self, is_needed: bool, add: AddKeys) -> LogicalPlan:
        return self.over((add(self.input, is_needed),))
