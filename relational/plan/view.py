"""The catalog entries of views, materialized views, sinks and indexes: their columns and keys follow from a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from relational.catalog.objects import (
    DEFAULT_VNODE_COUNT,
    FORMAT_VERSION,
    SOURCE_VERSION,
    TABLE_VERSION,
    ColumnCatalog,
    TableCatalog,
    TableKind,
    value_columns,
)
from relational.errors import BindError
from relational.expr.expression import InputRef
from relational.expr.kernel_version import KERNEL_VERSION
from relational.plan.logical import Filter, Limit, LogicalPlan, Project, Scan, Sort, Values
from relational.plan.optimizer import SINK_RULES, VIEW_RULES, optimize
from relational.plan.rules.prune_columns import prune_columns
from relational.plan.serialize import plan_to_text, plan_with_table_ids
from relational.types.data_type import DataType
from relational.types.ordering import SortKey
from relational.types.vnode_rule import VnodeRule

SINK_STATE = (("inserted", DataType.BIGINT), ("deleted", DataType.BIGINT), ("digest", DataType.VARCHAR))
"""The columns of a sink: rows inserted and deleted so far, and of a digest sink their digest in hex."""
_BATCH_ONLY = {Sort: "ORDER BY", Limit: "LIMIT", Values: "a SELECT without FROM"}


def view_of(
    name: str, query: LogicalPlan, definition: str, views: Iterable[int] = ()
) -> tuple[TableCatalog, LogicalPlan]:
    """The catalog draft (id 0) of a materialized view of `query`, and the query as its job executes it, optimized and
    with its key. `views` are the ids of the views inlined in the query.

    BindError for a query that cannot be materialized: with an order or a limit, or with two columns of the same name.
    """
    _check_streamed("a materialized view", query)
    _check_names(f"materialized view {name!r}", query)
    plan = optimize(query, VIEW_RULES)
    key = plan.stream_key
    assert key is not None, plan.explain()
    pk = tuple(SortKey(column) for column in key)
    return _draft(name, TableKind.MATERIALIZED_VIEW, plan, pk, key, definition, views), plan


def sink_of(
    name: str, query: LogicalPlan, options: Mapping[str, str], definition: str, views: Iterable[int] = ()
) -> tuple[TableCatalog, LogicalPlan]:
    """The catalog draft (id 0) of a sink with the connector `options`, and its query as its job executes it: the
    visible columns only, without a key unless the query is retracted by one. Its one row is the state of the delivery.
    BindError as `view_of`.
    """
    _check_streamed("a sink", query)
    _check_names(f"sink {name!r}", query)
    shown = [position for position in range(len(query.schema)) if position not in query.hidden]
    if len(shown) < len(query.schema):
        expressions = tuple(InputRef(position, query.schema.types[position]) for position in shown)
        query = Project(query, expressions, tuple(query.schema.names[position] for position in shown), frozenset())
    plan = optimize(query, SINK_RULES)
    draft = _draft(name, TableKind.SINK, plan, (), (), definition, views)
    columns = tuple(ColumnCatalog(*column) for column in ((n, at, kind) for at, (n, kind) in enumerate(SINK_STATE)))
    sink = replace(draft, columns=columns, stream_key=(), value_indices=value_columns(columns, ()),
                   is_append_only=False, sink=dict(options), version=SOURCE_VERSION)
    return sink, plan


def _check_streamed(what: str, query: LogicalPlan) -> None:
    """BindError if only a batch query can be `query`."""
    for node in nodes(query):
        if type(node) in _BATCH_ONLY:
            raise BindError(f"{_BATCH_ONLY[type(node)]} is not supported in {what}")


def plain_view_of(name: str, query: LogicalPlan, definition: str, views: Iterable[int] = ()) -> TableCatalog:
    """The catalog draft (id 0) of a view, which is a named query: its columns are those of the query now, whatever
    columns its tables get later. BindError for two columns of the same name.
    """
    _check_names(f"view {name!r}", query)
    return _draft(name, TableKind.VIEW, optimize(query, (prune_columns,)), (), (), definition, views)


def index_of(
    name: str, table: TableCatalog, keys: Sequence[SortKey], include: Sequence[int], definition: str
) -> tuple[TableCatalog, LogicalPlan]:
    """The catalog draft (id 0) of an index, which stores the columns `keys` of a table, its stream key and the columns
    `include`, in the order of `keys`; and the query that its job maintains. All indices refer to the table's columns.
    """
    columns = tuple(dict.fromkeys((*(key.column for key in keys), *table.stream_key, *include)))
    plan = Scan(table, columns)
    ordered = [SortKey(columns.index(key.column), key.order) for key in keys]
    behind = [SortKey(columns.index(column)) for column in table.stream_key]
    pk = (*ordered, *(key for key in behind if key.column not in {each.column for each in ordered}))
    distribution = tuple(dict.fromkeys(key.column for key in ordered))
    return _draft(name, TableKind.INDEX, plan, pk, distribution, definition, ()), plan


def renewed_view(view: TableCatalog, ids: Mapping[int, int]) -> TableCatalog:
    """The same view or index under another id, over other tables with the same columns: `ids` maps each old id to the
    new one, its own among them. It keeps the types that its query was bound to; the current kernels compute its rows.
    """
    return replace(
        view,
        id=ids[view.id],
        plan=plan_with_table_ids(view.plan, ids),
        dependencies=tuple(sorted(ids.get(each, each) for each in view.dependencies)),
        reads=None
        if view.reads is None
        else tuple(sorted((ids.get(table, table), column) for table, column in view.reads)),
        kernel_version=KERNEL_VERSION if view.kind.is_job else 0,
    )


def _draft(
    name: str,
    kind: TableKind,
    plan: LogicalPlan,
    pk: tuple[SortKey, ...],
    distribution_key: tuple[int, ...],
    definition: str,
    views: Iterable[int],
) -> TableCatalog:
    columns = tuple(
        ColumnCatalog(field.name, position, field.data_type, position in plan.hidden)
        for position, field in enumerate(plan.schema)
    )
    scans = [node for node in nodes(plan) if isinstance(node, Scan)]
    rule = _vnode_rule(plan, distribution_key) if kind.is_job else VnodeRule.HASH
    reads = {(scan.table.id, scan.table.columns[position].column_id) for scan in scans for position in scan.columns}
    return TableCatalog(
        id=0,
        name=name,
        kind=kind,
        columns=columns,
        pk=pk,
        stream_key=plan.stream_key or (),
        distribution_key=distribution_key,
        value_indices=value_columns(columns, pk) if kind.is_job else (),
        is_append_only=kind.is_job and plan.is_append_only,
        definition=definition,
        plan=plan_to_text(plan),
        dependencies=tuple(sorted({scan.table.id for scan in scans} | set(views))),
        reads=tuple(sorted(reads)),
        kernel_version=KERNEL_VERSION if kind.is_job else 0,
        vnode_rule=rule,
        version=TABLE_VERSION if rule is VnodeRule.HASH else FORMAT_VERSION,
    )


def _vnode_rule(plan: LogicalPlan, distribution_key: tuple[int, ...]) -> VnodeRule:
    """The rule for rows of `plan` that are distributed by a generated id: that of the table which has it, so that rows
    keep their vnodes, or that of ids which the job generates itself, for a source. Else the hash.
    """
    if len(distribution_key) != 1:
        return VnodeRule.HASH
    (column,) = distribution_key
    while isinstance(plan, (Filter, Project)):
        if isinstance(plan, Project):
            passed = plan.expressions[column]
            if not isinstance(passed, InputRef):
                return VnodeRule.HASH
            column = passed.index
        plan = plan.input
    if not isinstance(plan, Scan) or plan.table.distribution_key != (plan.columns[column],):
        return VnodeRule.HASH
    return VnodeRule.of_row_ids(DEFAULT_VNODE_COUNT) if plan.table.kind is TableKind.SOURCE else plan.table.vnode_rule


def _check_names(what: str, query: LogicalPlan) -> None:
    """BindError if two visible columns have the same name."""
    names = [name for position, name in enumerate(query.schema.names) if position not in query.hidden]
    twice = next((each for each in names if names.count(each) > 1), None)
    if twice is not None:
        raise BindError(f"column {twice!r} appears twice in {what}: give it an alias")


def nodes(plan: LogicalPlan) -> Iterator[LogicalPlan]:
    """The node and all its descendants, in pre-order."""
    yield plan
    for child in plan.inputs:
        yield from nodes(child)
