"""Share: a subtree of a plan with several readers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from relational.expr.expression import Expression
from relational.plan.logical.node import AddKeys, LogicalPlan, Positions, Properties, Prune, Push, UnaryPlan, nodes


@dataclass(frozen=True, slots=True)
class Share(UnaryPlan):
    """The rows of `input`, which is evaluated once for all of its readers.

    Within one plan, Shares of the same `number` are the same object. A shared input contains Shares of lower numbers
    only. Rules rewrite a Share once, for the merged demands of its readers (`relational/plan/descent.py`): its methods
    below get what all of them together want.
    """

    number: int

    def _derived(self) -> Properties:
        known = self.input.properties
        assert all(number < self.number for number in known.shares), (self.number, known.shares)
        return known.but(shares=known.shares | {self.number})

    @property
    def share_number(self) -> int:
        return self.number

    @property
    def evaluated(self) -> tuple[Expression, ...]:
        return ()

    @property
    def summary(self) -> str:
        return f"Share {self.number}"

    def pruned(self, wanted: frozenset[int], prune: Prune) -> tuple[LogicalPlan, Positions]:
        child, positions = prune(self.input, wanted)
        return self.over((child,)), positions

    def filtered(self, terms: tuple[Expression, ...], push: Push) -> LogicalPlan:
        """The terms that every reader has go below."""
        return self.over((push(self.input, terms),))

    def keyed(self, is_needed: bool, add: AddKeys) -> LogicalPlan:
        return self.over((add(self.input, is_needed),))


def readers_of_shares(plan: LogicalPlan) -> Counter[int]:
    """How many nodes read each Share, by its number; the reader of `plan` itself is one."""
    readers = Counter(child.number for node in nodes(plan) for child in node.inputs if isinstance(child, Share))
    if isinstance(plan, Share):
        readers[plan.number] += 1
    return readers
