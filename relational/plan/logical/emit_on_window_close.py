"""EmitOnWindowClose: the rows of a view that are final."""

from __future__ import annotations

from dataclasses import dataclass, replace

from relational.expr.expression import Expression
from relational.plan.logical.node import AddKeys, LogicalPlan, Positions, Properties, Prune, Push, UnaryPlan


@dataclass(frozen=True, slots=True)
class EmitOnWindowClose(UnaryPlan):
    """The rows of `input`, each as it is when the watermark of `column` has passed its value: nothing changes it
    later."""

    column: int

    def _derived(self) -> Properties:
        return replace(self.input.properties, is_append_only=True, watermarks=frozenset((self.column,)))

    @property
    def evaluated(self) -> tuple[Expression, ...]:
        return ()

    @property
    def summary(self) -> str:
        return f"EmitOnWindowClose watermark [{self.input.schema.names[self.column]}]"

    def pruned(self, wanted: frozenset[int], prune: Prune) -> tuple[LogicalPlan, Positions]:
        """The rows that wait are known by the key of the input."""
        child, positions = prune(self.input, wanted | {self.column} | frozenset(self.input.stream_key or ()))
        if child is self.input:
            return self, positions
        return EmitOnWindowClose(child, positions[self.column]), positions

    def filtered(self, terms: tuple[Expression, ...], push: Push) -> LogicalPlan:
        return self.over((push(self.input, terms),))

    def keyed(self, is_needed: bool, add: AddKeys) -> LogicalPlan:
        return self.over((add(self.input, True),))
