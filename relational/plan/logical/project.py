"""Project: one output column per expression."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field

from relational.expr.expression import Expression, InputRef, Literal, input_columns, input_refs, remap, substitute
from relational.expr.monotone import monotone_column
from relational.plan.logical.filter import where
from relational.plan.logical.node import (
    NONE,
    AddKeys,
    LogicalPlan,
    Positions,
    Properties,
    Prune,
    Push,
    UnaryPlan,
    positions_of,
    renumbered,
)
from relational.plan.tree_text import select_items
from relational.types.ordering import SortKey
from relational.types.schema import Field, Schema

_NUMBER = re.compile(r"_[0-9]+\Z")


@dataclass(frozen=True, slots=True)
class Project(UnaryPlan):
    """One output column per expression, named by `names`; `concealed` are the positions of hidden ones."""

    expressions: tuple[Expression, ...]
    names: tuple[str, ...]
    concealed: frozenset[int] = dataclass_field(default_factory=frozenset)

    def _derived(self) -> Properties:
        known, expressions = self.input.properties, self.expressions
        assert len(self.names) == len(expressions), self.names
        passed = [part.index if isinstance(part, InputRef) else -1 for part in expressions]
        key = known.stream_key
        keys = [positions_of(tuple(key - known.constants), passed) for key in known.unique_keys]
        fixed = [
            position
            for position, part in enumerate(expressions)
            if isinstance(part, Literal) or passed[position] in known.constants
        ]
        return Properties(
            schema=Schema(map(Field, self.names, [each.data_type for each in expressions])),
            hidden=self.concealed,
            stream_key=None if key is None else positions_of(key, passed),
            is_append_only=known.is_append_only,
            unique_keys=tuple(frozenset(key) for key in keys if key is not None),
            constants=frozenset(fixed) if fixed else NONE,
            order=_order_of(known.order, passed) if known.order else (),
            shares=known.shares,
            watermarks=_watermarks(expressions, known.watermarks) if known.watermarks else NONE,
            not_null=frozenset(
                position
                for position, part in enumerate(expressions)
                if passed[position] in known.not_null or (isinstance(part, Literal) and part.value is not None)
            ),
        )

    @property
    def evaluated(self) -> tuple[Expression, ...]:
        return self.expressions

    @property
    def summary(self) -> str:
        items = select_items(self.expressions, self.input.schema.names, self.names)
        parts = [f"{text} (hidden)" if position in self.concealed else text for position, text in enumerate(items)]
        return f"Project {', '.join(parts)}"

    def pruned(self, wanted: frozenset[int], prune: Prune) -> tuple[LogicalPlan, Positions]:
        kept = sorted(wanted) or [0]
        expressions = [self.expressions[position] for position in kept]
        child, positions = prune(self.input, frozenset().union(*map(input_columns, expressions)))
        if child is self.input and len(kept) == len(self.expressions):
            return self, renumbered(kept)
        concealed = frozenset(new for new, old in enumerate(kept) if old in self.concealed)
        names = tuple(self.names[position] for position in kept)
        moved = tuple(remap(each, positions) for each in expressions)
        return Project(child, moved, names, concealed), renumbered(kept)

    def filtered(self, terms: tuple[Expression, ...], push: Push) -> LogicalPlan:
        """Terms over columns that are only passed on go below; a computed column stops its terms."""
        passed = {position for position, each in enumerate(self.expressions) if isinstance(each, InputRef)}
        low = [input_columns(term) <= passed for term in terms]
        below = tuple(substitute(term, self.expressions) for term, is_low in zip(terms, low, strict=True) if is_low)
        above = tuple(term for term, is_low in zip(terms, low, strict=True) if not is_low)
        return where(self.over((push(self.input, below),)), above)

    def keyed(self, is_needed: bool, add: AddKeys) -> LogicalPlan:
        child = add(self.input, is_needed)
        plan = self.over((child,))
        if not is_needed or plan.stream_key is not None or child.stream_key is None:
            return plan
        passed = {each.index for each in self.expressions if isinstance(each, InputRef)}
        missing = [index for index in child.stream_key if index not in passed]
        names = list(self.names)
        for index in missing:
            names.append(hidden_name(child.schema.names[index], names))
        added = tuple(InputRef(index, child.schema.types[index]) for index in missing)
        first = len(self.expressions)
        concealed = self.concealed | set(range(first, first + len(added)))
        return Project(child, self.expressions + added, tuple(names), concealed)


def hidden_name(name: str, taken: Sequence[str]) -> str:
    """A name with a leading underscore that no other column has, if necessary with a number behind it."""
    base = _NUMBER.sub("", name) if name.startswith("_") else f"_{name}"
    found, number = base, 1
    while found in taken:
        number += 1
        found = f"{base}_{number}"
    return found


def over_base(plan: LogicalPlan) -> tuple[LogicalPlan, Sequence[Expression]]:
    """The plan below all projections, and the columns of `plan` over its columns."""
    shown: Sequence[Expression] = input_refs(plan.schema.types)
    while isinstance(plan, Project):
        shown, plan = [substitute(each, plan.expressions) for each in shown], plan.input
    return plan, shown


def only(plan: LogicalPlan, columns: Sequence[int]) -> LogicalPlan:
    """The columns of `plan` at `columns`, under their names, hidden as they are; `plan` itself if these are all."""
    if list(columns) == list(range(len(plan.schema))):
        return plan
    fields = [plan.schema[column] for column in columns]
    expressions = tuple(InputRef(column, field.data_type) for column, field in zip(columns, fields, strict=True))
    hidden = frozenset(new for new, old in enumerate(columns) if old in plan.hidden)
    return Project(plan, expressions, tuple(field.name for field in fields), hidden)


def _watermarks(expressions: tuple[Expression, ...], marked: frozenset[int]) -> frozenset[int]:
    """The positions of expressions that do not decrease while a column with a watermark increases."""
    return frozenset(position for position, each in enumerate(expressions) if monotone_column(each) in marked)


def _order_of(order: tuple[SortKey, ...], passed: list[int]) -> tuple[SortKey, ...]:
    """The leading sort keys whose columns are passed on, at their new positions."""
    found = []
    for key in order:
        if key.column not in passed:
            break
        found.append(SortKey(passed.index(key.column), key.order))
    return tuple(found)
