"""The catalog entries of views, materialized views, sinks and indexes: their columns and keys follow from a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from relational.catalog.objects import (
    JOB_VERSION,
    TABLE_CONNECTOR,
    TABLE_VERSION,
    WATERMARK_VERSION,
    ColumnCatalog,
    SinkOrder,
    SinkTable,
    TableCatalog,
    TableKind,
    value_columns,
)
from relational.catalog.snapshot import CatalogSnapshot
from relational.catalog.watermarks import WatermarkCatalog
from relational.errors import BindError
from relational.expr.aggregates import AggCall, AggKind
from relational.expr.expression import Expression, InputRef
from relational.expr.kernel_version import KERNEL_VERSION
from relational.expr.temporal_terms import depends_on_time, temporal_term, temporal_terms
from relational.expr.user_call import functions_of
from relational.plan.agg_phases import with_phases
from relational.plan.changes import assigned, column_of
from relational.plan.delta_join import Indexes, with_delta_joins
from relational.plan.logical import (
    AggPhases,
    Aggregate,
    ColumnValues,
    ExternalScan,
    Filter,
    Join,
    LogicalPlan,
    Project,
    Recursive,
    Scan,
    Values,
    nodes,
    only,
)
from relational.plan.optimizer import (
    DELTA_VIEW_RULES,
    LAST_RULES,
    PLAIN_VIEW_RULES,
    SINK_RULES,
    VIEW_RULES,
    optimize,
)
from relational.plan.serialize import plan_to_text, plan_with_table_ids
from relational.plan.temporal_join import temporal_lookup
from relational.types.data_type import DataType
from relational.types.ordering import SortKey
from relational.types.vnode_rule import VnodeRule
from relational.types.vnodes import DEFAULT_VNODE_COUNT, MAX_VNODE_COUNT
from relational.udf.function import UserFunction, Volatility

SINK_STATE = (("inserted", DataType.BIGINT), ("deleted", DataType.BIGINT), ("digest", DataType.VARCHAR))
"""The columns of a sink: rows inserted and deleted so far, and of a digest sink their digest in hex."""
_BATCH_ONLY = {
    Recursive: "WITH RECURSIVE",
    Values: "a query without a table (VALUES, a function, a SELECT without FROM)",
    ColumnValues: "a list of values",
    ExternalScan: "a query of files, for which there is CREATE SOURCE, or of frames, for which there is create_table,",
}


def view_of(
    name: str,
    query: LogicalPlan,
    definition: str,
    views: Iterable[int] = (),
    vnode_count: int = DEFAULT_VNODE_COUNT,
    indexes: Indexes | None = None,
    phases: AggPhases = AggPhases.ADAPTIVE,
) -> tuple[TableCatalog, LogicalPlan]:
    """The catalog draft (id 0) of a materialized view of `query`, and the query as its job executes it, optimized and
    with its key. `views` are the ids of the views inlined in the query. `indexes`: joins keep no rows where they can
    read these or the tables; None: they keep them. `phases`: of its aggregations.

    BindError for a query that cannot be materialized: with numbers of all rows, over rows that expire [R31], or with
    two columns of the same name.
    """
    if type(vnode_count) is not int or not 1 <= vnode_count <= MAX_VNODE_COUNT:
        raise BindError(f"vnode_count is a whole number of 1 to {MAX_VNODE_COUNT}, not {vnode_count!r}")
    _check_names(f"materialized view {name!r}", query)
    rules = VIEW_RULES if indexes is None else DELTA_VIEW_RULES
    plan = with_phases(optimize(query, rules, LAST_RULES), phases)
    _check_streamed("a materialized view", plan)
    if indexes is not None:
        plan = with_delta_joins(plan, indexes)
    key = plan.stream_key
    assert key is not None, plan.explain()
    pk = tuple(SortKey(column) for column in key)
    draft = _draft(name, TableKind.MATERIALIZED_VIEW, plan, pk, key, definition, views, vnode_count)
    return draft, plan


def sink_of(
    name: str,
    query: LogicalPlan,
    options: Mapping[str, str],
    definition: str,
    views: Iterable[int] = (),
    phases: AggPhases = AggPhases.ADAPTIVE,
) -> tuple[TableCatalog, LogicalPlan]:
    """The catalog draft (id 0) of a sink with the connector `options`, and its query as its job executes it: the
    visible columns only, without a key unless the query is retracted by one. Its one row is the state of the delivery.
    BindError as `view_of`.
    """
    if options.get("connector") == TABLE_CONNECTOR:
        raise BindError("the changes of a query are written to a table by CREATE SINK … INTO")
    _check_names(f"sink {name!r}", query)
    plan = with_phases(optimize(only(query, query.visible), SINK_RULES, LAST_RULES), phases)
    _check_streamed("a sink", plan)
    draft = _draft(name, TableKind.SINK, plan, (), (), definition, views)
    columns = tuple(ColumnCatalog(*column) for column in ((n, at, kind) for at, (n, kind) in enumerate(SINK_STATE)))
    sink = replace(draft, columns=columns, stream_key=(), value_indices=value_columns(columns, ()),
                   is_append_only=False, sink=dict(options), watermarks=(), version=JOB_VERSION)
    return sink, plan


def sink_into(
    name: str,
    query: LogicalPlan,
    table: TableCatalog,
    columns: Sequence[int] | None,
    known: CatalogSnapshot,
    definition: str,
    views: Iterable[int] = (),
    phases: AggPhases = AggPhases.ADAPTIVE,
) -> tuple[TableCatalog, LogicalPlan]:
    """The catalog draft (id 0) of a sink of the changes of `query` into `table`, and its query as its job executes it,
    with the written columns of the table. `columns`: those that the visible columns of the query are written to, in
    order; None: those of the same names. BindError as `sink_of`, and for a query that does not fit the table.
    """
    shown = query.visible
    targets = [column_of(table, query.schema.names[at]) for at in shown] if columns is None else list(columns)
    if len(targets) != len(shown):
        raise BindError(f"the query has {len(shown)} columns for {len(targets)} columns of table {table.name!r}")
    _check_targets(table, targets)
    values = tuple(
        assigned(InputRef(at, query.schema.types[at]), table, column)
        for at, column in zip(shown, targets, strict=True)
    )
    names = tuple(table.columns[column].name for column in targets)
    draft, plan = sink_of(name, Project(query, values, names), {}, definition, views, phases)
    if not plan.is_append_only and (table.row_id_index is not None or table.is_append_only):
        reason = "has no primary key" if table.row_id_index is not None else "is append-only"
        raise BindError(f"table {table.name!r} {reason}: it takes a query whose rows are only inserted")
    key = {targets.index(column) for column in table.pk_indices if column in targets}
    is_by_key = plan.stream_key is not None and key.issuperset(plan.stream_key)
    order = SinkOrder.ARRIVAL if plan.is_append_only or is_by_key else SinkOrder.NETTED
    column_ids = tuple(table.column_ids[column] for column in targets)
    written = {(table.id, column_id) for column_id in column_ids}
    sink = replace(
        draft,
        sink=SinkTable(table.id, table.name, column_ids, order).to_options(),
        dependencies=tuple(sorted({*draft.dependencies, table.id})),
        reads=tuple(sorted({*(draft.reads or ()), *written})),
    )
    check_no_cycle(known, draft.dependencies, table)
    return sink, plan


def _check_targets(table: TableCatalog, targets: Sequence[int]) -> None:
    """BindError if rows with values in these columns alone cannot be stored in the table."""
    if table.row_id_index is None:
        missing = [table.columns[column].name for column in table.pk_indices if column not in targets]
        if missing:
            raise BindError(f"the sink gives no value for {missing[0]!r} of the primary key of table {table.name!r}")
    for at, column in enumerate(table.columns):
        if column.not_null and column.default is None and at not in targets:
            raise BindError(f"the sink gives no value for column {column.name!r}, which is NOT NULL")


def check_no_cycle(known: CatalogSnapshot, inputs: Iterable[int], table: TableCatalog) -> None:
    """BindError if changes of `table` reach one of the `inputs`, whose changes are to be written to it."""
    if table.id in known.upstream(inputs):
        raise BindError(f"the query reads table {table.name!r}, directly or through others, so it cannot write it")


def _check_streamed(what: str, query: LogicalPlan) -> None:
    """BindError if only a batch query can be `query`."""
    for node in nodes(query):
        if type(node) in _BATCH_ONLY:
            raise BindError(f"{_BATCH_ONLY[type(node)]} is not supported in {what}")
        if isinstance(node, Scan):
            _check_kept(what, node.table)
        if isinstance(node, Join) and node.is_temporal:
            temporal_lookup(node)
        for each in node.evaluated:
            check_immutable(what, functions_of(each))
        moving = temporal_terms(node.predicate) if isinstance(node, Filter) else node.evaluated
        for each in moving:
            _check_time(what, each, is_condition=isinstance(node, Filter))
        if isinstance(node, Aggregate):
            check_immutable(what, (call.function for call in node.calls if call.function is not None))
        if isinstance(node, Aggregate) and not node.input.is_append_only:
            _check_countable(what, node.calls)


def _check_time(what: str, expression: Expression, *, is_condition: bool) -> None:
    """BindError if now() is part of anything but a condition that each row enters or leaves once."""
    if depends_on_time(expression) and (not is_condition or temporal_term(expression) is None):
        reason = "is compared, in WHERE, with a value of one relation, and moved by days or less"
        raise BindError(f"now() in {what} {reason}: WHERE at > now() - INTERVAL '1 hour'")


def check_immutable(what: str, functions: Iterable[UserFunction]) -> None:
    """BindError for a function that may answer otherwise when a row is retracted than it did when it came [R6]."""
    for function in functions:
        if function.volatility is not Volatility.IMMUTABLE:
            raise BindError(f"function {function.name} in {what} is {function.volatility.upper()}: results that are "
                            "kept need a function that is declared IMMUTABLE, of which equal arguments have equal "
                            "results")


def _check_countable(what: str, calls: Sequence[AggCall]) -> None:
    """BindError for a sketch, which cannot forget a row."""
    if any(call.kind is AggKind.APPROX_COUNT_DISTINCT for call in calls):
        raise BindError(f"approx_count_distinct in {what} needs rows that are only appended: use count(DISTINCT …), "
                        "or a source or a table that is APPEND ONLY")


def check_followed(known: CatalogSnapshot, draft: TableCatalog) -> None:
    """BindError if rows of a table that a new job follows have begun to expire since it was bound."""
    for table_id in draft.inputs:
        _check_kept(draft.kind.one, known.get(table_id))


def _check_kept(what: str, table: TableCatalog) -> None:
    """BindError if rows of a table that `what` would follow change without its actor sending that: they expire, or they
    are the state of a sink.
    """
    if table.kind is TableKind.SINK:
        raise BindError(f"{table.name!r} is a sink, whose row is the state of its delivery: {what} cannot follow it")
    if table.ttl_ms:
        raise BindError(f"rows of table {table.name!r} expire by its ttl without a change that {what} could follow: "
                        "read it by queries or a view")


def plain_view_of(name: str, query: LogicalPlan, definition: str, views: Iterable[int] = ()) -> TableCatalog:
    """The catalog draft (id 0) of a view, which is a named query: its columns are those of the query now, whatever
    columns its tables get later. BindError for two columns of the same name.
    """
    _check_names(f"view {name!r}", query)
    if any(isinstance(node, ExternalScan) for node in nodes(query)):
        raise BindError(f"{_BATCH_ONLY[ExternalScan]} is not supported in a view")
    return _draft(name, TableKind.VIEW, optimize(query, PLAIN_VIEW_RULES), (), (), definition, views)


def index_of(
    name: str, table: TableCatalog, keys: Sequence[SortKey], include: Sequence[int], definition: str
) -> tuple[TableCatalog, LogicalPlan]:
    """The catalog draft (id 0) of an index, which stores the columns `keys` of a table, its stream key and the columns
    `include`, in the order of `keys`; and the query that its job maintains. All indices refer to the table's columns.
    """
    _check_kept("an index", table)
    columns = tuple(dict.fromkeys((*(key.column for key in keys), *table.stream_key, *include)))
    plan = Scan(table, columns)
    ordered = [SortKey(columns.index(key.column), key.order) for key in keys]
    behind = [SortKey(columns.index(column)) for column in table.stream_key]
    pk = (*ordered, *(key for key in behind if key.column not in {each.column for each in ordered}))
    distribution = tuple(dict.fromkeys(key.column for key in ordered))
    draft = _draft(name, TableKind.INDEX, plan, pk, distribution, definition, (), table.vnode_count)
    return draft, plan


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
        version=max(view.version, JOB_VERSION) if view.kind.is_job else view.version,
    )


def _draft(
    name: str,
    kind: TableKind,
    plan: LogicalPlan,
    pk: tuple[SortKey, ...],
    distribution_key: tuple[int, ...],
    definition: str,
    views: Iterable[int],
    vnode_count: int = DEFAULT_VNODE_COUNT,
) -> TableCatalog:
    columns = tuple(
        ColumnCatalog(field.name, position, field.data_type, position in plan.hidden)
        for position, field in enumerate(plan.schema)
    )
    scans = [node for node in nodes(plan) if isinstance(node, Scan)]
    rule = _vnode_rule(plan, distribution_key, vnode_count) if kind.is_job else VnodeRule.HASH
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
        vnode_count=vnode_count,
        vnode_rule=rule,
        version=(WATERMARK_VERSION if plan.watermarks else JOB_VERSION) if kind.is_job else TABLE_VERSION,
        watermarks=tuple(map(WatermarkCatalog, sorted(plan.watermarks))) if kind.is_job else (),
    )


def _vnode_rule(plan: LogicalPlan, distribution_key: tuple[int, ...], vnode_count: int) -> VnodeRule:
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
    return VnodeRule.of_row_ids(vnode_count) if plan.table.kind is TableKind.SOURCE else plan.table.vnode_rule


def _check_names(what: str, query: LogicalPlan) -> None:
    """BindError if two visible columns have the same name."""
    names = [query.schema.names[position] for position in query.visible]
    twice = next((each for each in names if names.count(each) > 1), None)
    if twice is not None:
        raise BindError(f"column {twice!r} appears twice in {what}: give it an alias")
