"""Aggregate: one row per group."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from relational.expr.aggregates import AggCall
from relational.expr.expression import Expression, input_columns, remap
from relational.plan.logical.filter import where
from relational.plan.logical.node import (
    AddKeys,
    LogicalPlan,
    Positions,
    Properties,
    Prune,
    Push,
    UnaryPlan,
    renumbered,
)
from relational.plan.tree_text import grouping_text
from relational.types.ordering import SortKey
from relational.types.schema import Field, Schema


class AggPhases(StrEnum):
    """Where the rows of a stream become groups, if rows change their actor for that and states of parts of them add up.
    """

    ADAPTIVE = "adaptive"
    """Partly before the exchange, as long as that makes a few groups of many rows."""
    ONE = "one"
    """Behind the exchange."""
    TWO = "two"
    """Before the exchange, and the groups of all senders behind it."""


@dataclass(frozen=True, slots=True)
class Aggregate(UnaryPlan):
    """One row per group: the input columns `group_by` (hidden or not, visible in the output), then one column per call.

    Without groups it is one row, even for an empty input. Without calls it is DISTINCT. `names` name the calls'
    columns. `phases`: of the job that keeps it.
    """

    group_by: tuple[int, ...]
    calls: tuple[AggCall, ...]
    names: tuple[str, ...]
    phases: AggPhases = AggPhases.ADAPTIVE

    def _derived(self) -> Properties:
        known = self.input.properties
        fields = known.schema.fields
        pairs = zip(self.names, self.calls, strict=True)
        groups = tuple(range(len(self.group_by)))
        return Properties(
            schema=Schema(
                (
                    *(fields[index] for index in self.group_by),
                    *(Field(name, call.data_type) for name, call in pairs),
                )
            ),
            stream_key=groups,
            is_append_only=known.is_append_only and bool(groups) and not self.calls,
            unique_keys=(frozenset(groups),),
            constants=frozenset(new for new, old in enumerate(self.group_by) if old in known.constants),
            shares=known.shares,
            watermarks=frozenset(new for new, old in enumerate(self.group_by) if old in known.watermarks),
            not_null=frozenset(new for new, old in enumerate(self.group_by) if old in known.not_null),
        )

    @property
    def evaluated(self) -> tuple[Expression, ...]:
        return tuple(call.filter for call in self.calls if call.filter is not None)

    @property
    def summary(self) -> str:
        names = self.input.schema.names
        closed = "" if self.closing_group is None else f" watermark [{names[self.group_by[self.closing_group]]}]"
        return f"Aggregate {grouping_text(self.group_by, self.calls, names)}{closed}"

    @property
    def closing_group(self) -> int | None:
        """The position of the group column below whose watermark no group changes again; None without one."""
        marked = self.input.watermarks
        return next((new for new, old in enumerate(self.group_by) if old in marked), None) if marked else None

    @property
    def keeps_inputs(self) -> bool:
        """Whether its state holds rows of the input, which must then have a stream key."""
        return any(call.keeps_inputs(self.input.is_append_only) for call in self.calls)

    def pruned(self, wanted: frozenset[int], prune: Prune) -> tuple[LogicalPlan, Positions]:
        """All groups are kept, since they are the key; unused calls are removed. The key of the input stays where its
        rows are kept."""
        groups = len(self.group_by)
        kept = [number for number in range(len(self.calls)) if groups + number in wanted]
        calls = [self.calls[number] for number in kept]
        needed = set(self.group_by)
        for call in calls:
            needed |= set(call.columns)
            needed |= frozenset() if call.filter is None else input_columns(call.filter)
            if call.keeps_inputs(self.input.is_append_only):
                needed |= set(self.input.stream_key or ())
        child, positions = prune(self.input, frozenset(needed))
        outputs = renumbered([*range(groups), *(groups + number for number in kept)])
        if child is self.input and len(kept) == len(self.calls):
            return self, outputs
        moved = tuple(_moved(call, positions) for call in calls)
        names = tuple(self.names[number] for number in kept)
        groups_below = tuple(positions[column] for column in self.group_by)
        return Aggregate(child, groups_below, moved, names, self.phases), outputs

    def filtered(self, terms: tuple[Expression, ...], push: Push) -> LogicalPlan:
        """Terms over groups alone go below."""
        groups = dict(enumerate(self.group_by))
        low = [bool(input_columns(term)) and input_columns(term) <= groups.keys() for term in terms]
        below = tuple(remap(term, groups) for term, is_low in zip(terms, low, strict=True) if is_low)
        above = tuple(term for term, is_low in zip(terms, low, strict=True) if not is_low)
        return where(self.over((push(self.input, below),)), above)

    def keyed(self, is_needed: bool, add: AddKeys) -> LogicalPlan:
        """The groups are the key. That of the input is needed where its rows are kept."""
        return self.over((add(self.input, self.keeps_inputs),))


def _moved(call: AggCall, positions: Positions) -> AggCall:
    return replace(
        call,
        argument=None if call.argument is None else positions[call.argument],
        filter=None if call.filter is None else remap(call.filter, positions),
        more=tuple(positions[column] for column in call.more),
        order=tuple(SortKey(positions[key.column], key.order) for key in call.order),
    )
