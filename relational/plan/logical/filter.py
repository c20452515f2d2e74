"""Filter: the rows of its input that satisfy a predicate."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
from relational.expr.temporal_terms import temporal_term, temporal_terms
from relational.plan.logical.node import AddKeys, LogicalPlan, Positions, Properties, Prune, Push, UnaryPlan


@dataclass(frozen=True, slots=True)
class Filter(UnaryPlan):
    """The rows for which `predicate` is true (not NULL). A temporal filter ends append-only and watermarks: rows leave,
    or enter late [R50]."""

    predicate: Expression

    def _derived(self) -> Properties:
        known = self.input.properties
        moving = [temporal_term(term) for term in temporal_terms(self.predicate)]
        if moving:
            is_kept = all(term is not None and not term.expires for term in moving)
            known = replace(known, is_append_only=known.is_append_only and is_kept, watermarks=frozenset())
        fixed = {column for column in map(_fixed_column, conjuncts(self.predicate)) if column is not None}
        return known.but(constants=known.constants | fixed) if fixed else known

    @property
    def has_state(self) -> bool:
        """Whether it is a temporal filter, which keeps rows until the time reaches them."""
        return bool(temporal_terms(self.predicate))

    @property
    def evaluated(self) -> tuple[Expression, ...]:
        return (self.predicate,)

    @property
    def summary(self) -> str:
        return f"Filter {self.predicate.describe(self.input.schema.names)}"

    def pruned(self, wanted: frozenset[int], prune: Prune) -> tuple[LogicalPlan, Positions]:
        key = frozenset(self.input.stream_key or ()) if self.has_state else frozenset()
        child, positions = prune(self.input, wanted | input_columns(self.predicate) | key)
        if child is self.input:
            return self, positions
        return Filter(child, remap(self.predicate, positions)), positions

    def filtered(self, terms: tuple[Expression, ...], push: Push) -> LogicalPlan:
        """All terms together go on, each once; the same filter again if none of them can."""
        own = conjuncts(self.predicate)
        pushed = push(self.input, own + tuple(term for term in terms if term not in own))
        is_same = isinstance(pushed, Filter) and pushed.input is self.input and pushed.predicate == self.predicate
        return self if is_same else pushed

    def keyed(self, is_needed: bool, add: AddKeys) -> LogicalPlan:
        return self.over((add(self.input, is_needed or self.has_state),))


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
