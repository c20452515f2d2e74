"""Rewrites a plan from the root down, where each node passes a demand to its inputs and a shared input has several.

A Share must be rewritten once, for what all of its readers want. So a plan with Shares is passed twice: first to
collect the demands of each Share, from the highest number down, since a shared input reads lower ones only; then to
rewrite.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from relational.plan.logical import LogicalPlan, Recursive, Share, WorkingTable, nodes
from relational.plan.logical.node import UnaryPlan

Demand = TypeVar("Demand")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Descent(Generic[Demand, Result]):
    """One rewrite. `visit` calls the method of the node, with the continuation for its inputs. `merge` is the demand on
    a Share whose readers have these demands. `adapt` is the result for one reader, given that of the rewritten Share,
    the reader's demand and the merged one. `keep` is the result for a reader of an unchanged Share.
    """

    visit: Callable[[LogicalPlan, Demand, Callable[[LogicalPlan, Demand], Result]], Result]
    merge: Callable[[list[Demand]], Demand]
    adapt: Callable[[Result, Demand, Demand], Result]
    keep: Callable[[LogicalPlan, Demand], Result]

    def run(self, plan: LogicalPlan, demand: Demand) -> Result:
        """The result for the whole plan."""
        merged = self._demands(plan, demand) if plan.properties.shares else {}
        results: dict[int, Result] = {}

        def rewrite(node: LogicalPlan, demand: Demand) -> Result:
            number = node.share_number
            if number is None:
                return self.visit(node, demand, rewrite)
            return self.adapt(results[number], demand, merged[number][1])

        for number in sorted(merged):
            share, all_demands = merged[number]
            results[number] = self.visit(share, all_demands, rewrite)
        return rewrite(plan, demand)

    def _demands(self, plan: LogicalPlan, demand: Demand) -> dict[int, tuple[LogicalPlan, Demand]]:
        """By number each Share and the merged demand of its readers."""
        read: defaultdict[int, list[Demand]] = defaultdict(list)

        def collect(node: LogicalPlan, demand: Demand) -> Result:
            if node.share_number is None:
                return self.visit(node, demand, collect)
            read[node.share_number].append(demand)
            return self.keep(node, demand)

        collect(plan, demand)
        shares = {node.share_number: node for node in nodes(plan) if node.share_number is not None}
        found = {}
        for number in sorted(shares, reverse=True):
            found[number] = shares[number], self.merge(read[number])
            self.visit(*found[number], collect)
        return found


def transformed(
    plan: LogicalPlan,
    change: Callable[[LogicalPlan], LogicalPlan],
    renumber: Callable[[int], int] = lambda number: number,
) -> LogicalPlan:
    """The plan with `change` applied to every node, inputs first; to a shared one once. `renumber`: the new number of a
    Share, ascending in the old one."""
    done: dict[int, LogicalPlan] = {}

    def visit(node: LogicalPlan) -> LogicalPlan:
        if isinstance(node, Share):
            if node.number not in done:
                child, number = visit(node.input), renumber(node.number)
                is_same = child is node.input and number == node.number
                done[node.number] = change(node if is_same else Share(child, number))
            return done[node.number]
        if isinstance(node, UnaryPlan):
            child = visit(node.input)
            return change(node if child is node.input else node.with_inputs((child,)))
        return change(node.over(tuple(map(visit, node.inputs))) if node.inputs else node)

    return visit(plan)


def with_shares_from(plan: LogicalPlan, first: int) -> LogicalPlan:
    """The plan with the numbers of its Shares raised by `first`, to stand beside plans with lower numbers."""
    if not first or not plan.properties.shares:
        return plan
    return transformed(plan, lambda node: node, lambda number: number + first)


def with_recursions_from(plan: LogicalPlan, first: int) -> LogicalPlan:
    """The plan with the numbers of its recursions raised by `first`, to stand within others with lower numbers."""
    if not first or not recursions_of(plan):
        return plan

    def renumbered(node: LogicalPlan) -> LogicalPlan:
        return replace(node, number=node.number + first) if isinstance(node, Recursive | WorkingTable) else node

    return transformed(plan, renumbered)


def recursions_of(plan: LogicalPlan) -> list[int]:
    """The numbers of the recursions in a plan."""
    return [node.number for node in nodes(plan) if isinstance(node, Recursive)]
