"""Filter: the rows of its input that satisfy a predicate."""

from __future__ import annotations

from dataclasses import dataclass

from relational.expr.expression import (
    Call,
    Expression,
    InputRef,
    Literal,
    conjunction,
    conjuncts,
    input_columns,
    remap,
)
from relational.plan.logical.node import AddKeys, LogicalPlan, Positions, Properties, Prune, Push, UnaryPlan


@dataclass(frozen=True, slots=True)
class Filter(UnaryPlan):
    """The rows for which `predicate` is true (not NULL)."""

    predicate: Expression

    def _derived(self) -> Properties:
        known = self.input.properties
        fixed = {column for column in map(_fixed_column, conjuncts(self.predicate)) if column is not None}
        return known.but(constants=known.constants | fixed) if fixed else known

    @property
    def evaluated(self) -> tuple[Expression, ...]:
        return (self.predicate,)

    @property
    def summary(self) -> str:
        return f"Filter {self.predicate.describe(self.input.schema.names)}"

    def pruned(self, wanted: frozenset[int], prune: Prune) -> tuple[LogicalPlan, Positions]:
        child, positions = prune(self.input, wanted | input_columns(self.predicate))
        if child is self.input:
            return self, positions
        return Filter(child, remap(self.predicate, positions)), positions

    def filtered(self, terms: tuple[Expression, ...], push: Push) -> LogicalPlan:
        """All terms together go on; the same filter again if none of them can."""
        pushed = push(self.input, conjuncts(self.predicate) + terms)
        is_same = isinstance(pushed, Filter) and pushed.input is self.input and pushed.predicate == self.predicate
        return self if is_same else pushed

    def keyed(self, is_needed: bool, add: AddKeys) -> LogicalPlan:
        return self.over((add(self.input, is_needed),))


def where(plan: LogicalPlan, terms: tuple[Expression, ...]) -> LogicalPlan:
    """The rows of `plan` for which all `terms` are true; `plan` itself without terms."""
    return Filter(plan, conjunction(terms)) if terms else plan


def _fixed_column(term: Expression) -> int | None:
    """The column of `column = constant` or `column IS NULL`, which has one value in all rows; None for other terms."""
    if not isinstance(term, Call):
        return None
    columns = [part.index for part in term.args if isinstance(part, InputRef)]
    if term.function == "is_null" and columns:
        return columns[0]
    is_fixed = term.function in ("equal", "is_not_distinct") and any(isinstance(part, Literal) for part in term.args)
    return columns[0] if is_fixed and columns else None
