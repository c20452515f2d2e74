"""Planner: translates logical plans into stream plans.

An optimized logical plan is translated node by node; adjacent filters and projections are merged, each stateful node
gets the catalogs of its tables, and exchanges are inserted where the distribution of rows changes. The ids of state
tables are requested by name from a callback, in a fixed order: planning with the same ids gives the same plan again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from relational.agg.group_hashes import hash_key_for
from relational.agg.spec import adds_up
from relational.catalog.objects import ConflictBehaviour, TableCatalog, TableKind, offset_table_name
from relational.expr.aggregates import AggKind, KeptOrder, kept_orders
from relational.expr.comparisons import Comparison, comparisons_of
from relational.expr.distance_bounds import DistanceBounds
from relational.expr.expression import Expression, InputRef, conjunction, conjuncts, substitute
from relational.expr.temporal_terms import temporal_term, temporal_terms
from relational.expr.window_functions import RankKind
from relational.expr.window_reach import reach_within
from relational.plan.delta_join import delta_lookup
from relational.plan.logical import (
    AggPhases,
    Aggregate,
    EmitOnWindowClose,
    Expand,
    Filter,
    Join,
    JoinKind,
    LogicalPlan,
    OverWindow,
    Project,
    ProjectSet,
    Scan,
    Share,
    TopN,
    Union,
    nodes,
    positions_of,
    table_schema,
)
from relational.plan.logical.equalities import EVERY_PAIR, Equality, key_columns
from relational.plan.logical.over_window import OrderedGroups
from relational.plan.logical.project import over_base
from relational.plan.serialize import plan_from_text
from relational.plan.temporal_join import temporal_lookup
from relational.types import Schema
from relational.types.ordering import SortKey
from stream.errors import PlanNotSupported
from stream.plan import state_tables
from stream.plan.fragments import with_exchanges
from stream.plan.stream_plan import (
    DeltaJoinNode,
    DistinctArgument,
    DmlNode,
    DynamicFilterNode,
    EmitOnWindowCloseNode,
    ExchangeNode,
    ExpandNode,
    FilterNode,
    HashAggNode,
    HashJoinNode,
    JoinInterval,
    KeptInput,
    MaterializeNode,
    OrderedRows,
    OverWindowNode,
    PartialAggNode,
    ProjectNode,
    ProjectSetNode,
    RowIdGenNode,
    ShareNode,
    SinkNode,
    SourceNode,
    StoredInput,
    StreamNode,
    StreamPlan,
    StreamScanNode,
    TemporalJoinNode,
    TopNNode,
    UnionNode,
    ValueOverflow,
    WatermarkFilterNode,
)

TableIds: TypeAlias = Callable[[str], int]
"""Name of an internal table -> its id: allocated if the job is new, looked up if it is rebuilt. KeyError if a known job
has no such table."""


def plan_table(table: TableCatalog, table_ids: TableIds, *, is_consistent: bool = False) -> StreamPlan:
    """The job of a table: the source of its rows, generated keys, and the conflict rule. It has one actor [R21].

    `is_consistent`: its connector guarantees a legal change stream, so the table does not look rows up.
    """
    schema, key = table.schema, table.stream_key
    node: StreamNode
    errors: TableCatalog | None = None
    if table.connector is None:
        node = DmlNode(schema, key, table)
        if table.declared_watermark is not None:
            node = _watermark_filter(node, table, tuple(range(len(schema))), table, table_ids)
            errors = _known_error_table(table, table_ids)
    else:
        name = offset_table_name(table)
        offsets = state_tables.offset_table(table_ids(name), name, table.id)
        read = table.delivered_columns
        node = SourceNode(table_schema(table, read), positions_of(key, read), table, read, offsets)
        node = _watermark_filter(node, table, read, table, table_ids)
        errors = _known_error_table(table, table_ids)
    conflict: ConflictBehaviour | None = table.conflict
    if table.row_id_index is not None:
        node = RowIdGenNode(schema, key, node, table.row_id_index)
    if table.row_id_index is not None or is_consistent:
        conflict = None
    return StreamPlan(MaterializeNode(schema, key, node, table, conflict), errors, is_single=True)


def plan_query(job: TableCatalog, query: LogicalPlan, table_ids: TableIds) -> StreamPlan:
    """The job that keeps a view or index equal to `query`, which has its columns, or that delivers the changes of
    `query` to a sink. PlanNotSupported names a node that only a batch query can have."""
    planner = _Planner(job, table_ids)
    root = with_exchanges(planner.root(query))
    assert isinstance(root, MaterializeNode | SinkNode)
    errors = state_tables.error_table(table_ids(state_tables.error_table_name(job)), job)
    return StreamPlan(root, errors, is_single=isinstance(root, SinkNode) and not _has_exchange(root))


def plan_known(job: TableCatalog, table_of_id: Callable[[int], TableCatalog], table_ids: TableIds) -> StreamPlan:
    """The job of a view, index or sink, from the query in its catalog."""
    return plan_query(job, plan_from_text(job.plan, table_of_id), table_ids)


def plan_of_one_actor(job: TableCatalog, table_of_id: Callable[[int], TableCatalog], table_ids: TableIds) -> StreamPlan:
    """The job of a view, index or sink that was created when no plans were stored and each job had one actor, as it was
    planned then."""
    root = _Planner(job, table_ids, is_of_one_actor=True).root(plan_from_text(job.plan, table_of_id))
    return StreamPlan(root, _known_error_table(job, table_ids), is_single=True)


def _known_error_table(job: TableCatalog, table_ids: TableIds) -> TableCatalog | None:
    """The table of rows without a value of a job with one actor; None for one that was created without it."""
    try:
        return state_tables.error_table_of_one_actor(table_ids(state_tables.error_table_name(job)), job)
    except KeyError:
        return None


def _has_exchange(root: StreamNode) -> bool:
    return any(isinstance(node, ExchangeNode) for node in root.walk())


class _Planner:
    """Plans one job; numbers its operators with state and its scans from the root down. `is_of_one_actor`: as the
    first release did; then scans do not store how far they have read the existing rows, and states of groups keep no
    values."""

    def __init__(self, job: TableCatalog, table_ids: TableIds, *, is_of_one_actor: bool = False) -> None:
        self._job = job
        self._table_ids = table_ids
        self._is_of_one_actor = is_of_one_actor
        self._aggregations = self._joins = self._top_ns = self._over_windows = self._filters = self._closings = 0
        self._scans = 0
        self._shares: dict[int, ShareNode] = {}
        self._offsets: TableCatalog | None = None
        self._sources: list[TableCatalog] = []

    def root(self, query: LogicalPlan) -> MaterializeNode | SinkNode:
        """The whole job, without exchanges."""
        job = self._job
        scanned = {scan.table.id: scan.table for scan in nodes(query) if isinstance(scan, Scan)}
        self._sources = [table for table in scanned.values() if table.kind is TableKind.SOURCE]
        node = self.plan(query)
        if job.kind is TableKind.SINK:
            has_log = (job.sink or {}).get("connector") not in state_tables.SINKS_WITHOUT_LOG
            log = state_tables.sink_log_tables(self._table_ids, job) if has_log else None
            return SinkNode(job.schema, job.stream_key, node, job, log)
        if node.schema.types != job.schema.types:
            raise PlanNotSupported("Materialize", f"the query gives {node.schema}, the view holds {job.schema}")
        if node.stream_key is None:
            raise PlanNotSupported(node.identity, "its output lacks columns that identify a row")
        return MaterializeNode(job.schema, job.stream_key, node, job, None)

    def plan(self, query: LogicalPlan) -> StreamNode:
        if isinstance(query, Scan) and query.table.kind is TableKind.SOURCE:
            return self._source(query)
        if isinstance(query, Scan):
            return StreamScanNode(query.schema, query.stream_key, query.table, query.columns, self._progress())
        if isinstance(query, Union):
            return UnionNode(query.schema, query.stream_key, self._branches(query))
        if isinstance(query, Share):
            return self._share(query)
        if isinstance(query, Filter):
            return self._filter(query)
        if isinstance(query, Project):
            return self._project(query)
        if isinstance(query, Expand):
            return ExpandNode(query.schema, query.stream_key, self.plan(query.input), query.columns, query.sets)
        if isinstance(query, ProjectSet):
            child = self.plan(query.input)
            return ProjectSetNode(
                query.schema, query.stream_key, child, query.passed, query.functions, query.is_outer
            )
        if isinstance(query, Aggregate):
            return self._aggregate(query)
        if isinstance(query, Join):
            if query.is_delta:
                return self._delta_join(query)
            return self._temporal_join(query) if query.is_temporal else self._join(query)
        if isinstance(query, TopN):
            return self._top_n(query)
        if isinstance(query, EmitOnWindowClose):
            return self._emit_on_window_close(query)
        if isinstance(query, OverWindow):
            return self._over_window(query)
        raise PlanNotSupported(type(query).__name__, "only a batch query can have it")

    def _join(self, query: Join) -> StreamNode:
        """By the columns or expressions that must be equal; without any, by a constant in one actor."""
        pairs, rest = query.equalities
        vnode_count = self._job.vnode_count if pairs else None
        pairs = pairs or (EVERY_PAIR,)
        marked, distance = ((), None) if self._is_of_one_actor else query.marked_terms
        number = self._joins
        self._joins += 1
        sides = [[each.left for each in pairs], [each.right for each in pairs]]
        distinct = (None, None) if self._is_of_one_actor or distance is not None else _distinct_inputs(query, pairs)
        children = [self.plan(child) if values is None else self._distinct_input(child, values)
                    for child, values in zip(query.inputs, distinct, strict=True)]
        inputs, keys, tables = [], [], []
        for child, side, name in zip(children, sides, ("left", "right"), strict=True):
            key, added = key_columns(child.schema, side)
            node = child if added is None else ProjectNode(added[0], child.stream_key, child, added[1])
            if node.stream_key is None:
                raise PlanNotSupported("Join", f"its {name} input cannot tell its rows apart")
            table = f"{self._job.name}.join{number}.{name}"
            tables.append(
                state_tables.join_table(
                    self._table_ids(table), table, self._job.id, node.schema, key, node.stream_key, vnode_count,
                    marked[0] if marked else None,
                )
            )
            inputs.append(node)
            keys.append(key)
        left, right = (
            node if values is None or values.phases is AggPhases.ONE else _distinct_in_part(node, values, table)
            for node, values, table in zip(inputs, distinct, tables, strict=True)
        )
        is_distinct = distinct[0] is not None, distinct[1] is not None
        interval = None if distance is None else self._join_interval(
            f"join{number}", query.kind, distance, inputs, keys, tables, vnode_count)
        return HashJoinNode(
            query.schema,
            query.stream_key,
            left,
            right,
            query.kind,
            tuple(zip(*keys, strict=True)),
            tuple(each.is_null_safe for each in pairs),
            conjunction(rest) if rest else None,
            (len(query.left.schema), len(query.right.schema)),
            (query.left.is_append_only, query.right.is_append_only),
            _passing(query, is_distinct),
            (tables[0], tables[1]),
            marked,
            interval,
            is_distinct,
        )

    def _distinct_input(self, query: LogicalPlan, values: Aggregate) -> StreamNode:
        """An input of a join over the rows of which `values` are the distinct ones, in its columns."""
        child, (_, columns) = self.plan(values.input), over_base(query)
        groups = [InputRef(column, values.input.schema.types[column]) for column in values.group_by]
        expressions = tuple(substitute(each, groups) for each in columns)
        if not isinstance(child, ProjectNode):
            return ProjectNode(query.schema, query.stream_key, child, expressions)
        return replace(_projected(child, query.schema, query.stream_key, expressions), stream_key=query.stream_key)

    def _join_interval(
        self,
        join: str,
        kind: JoinKind,
        bounds: DistanceBounds,
        inputs: Sequence[StreamNode],
        keys: Sequence[tuple[int, ...]],
        tables: Sequence[TableCatalog],
        vnode_count: int | None,
    ) -> JoinInterval | None:
        """None if the rows of neither input go."""
        times: list[TableCatalog | None] = []
        columns = []
        goes = [each is not None for each in bounds.limits(0, 0, kind.counts_partners)]
        sides = zip(("left", "right"), (bounds.left, bounds.right), goes, inputs, keys, tables, strict=True)
        for side, column, is_limited, node, key, table in sides:
            columns.append(tuple(dict.fromkeys((column, *table.pk_indices))))
            name = f"{self._job.name}.{join}.{side}_times"
            times.append(state_tables.join_times_table(
                self._table_ids(name), name, self._job.id, node.schema, columns[-1], key, vnode_count
            ) if is_limited else None)
        return JoinInterval(bounds, (times[0], times[1]), (columns[0], columns[1])) if any(goes) else None

    def _temporal_join(self, query: Join) -> StreamNode:
        """The changes of the right table without its existing rows, which are looked up."""
        lookup, left = temporal_lookup(query), self.plan(query.left)
        key, added = key_columns(left.schema, lookup.keys)
        node = left if added is None else ProjectNode(added[0], left.stream_key, left, added[1])
        scan = lookup.scan
        right = _changes_of(scan)
        return TemporalJoinNode(
            query.schema,
            query.stream_key,
            node,
            right,
            query.kind,
            key,
            conjunction(lookup.rest) if lookup.rest else None,
            len(left.schema),
            scan.table,
            scan.columns,
            self._job.vnode_count,
        )

    def _delta_join(self, query: Join) -> StreamNode:
        """The rows of the right input that there are already are found by those of the left one."""
        lookup = delta_lookup(query)
        if lookup is None:
            raise PlanNotSupported("DeltaJoin", "its inputs are not stored by the join key")
        left, right = self.plan(lookup.scans[0]), _changes_of(lookup.scans[1])
        assert isinstance(left, StreamScanNode)
        stored = tuple(
            StoredInput(each.table, each.columns, prefix, progress)
            for each, prefix, progress in zip(lookup.scans, lookup.prefixes, (left.progress, None), strict=True)
        )
        condition = conjunction(lookup.rest) if lookup.rest else None
        return DeltaJoinNode(query.schema, query.stream_key, left, right, lookup.keys, condition,
                             (stored[0], stored[1]), self._job.vnode_count)

    def _grouped(self, query: OrderedGroups, operator: str) -> tuple[StreamNode, tuple[int, ...], tuple[int, ...]]:
        """The input of a node over ordered groups, its stream key, and the groups: without any a constant."""
        child = self.plan(query.input)
        key = child.stream_key
        if key is None:
            raise PlanNotSupported(operator, "its input cannot tell its rows apart")
        if query.groups:
            marked_first = sorted(query.groups, key=lambda column: column not in query.watermarks)
            return child, key, tuple(marked_first)  # state is dropped below the watermark of the first one
        groups, added = key_columns(child.schema, [EVERY_PAIR.left])
        assert added is not None
        return ProjectNode(added[0], key, child, added[1]), key, groups

    def _ordered_table(
        self,
        name: str,
        query: OrderedGroups,
        schema: Schema,
        groups: tuple[int, ...],
        keys: tuple[SortKey, ...],
        key: tuple[int, ...],
    ) -> TableCatalog:
        """Without groups in one actor."""
        name, vnode_count = f"{self._job.name}.{name}", self._job.vnode_count if query.groups else None
        return state_tables.ordered_table(
            self._table_ids(name), name, self._job.id, schema, groups, keys, key, vnode_count
        )

    def _over_window(self, query: OverWindow) -> StreamNode:
        child, key, groups = self._grouped(query, "OverWindow")
        reach = reach_within(query.calls, groups, query.keys)
        states = state_tables.window_states(query.calls, reach, child.schema.types)
        name = f"over{self._over_windows}"
        self._over_windows += 1
        schema = state_tables.with_states(child.schema, states)
        table = self._ordered_table(name, query, schema, groups, query.keys, key)
        width = len(query.input.schema)
        return OverWindowNode(query.schema, query.stream_key, child, groups, query.keys, query.calls, width,
                              query.input.is_append_only, table)

    def _top_n(self, query: TopN) -> StreamNode:
        child, key, groups = self._grouped(query, "TopN")
        name = f"top{self._top_ns}"
        self._top_ns += 1
        keys, last = query.keys, query.offset + query.limit
        if query.input.is_append_only:  # the table has windows alone, which are read whole
            keys = ()
            if query.kind is RankKind.ROW_NUMBER and last == 1:
                key = ()
        table = self._ordered_table(name, query, child.schema, groups, keys, key)
        return TopNNode(
            query.schema,
            query.stream_key,
            child,
            groups,
            query.keys,
            query.kind,
            query.offset,
            last,
            len(query.input.schema),
            query.name is not None,
            query.input.is_append_only,
            table,
        )

    def _branches(self, query: Union) -> tuple[StreamNode, ...]:
        """Those of a union, and instead of a branch that is a union its branches."""
        planned = [self.plan(branch) for branch in query.branches]
        return tuple(each for node in planned for each in (node.branches if isinstance(node, UnionNode) else (node,)))

    def _source(self, query: Scan) -> StreamNode:
        """The job's own reader of a source, and the row ids of a query that needs them [R32]. All sources of a job
        have their offsets in one table."""
        table, name = query.table, offset_table_name(self._job)
        if self._offsets is None:
            self._offsets = state_tables.offset_table(self._table_ids(name), name, self._job.id)
        read = tuple(column for column in query.columns if column != table.row_id_index)
        prefix = self._split_prefix(table)
        schema = table_schema(table, read)
        node: StreamNode = SourceNode(schema, None, table, read, self._offsets, split_prefix=prefix)
        node = _watermark_filter(node, table, read, self._job, self._table_ids, prefix)
        if len(read) < len(query.columns):
            row_id = query.columns.index(table.row_id_index)
            node = RowIdGenNode(query.schema, query.stream_key, node, row_id)
        return node

    def _split_prefix(self, source: TableCatalog) -> str:
        if len(self._sources) < 2:
            return ""
        is_unique = [each.name for each in self._sources].count(source.name) == 1
        return f"{source.name if is_unique else source.id}/"

    def _share(self, query: Share) -> StreamNode:
        """One node, with its state tables, for all readers."""
        if query.number not in self._shares:
            child = self.plan(query.input)
            self._shares[query.number] = ShareNode(child.schema, child.stream_key, child, query.number)
        return self._shares[query.number]

    def _progress(self) -> TableCatalog | None:
        if self._is_of_one_actor:
            return None
        name = f"{self._job.name}.scan{self._scans}.progress"
        self._scans += 1
        return state_tables.progress_table(self._table_ids(name), name, self._job.id)

    def _filter(self, query: Filter) -> StreamNode:
        """What does not depend on the time first."""
        moving = temporal_terms(query.predicate)
        steady = tuple(term for term in conjuncts(query.predicate) if term not in moving)
        child = self.plan(query.input)
        node = self._steady_filter(child, conjunction(steady)) if steady else child
        for term in moving:
            node = self._dynamic_filter(node, term)
        return node

    def _dynamic_filter(self, child: StreamNode, term: Expression) -> StreamNode:
        found = temporal_term(term)
        if found is None:
            raise PlanNotSupported("Filter", "now() is compared with a value of a row, moved by days or less")
        key = child.stream_key
        if key is None:
            raise PlanNotSupported("DynamicFilter", "its input cannot tell its rows apart")
        (column,), added = key_columns(child.schema, [found.value])
        node = child if added is None else ProjectNode(added[0], key, child, added[1])
        name = f"{self._job.name}.filter{self._filters}"
        self._filters += 1
        table = state_tables.waiting_rows_table(
            self._table_ids(name), name, self._job.id, node.schema, column, key, self._job.vnode_count
        )
        return DynamicFilterNode(child.schema, key, node, column, found.relation, found.bound, table)

    def _emit_on_window_close(self, query: EmitOnWindowClose) -> StreamNode:
        child = self.plan(query.input)
        key = child.stream_key
        if key is None:
            raise PlanNotSupported("EmitOnWindowClose", "its input cannot tell its rows apart")
        name = f"{self._job.name}.closing{self._closings}"
        self._closings += 1
        table = state_tables.waiting_rows_table(
            self._table_ids(name), name, self._job.id, child.schema, query.column, key, self._job.vnode_count
        )
        return EmitOnWindowCloseNode(child.schema, key, child, query.column, table)

    def _steady_filter(self, child: StreamNode, predicate: Expression) -> StreamNode:
        if isinstance(child, FilterNode):
            predicate = conjunction(conjuncts(child.predicate) + conjuncts(predicate))
            child = child.input
        return FilterNode(child.schema, child.stream_key, with_source_filters(child, predicate), predicate)

    def _project(self, query: Project) -> StreamNode:
        return _projected(self.plan(query.input), query.schema, query.stream_key, query.expressions)

    def _aggregate(self, query: Aggregate) -> StreamNode:
        number = self._aggregations
        self._aggregations += 1
        prefix = f"{self._job.name}.agg{number}"
        child = self.plan(query.input)
        name = f"{prefix}.groups"
        job, closing, is_append_only = self._job, query.closing_group, query.input.is_append_only
        retractable = [number for number, call in enumerate(query.calls) if call.is_retractable(is_append_only)]
        short = [number for number in retractable
                 if not self._is_of_one_actor and not query.calls[number].keeps_inputs(is_append_only)]
        counted = [number for number, call in enumerate(query.calls)
                   if call.kind in (AggKind.BIT_AND, AggKind.BIT_OR) and not is_append_only]
        state_table = state_tables.group_table(
            self._table_ids(name), name, job.id, child.schema, query.group_by, query.calls, job.vnode_count, closing,
            (*short, *counted),
        )
        kept = tuple(
            self._kept_input(f"{prefix}.call{number}", number, query, child)
            for number in retractable if number not in short
        )
        overflows = tuple(self._overflow(f"{prefix}.overflow{number}", number, query, child) for number in short)
        arguments = dict.fromkeys(call.argument for call in query.calls if call.needs_distinct_values)
        hash_key = None
        if arguments and closing is None:  # a watermark finds its rows by their columns
            hash_key = hash_key_for([child.schema[index].data_type for index in query.group_by])
        distinct = tuple(self._distinct(f"{prefix}.distinct{number}", argument, query, child, hash_key is not None)
                         for number, argument in enumerate(arguments) if argument is not None)
        orders = kept_orders(query.calls).items()
        ordered = tuple(self._ordered(f"{prefix}.rows{number}", order, calls, query, child)
                        for number, (order, calls) in enumerate(orders))
        node = HashAggNode(
            query.schema, query.stream_key, child, query.group_by, query.calls, state_table, kept, closing, overflows,
            distinct, ordered, query.is_append_only and not self._is_of_one_actor,
            hash_key,
        )
        return node if self._is_of_one_actor else _in_phases(node, query.phases)

    def _ordered(
        self, name: str, order: KeptOrder, calls: tuple[int, ...], query: Aggregate, child: StreamNode
    ) -> OrderedRows:
        if child.stream_key is None:
            raise PlanNotSupported("Aggregate", f"{name} cannot tell its input rows apart")
        columns, keys = state_tables.ordered_columns(
            query.group_by, [query.calls[number] for number in calls], order, child.stream_key
        )
        table = state_tables.collected_table(
            self._table_ids(name), name, self._job.id, child.schema.project(columns), len(query.group_by), keys,
            self._job.vnode_count, query.closing_group,
        )
        stream_key = tuple(map(columns.index, child.stream_key))
        return OrderedRows(calls, table, columns, keys, stream_key, query.input.is_append_only)

    def _distinct(
        self, name: str, argument: int, query: Aggregate, child: StreamNode, has_hashes: bool
    ) -> DistinctArgument:
        calls = tuple(number for number, call in enumerate(query.calls)
                      if call.needs_distinct_values and call.argument == argument)
        has_counts = not query.input.is_append_only
        if has_hashes:
            table = state_tables.hashed_distinct_table(
                self._table_ids(name), name, self._job.id, child.schema[argument], calls, has_counts,
                self._job.vnode_count,
            )
            return DistinctArgument(calls, table, (None, None, argument), has_counts)
        columns = (*query.group_by, argument)
        table = state_tables.distinct_table(
            self._table_ids(name), name, self._job.id, child.schema.project(columns), calls, has_counts,
            self._job.vnode_count, query.closing_group,
        )
        return DistinctArgument(calls, table, columns, has_counts)

    def _overflow(self, name: str, number: int, query: Aggregate, child: StreamNode) -> ValueOverflow:
        job, argument = self._job, query.calls[number].argument
        assert argument is not None
        columns = (*query.group_by, argument)
        table = state_tables.overflow_table(
            self._table_ids(name), name, job.id, child.schema.project(columns), query.calls[number].kind,
            job.vnode_count, query.closing_group,
        )
        return ValueOverflow(number, table, columns)

    def _kept_input(self, name: str, number: int, query: Aggregate, child: StreamNode) -> KeptInput:
        call, groups = query.calls[number], len(query.group_by)
        if child.stream_key is None:
            raise PlanNotSupported("Aggregate", f"{name} cannot tell its input rows apart")
        columns, argument = state_tables.input_columns(query.group_by, call, child.stream_key)
        table_id, job = self._table_ids(name), self._job
        table = state_tables.input_table(
            table_id, name, job.id, child.schema, columns, groups, argument, call.kind, job.vnode_count,
            query.closing_group,
        )
        return KeptInput(number, table, columns, argument)


def _in_phases(node: HashAggNode, phases: AggPhases) -> HashAggNode:
    """The aggregation, over the partial one that may run before an exchange: if states of parts of its rows add up,
    and a group has more than one row."""
    child = node.input
    has_single_rows = child.stream_key is not None and set(child.stream_key) <= set(node.group_by)
    if phases is AggPhases.ONE or not states_add_up(node) or (has_single_rows and phases is not AggPhases.TWO):
        return node
    is_forced = phases is AggPhases.TWO
    part = PartialAggNode(
        child.schema, child.stream_key, child, node.group_by, node.calls, node.state_table, is_forced)
    return replace(node, input=part)


def states_add_up(node: HashAggNode) -> bool:
    """Whether the states of parts of the rows of an aggregation add up to that of all."""
    if node.kept or node.overflows or node.distinct or node.ordered:
        return False
    types = node.input.schema.types
    return all(adds_up(call.kind, None if call.argument is None else types[call.argument]) for call in node.calls)


def _distinct_inputs(query: Join, pairs: Sequence[Equality]) -> tuple[Aggregate | None, Aggregate | None]:
    """For each input the aggregation that a join can do without, see `_distinct_rows`; None for one without, and where
    it matters which of its rows have a partner."""
    of_left, of_right = zip(*(each.columns for each in pairs), strict=True)
    counts_left, counts_right = query.kind.counts_partners
    return (
        None if counts_left else _distinct_rows(query.left, of_left),
        None if counts_right else _distinct_rows(query.right, of_right),
    )


def _distinct_in_part(node: StreamNode, values: Aggregate, table: TableCatalog) -> PartialAggNode:
    """The distinct rows of each sender, for the join that owns `table`."""
    every = tuple(range(len(node.schema)))
    is_forced = values.phases is AggPhases.TWO
    return PartialAggNode(node.schema, node.stream_key, node, every, (), table, is_forced, sends_rows=True)


def _distinct_rows(query: LogicalPlan, keys: Sequence[int | None]) -> Aggregate | None:
    """The aggregation that makes the rows of an input of a join distinct, if these are the distinct values of the join
    key alone, whose columns are `keys`, and none goes."""
    base, columns = over_base(query)
    if not isinstance(base, Aggregate) or not base.is_append_only:
        return None
    values = [None if key is None else columns[key] for key in keys]
    known = {value.index for value in values if isinstance(value, InputRef)}
    return base if len(known) == len(keys) == len(base.group_by) else None


def _passing(query: Join, is_distinct: tuple[bool, bool]) -> tuple[bool, bool]:
    """As `Join.passing`, but a distinct input keeps its rows, to know their keys. It has one row for each."""
    if query.kind is not JoinKind.INNER:
        return False, False
    (left, right), (of_left, of_right) = query.passing, is_distinct
    return left and not of_left, (right or of_left) and not of_right


def _projected(
    child: StreamNode, schema: Schema, key: tuple[int, ...] | None, expressions: tuple[Expression, ...]
) -> StreamNode:
    """A projection, merged with one below where nothing is computed twice; the input itself if it changes nothing."""
    if isinstance(child, ProjectNode) and _is_cheap_to_repeat(expressions, child.expressions):
        expressions = tuple(substitute(each, child.expressions) for each in expressions)
        child = child.input
    if len(schema) == len(child.schema) and _passes_all(expressions):
        return replace(child, schema=schema)
    return ProjectNode(schema, key, child, expressions)


def _changes_of(scan: Scan) -> StreamScanNode:
    """Without the rows that there are."""
    return StreamScanNode(scan.schema, scan.stream_key, scan.table, scan.columns, None)


def _watermark_filter(
    source: StreamNode, table: TableCatalog, read: tuple[int, ...], job: TableCatalog, table_ids: TableIds,
    split_prefix: str = "",
) -> StreamNode:
    """The columns `read` of the rows of `source`, without late ones if `table` has a watermark [R29]."""
    if table.declared_watermark is None:
        return source
    column, delay = table.declared_watermark
    name = state_tables.watermark_table_name(job, split_prefix)
    state = state_tables.watermark_table(table_ids(name), name, job)
    return WatermarkFilterNode(source.schema, source.stream_key, source, read.index(column), delay, state)


def with_source_filters(node: StreamNode, predicate: Expression) -> StreamNode:
    """A source, possibly below generated row ids, that knows what of the predicate its connector can use. One with a
    watermark delivers all rows: which of them are late does not depend on the query."""
    if isinstance(node, RowIdGenNode):
        own = node.row_id_index
        found = [each for each in comparisons_of(predicate) if each.column != own]
        moved = [replace(each, column=each.column - (each.column > own)) for each in found]
        return replace(node, input=_filtered(node.input, moved))
    return _filtered(node, comparisons_of(predicate))


def _filtered(node: StreamNode, comparisons: Sequence[Comparison]) -> StreamNode:
    if not isinstance(node, SourceNode) or node.table.kind is not TableKind.SOURCE:
        return node
    return replace(node, filters=tuple(replace(each, column=node.columns[each.column]) for each in comparisons))


def _passes_all(expressions: tuple[Expression, ...]) -> bool:
    return all(isinstance(each, InputRef) and each.index == position for position, each in enumerate(expressions))


def _is_cheap_to_repeat(upper: tuple[Expression, ...], lower: tuple[Expression, ...]) -> bool:
    """Whether substituting `lower` into `upper` computes nothing twice: one of them only selects columns."""
    return any(all(isinstance(each, InputRef) for each in part) for part in (upper, lower))
