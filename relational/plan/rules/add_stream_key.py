"""Adds the stream key: key columns that a projection drops are kept, hidden [R8].

The root of a plan needs its stream key, and so does the input of an aggregation that stores its rows. Hidden columns
are appended, so the indices of all others are unchanged. The key of a group is its group columns, which are always
present.
"""

from __future__ import annotations

from relational.expr.expression import InputRef
from relational.plan.logical import Aggregate, LogicalPlan, Project, Scan


def add_stream_key(plan: LogicalPlan) -> LogicalPlan:
    """The plan with a stream key at its root and wherever state must identify input rows."""
    if plan.stream_key is None:
        return _carrying_key(plan)
    return add_state_keys(plan)


def add_state_keys(plan: LogicalPlan) -> LogicalPlan:
    """`plan` with the stream keys that the aggregations in it need."""
    if isinstance(plan, Aggregate):
        holds_rows = any(call.keeps_inputs(plan.input.is_append_only) for call in plan.calls)
        return plan.with_inputs((add_stream_key(plan.input) if holds_rows else add_state_keys(plan.input),))
    return plan.with_inputs(tuple(map(add_state_keys, plan.inputs)))


def _carrying_key(plan: LogicalPlan) -> LogicalPlan:
    if isinstance(plan, Scan):
        lacking = tuple(index for index in plan.table.stream_key if index not in plan.columns)
        return Scan(plan.table, plan.columns + lacking)
    if not isinstance(plan, Project):
        return plan.with_inputs(tuple(map(add_stream_key, plan.inputs)))
    child = add_stream_key(plan.input)
    passed = {each.index for each in plan.expressions if isinstance(each, InputRef)}
    missing = [index for index in child.stream_key or () if index not in passed]
    names = list(plan.names)
    for index in missing:
        names.append(_hidden_name(child.schema.names[index], names))
    added = tuple(InputRef(index, child.schema.types[index]) for index in missing)
    first = len(plan.expressions)
    concealed = plan.concealed | set(range(first, first + len(added)))
    return Project(child, plan.expressions + added, tuple(names), concealed)


def _hidden_name(name: str, taken: list[str]) -> str:
    """A name with a leading underscore that no other column has."""
    name = name if name.startswith("_") else f"_{name}"
    while name in taken:
        name += "_"
    return name
