"""Groups by the extreme of their own rows, as an aggregate.

    Aggregate [k, max] over OverWindow max(x) of [k]    Aggregate [k] max(x)

A group has all rows of the partition, of which the window function is the extreme: it needs not be computed for each
row, and a row that changes it changes one group, not all rows of the partition. Such are the ends of sessions. An
extreme of all rows stays: without rows it has no group, an aggregate would have one.
"""

from __future__ import annotations

from dataclasses import dataclass

from relational.expr.aggregates import AggCall, AggKind
from relational.expr.expression import Expression, InputRef, Literal, input_columns, input_refs, remap
from relational.expr.window_functions import WHOLE_PARTITION, WindowCall
from relational.plan.descent import transformed
from relational.plan.logical import Aggregate, LogicalPlan, OverWindow, Project
from relational.plan.logical.project import hidden_name, over_base


def group_extremes(plan: LogicalPlan) -> LogicalPlan:
    """The plan with aggregates instead of window functions that their groups are."""
    return transformed(plan, lambda node: _changed(node) if isinstance(node, Aggregate) else node)


@dataclass(frozen=True, slots=True)
class _Extreme:
    """The only call of `window` is the group at `position`, of which `columns` are those of the input of the
    aggregation, over the window's."""

    window: OverWindow
    position: int
    columns: tuple[Expression, ...]


def _changed(plan: Aggregate) -> LogicalPlan:
    found = _extreme(plan)
    if found is None:
        return plan
    window, at = found.window, found.position
    value = len(window.input.schema)
    kept = [each if value not in input_columns(each) else Literal(None, each.data_type) for each in found.columns]
    (call,) = window.calls
    assert call.argument is not None and isinstance(call.kind, AggKind)
    argument = InputRef(call.argument, window.input.schema.types[call.argument])
    names = (*plan.input.schema.names, hidden_name("_extreme", plan.input.schema.names))
    below = Project(window.input, (*kept, argument), names, plan.input.hidden | {len(kept)})
    groups = tuple(column for number, column in enumerate(plan.group_by) if number != at)
    extreme = AggCall(call.kind, len(kept), None, False, call.data_type)
    whole = Aggregate(below, groups, (*plan.calls, extreme), (*plan.names, names[-1]))
    refs = input_refs(whole.schema.types)
    group = remap(found.columns[plan.group_by[at]], {value: len(refs) - 1})
    values = (*refs[:at], group, *refs[at : len(refs) - 1])
    return Project(whole, values, plan.schema.names, plan.hidden)


def _extreme(plan: Aggregate) -> _Extreme | None:
    child, columns = over_base(plan.input)
    if not isinstance(child, OverWindow) or len(child.calls) != 1 or not _is_extreme(child.calls[0]):
        return None
    value = len(child.input.schema)
    groups = [columns[column] for column in plan.group_by]
    own = [number for number, each in enumerate(groups) if input_columns(each) == {value}]
    others = [each.index for number, each in enumerate(groups) if number not in own and isinstance(each, InputRef)]
    filters = (input_columns(call.filter) for call in plan.calls if call.filter is not None)
    used = {column for call in plan.calls for column in call.columns}.union(*filters)
    if len(own) != 1 or not others or len(others) != len(groups) - 1 or set(others) != set(child.groups):
        return None
    if any(value in input_columns(columns[column]) for column in used):
        return None
    return _Extreme(child, own[0], tuple(columns))


def _is_extreme(call: WindowCall) -> bool:
    is_whole = call.frame == WHOLE_PARTITION and call.filter is None
    return is_whole and call.kind in (AggKind.MIN, AggKind.MAX)
