"""Rows that equal the extreme of their own group, as the first ones of the group with all ties [R47].

    Join of L and Aggregate [g] max(x) over L on L.g = g AND L.x = max       TopN of L, rank 1 by x descending of [g]

Both inputs of the join have the same rows, so a row meets the one group that it is in. `x >= max` says the same as
`x = max`. Rows without a group or a value, which equal nothing, are filtered. Values of types whose equal values can
differ, or which equal nothing, are left to the join.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relational.expr.aggregates import AggKind
from relational.expr.bind import call
from relational.expr.expression import (
    Call,
    Expression,
    InputRef,
    conjuncts,
    input_columns,
    input_refs,
    substitute,
)
from relational.expr.window_functions import RankKind
from relational.plan.descent import transformed
from relational.plan.logical import Aggregate, Filter, Join, JoinKind, LogicalPlan, Project, Share, TopN
from relational.plan.logical.equalities import key_columns
from relational.plan.logical.filter import where
from relational.plan.logical.project import over_base
from relational.types.data_type import TypeKind
from relational.types.ordering import ASCENDING, DESCENDING, SortKey

REACHES = {AggKind.MAX: ("greater_equal", "less_equal"), AggKind.MIN: ("less_equal", "greater_equal")}
"""The comparisons of a row's value with its extreme, and of its extreme with the value, that only equal ones fulfil."""
_INEXACT = {TypeKind.REAL, TypeKind.DOUBLE, TypeKind.INTERVAL, TypeKind.JSONB, TypeKind.LIST, TypeKind.STRUCT}


def own_extremes(plan: LogicalPlan) -> LogicalPlan:
    """The plan without joins of rows with the extremes of their own groups."""
    return transformed(plan, lambda node: _changed(node) if isinstance(node, Join) else node)


@dataclass(frozen=True, slots=True)
class Extremes:
    """The rows of an aggregation with one call `kind`. `groups` and `value`: of its input, over the columns of `base`.
    `columns`: for each column of the rows the number of its group, -1: the extreme."""

    base: LogicalPlan
    groups: tuple[Expression, ...]
    value: Expression
    kind: AggKind
    columns: tuple[int, ...]


def _changed(plan: Join) -> LogicalPlan:
    if plan.kind is not JoinKind.INNER or plan.is_temporal:
        return plan
    for side in (1, 0):
        extremes = extremes_of(plan.inputs[side])
        if extremes is not None:
            made = _first_ones(plan, extremes, side)
            if made is not None:
                return made
    return plan


def _first_ones(plan: Join, extremes: Extremes, side: int) -> LogicalPlan | None:
    """The rows of the other input that are extremes of their groups, with the columns of both. None if the condition
    says anything else, or if the other input has other rows."""
    rows = plan.inputs[1 - side]
    base, shown = over_base(rows)
    if not alike(base, extremes.base):
        return None
    first, shift = (0, len(rows.schema)) if side == 1 else (len(plan.left.schema), 0)
    own = {first + at: each for at, each in enumerate(shown)}
    parts: dict[int, Expression] = {}  # by the number of the group, -1: the value; over the columns of the other input
    for term in plan.terms:
        found = _part(term, extremes, shift, own)
        if found is None:
            return None
        number, part, is_met = found
        if not is_met or number in parts:
            return None
        parts[number] = substitute(part, _moved(plan, first, rows))
    if len(parts) != len(extremes.groups) + 1:
        return None
    return first_rows(plan, extremes, rows, parts, side)


def _part(
    term: Expression, extremes: Extremes, shift: int, own: dict[int, Expression]
) -> tuple[int, Expression, bool] | None:
    """What a term compares: the number of a group, or -1, and an expression over the other input; and whether this is
    the group, or the value, of its row. None for other terms."""
    if not isinstance(term, Call) or len(term.args) != 2:
        return None
    for at, other in enumerate(term.args):
        part = term.args[1 - at]
        if not isinstance(other, InputRef) or other.index in own or not input_columns(part) <= own.keys():
            continue
        number = extremes.columns[other.index - shift]
        allowed = ("equal",) if number >= 0 else ("equal", REACHES[extremes.kind][1 - at])
        if term.function not in allowed:
            return None
        wanted = extremes.value if number < 0 else extremes.groups[number]
        columns = [own.get(column, InputRef(column, part.data_type)) for column in range(max(own) + 1)]
        return number, part, substitute(part, columns) == wanted
    return None


