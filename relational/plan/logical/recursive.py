"""Recursive: the rows that a query gives again and again of its own rows; batch only.

The rows of `base` are the first working table. `step` reads the working table, and its rows are the next one, until it
has none. The result is the rows of all working tables.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from relational.expr.expression import Expression
from relational.plan.logical.filter import where
from relational.plan.logical.node import AddKeys, LogicalPlan, Positions, Properties, Prune, Push, unchanged
from relational.plan.logical.project import only
from relational.plan.logical.values import WrittenRows


@dataclass(frozen=True, slots=True)
class Recursive(LogicalPlan):
    """WITH RECURSIVE. `number`: of the WorkingTable in `step`, whose columns are those of `base`, as are those of
    `step`. `is_distinct`: UNION; a row that came before is in no working table again."""

    base: LogicalPlan
    step: LogicalPlan
    number: int
    is_distinct: bool

    def _derived(self) -> Properties:
        base, step = self.base.properties, self.step.properties
        assert base.schema.types == step.schema.types and not base.hidden | step.hidden, (base.schema, step.schema)
        unique = (frozenset(range(len(base.schema))),) if self.is_distinct else ()
        return Properties(base.schema, unique_keys=unique, shares=base.shares | step.shares)

    @property
    def inputs(self) -> tuple[LogicalPlan, ...]:
        return self.base, self.step

    def with_inputs(self, inputs: tuple[LogicalPlan, ...]) -> Recursive:
        base, step = inputs
        return replace(self, base=base, step=step)

    @property
    def evaluated(self) -> tuple[Expression, ...]:
        return ()

    @property
    def summary(self) -> str:
        return f"Recursive {self.number} {'UNION' if self.is_distinct else 'UNION ALL'}"

    def pruned(self, wanted: frozenset[int], prune: Prune) -> tuple[LogicalPlan, Positions]:
        """All columns are kept: the next rows follow from them."""
        every = range(len(self.schema))
        pruned = [prune(each, frozenset(every)) for each in self.inputs]
        return self.over(tuple(only(plan, [at[column] for column in every]) for plan, at in pruned)), unchanged(
            len(every)
        )

    def filtered(self, terms: tuple[Expression, ...], push: Push) -> LogicalPlan:
        """No term goes below: rows that it drops may lead to rows that it keeps."""
        return where(self.over(tuple(push(each, ()) for each in self.inputs)), terms)

    def keyed(self, is_needed: bool, add: AddKeys) -> LogicalPlan:
        return self


@dataclass(frozen=True, slots=True)
class WorkingTable(WrittenRows):
    """The last rows of the Recursive of this number around it."""

    number: int

    def _derived(self) -> Properties:
        return Properties(self.fields)

    @property
    def evaluated(self) -> tuple[Expression, ...]:
        return ()

    @property
    def summary(self) -> str:
        return f"WorkingTable {self.number} ({', '.join(self.fields.names)})"
