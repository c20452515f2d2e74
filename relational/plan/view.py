"""The table of a materialized view: its columns and keys follow from the plan of its query."""

from __future__ import annotations

from collections.abc import Iterator

from relational.catalog.objects import ColumnCatalog, TableCatalog, TableKind, value_columns
from relational.errors import BindError
from relational.plan.logical import Limit, LogicalPlan, Scan, Sort, Values
from relational.plan.optimizer import VIEW_RULES, optimize
from relational.plan.serialize import plan_to_text
from relational.types.ordering import SortKey

_BATCH_ONLY = {Sort: "ORDER BY", Limit: "LIMIT", Values: "a SELECT without FROM"}


def view_of(name: str, query: LogicalPlan, definition: str) -> tuple[TableCatalog, LogicalPlan]:
    """The catalog draft (id 0) of a view of `query`, and the query as its job runs it, optimized and
    with its key.

    BindError for a query that no view can keep: with an order or a limit, or with two columns of one name.
    """
    for node in nodes(query):
        if type(node) in _BATCH_ONLY:
            raise BindError(f"{_BATCH_ONLY[type(node)]} is not supported in a materialized view")
    names = [name for place, name in enumerate(query.schema.names) if place not in query.hidden]
    twice = next((each for each in names if names.count(each) > 1), None)
    if twice is not None:
        raise BindError(f"column {twice!r} appears twice in materialized view {name!r}: give it an alias")
    plan = optimize(query, VIEW_RULES)
    key = plan.stream_key
    assert key is not None, plan.explain()
    columns = tuple(
        ColumnCatalog(field.name, place, field.data_type, place in plan.hidden)
        for place, field in enumerate(plan.schema)
    )
    pk = tuple(SortKey(column) for column in key)
    draft = TableCatalog(
        id=0,
        name=name,
        kind=TableKind.MATERIALIZED_VIEW,
        columns=columns,
        pk=pk,
        stream_key=key,
        distribution_key=key,
        value_indices=value_columns(columns, pk),
        is_append_only=plan.is_append_only,
        definition=definition,
        plan=plan_to_text(plan),
        dependencies=tuple(sorted({scan.table.id for scan in nodes(plan) if isinstance(scan, Scan)})),
    )
    return draft, plan


def nodes(plan: LogicalPlan) -> Iterator[LogicalPlan]:
    """The node and everything below it, parents first."""
    yield plan
    for child in plan.inputs:
        yield from nodes(child)