def _moved(plan: Join, first: int, rows: LogicalPlan) -> list[Expression]:
    """The columns of the join, those of `rows` as its own."""
    types = plan.left.schema.types + plan.right.schema.types
    width = len(rows.schema)
    return [InputRef(at - first if first <= at < first + width else at, each) for at, each in enumerate(types)]


def first_rows(
    plan: Join, extremes: Extremes, rows: LogicalPlan, parts: dict[int, Expression], side: int
) -> LogicalPlan:
    """The columns of the join for the first rows of each group. `parts`: the groups and, at -1, the value of a row."""
    order = range(-1, len(extremes.groups))
    known = where(rows, tuple(call("is_not_null", [parts[number]]) for number in order))
    positions, added = key_columns(rows.schema, list(dict.fromkeys(parts[number] for number in order)))
    at = dict(zip(dict.fromkeys(parts[number] for number in order), positions, strict=True))
    if added is not None:
        hidden = rows.hidden | set(range(len(rows.schema), len(added[0])))
        known = Project(known, added[1], added[0].names, hidden)
    key = SortKey(at[parts[-1]], DESCENDING if extremes.kind is AggKind.MAX else ASCENDING)
    groups = tuple(dict.fromkeys(at[parts[number]] for number in order if number >= 0))
    top = TopN(known, groups, (key,), RankKind.RANK, 1)
    refs = input_refs(known.schema.types)
    own, theirs = refs[: len(rows.schema)], tuple(refs[at[parts[number]]] for number in extremes.columns)
    columns = (*own, *theirs) if side == 1 else (*theirs, *own)
    return Project(top, columns, plan.schema.names, plan.hidden)


def extremes_of(plan: LogicalPlan) -> Extremes | None:
    """None for any other plan, and for values that may be equal and differ."""
    plan, shown = over_base(plan)
    if not isinstance(plan, Aggregate) or len(plan.calls) != 1 or not all(isinstance(each, InputRef) for each in shown):
        return None
    (of_group,) = plan.calls
    if of_group.kind not in REACHES or of_group.filter is not None or of_group.argument is None:
        return None
    if of_group.data_type.kind in _INEXACT or not plan.group_by:
        return None
    base, below = over_base(plan.input)
    width = len(plan.group_by)
    groups = tuple(below[column] for column in plan.group_by)
    value = below[of_group.argument]
    if isinstance(base, Filter) and all(_drops_unknown(term, (*groups, value)) for term in conjuncts(base.predicate)):
        base = base.input
    numbers = tuple(each.index if each.index < width else -1 for each in shown if isinstance(each, InputRef))
    return Extremes(base, groups, value, of_group.kind, numbers)


def _drops_unknown(term: Expression, values: Sequence[Expression]) -> bool:
    """Whether a filter drops only rows of which one of the values is NULL."""
    if not isinstance(term, Call) or term.function != "is_not_null":
        return False
    return any(_is_null_with(value, term.args[0]) for value in values)


def _is_null_with(value: Expression, column: Expression) -> bool:
    """Whether a value is NULL where a column is."""
    is_strict = isinstance(value, Call) and value.function in ("add", "subtract", "date_bin")
    return value == column or (is_strict and any(_is_null_with(part, column) for part in value.children))


def alike(one: LogicalPlan, other: LogicalPlan) -> bool:
    """Whether two parts of a plan have the same rows because they are the same but for numbers of Shares."""
    compared: dict[tuple[int, int], bool] = {}  # Shares by their numbers: each pair once, whatever its readers

    def visit(one: LogicalPlan, other: LogicalPlan) -> bool:
        if one is other:
            return True
        if isinstance(one, Share) and isinstance(other, Share):
            pair = one.number, other.number
            if pair not in compared:
                compared[pair] = visit(one.input, other.input)
            return compared[pair]
        if type(one) is not type(other) or len(one.inputs) != len(other.inputs):
            return False
        if not all(map(visit, one.inputs, other.inputs)):
            return False
        return (one.with_inputs(other.inputs) if one.inputs else one) == other

    return visit(one, other)
