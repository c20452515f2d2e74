"""Stream plans: a tree of nodes, each of which describes one executor completely.

A node is a value: the schema and stream key of its output, its inputs, and the catalogs of the state tables that its
executor owns. Threads, channels and open tables are not part of a plan; ActorBuilder supplies them. Exchange nodes part
the tree into fragments, see fragments.py. The plan of a view, index or sink is stored with the job as it was made, and
the job is always rebuilt from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from relational.catalog.objects import ConflictBehaviour, TableCatalog
from relational.catalog.watermarks import moved_text, watermark_text
from relational.expr.aggregates import AggCall
from relational.expr.comparisons import Comparison, Relation
from relational.expr.distance_bounds import DistanceBounds
from relational.expr.expression import Call, Expression, InputRef, substitute
from relational.expr.temporal_terms import NOW
from relational.expr.window_functions import RankKind, WindowCall
from relational.plan.logical import JoinKind
from relational.plan.logical.expand import sets_text
from relational.plan.logical.over_window import numbers_text
from relational.plan.tree_text import calls_text, grouping_text, groups_text, join_text, select_items, set_text
from relational.types import DataType, Schema, SortKey, VnodeRule


@dataclass(frozen=True, slots=True)
class StreamNode:
    """The description of one executor.

    `stream_key`: the columns of `schema` that identify a row of the output; None below an aggregation that treats its
    input as a bag.
    """

    schema: Schema
    stream_key: tuple[int, ...] | None

    @property
    def inputs(self) -> tuple[StreamNode, ...]:
        return ()

    @property
    def state_tables(self) -> tuple[TableCatalog, ...]:
        """Internal tables that the executor owns; not the table that a Materialize node writes."""
        return ()

    @property
    def looked_up(self) -> tuple[TableCatalog, ...]:
        """Tables of other executors in which the executor looks up rows."""
        return ()

    @property
    def identity(self) -> str:
        """The name of the node type, as shown in messages and by `explain`."""
        return type(self).__name__.removesuffix("Node")

    @property
    def details(self) -> str:
        """The properties of this node, as text."""
        return ""

    def walk(self) -> Iterator[StreamNode]:
        """This node and all below it, in pre-order."""
        yield self
        for child in self.inputs:
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class _UnaryNode(StreamNode):
    input: StreamNode

    @property
    def inputs(self) -> tuple[StreamNode, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True)
class DmlNode(StreamNode):
    """Statements of a table that has no connector."""

    table: TableCatalog

    @property
    def details(self) -> str:
        return self.table.name


@dataclass(frozen=True, slots=True)
class SourceNode(StreamNode):
    """The `columns` of the connector of `table`, a source or a table, with the options `table.connector`; and the
    statements of a table. `filters`: comparisons of the table's columns that rows pass later, which the connector may
    use to leave rows out. `split_prefix`: what the names of its splits begin with in the offsets of a job that reads
    several sources, else empty."""

    table: TableCatalog
    columns: tuple[int, ...]
    offset_table: TableCatalog
    filters: tuple[Comparison, ...] = ()
    split_prefix: str = ""

    @property
    def state_tables(self) -> tuple[TableCatalog, ...]:
        return (self.offset_table,)

    @property
    def details(self) -> str:
        options = self.table.connector or {}
        text = ", ".join(f"{name}: {value}" for name, value in sorted(options.items()))
        return f"{text} ({', '.join(self.schema.names)})"


@dataclass(frozen=True, slots=True)
class WatermarkFilterNode(_UnaryNode):
    """Drops rows of its input, a source or the statements of a table, that are late: below the watermark of `column`,
    which is the greatest value so far minus `delay` (in the unit of WatermarkCatalog). `table`: what is known of each
    split, see stream/executor/watermark_filter.py, or of the table, see table_watermark.py there."""

    column: int
    delay: int
    table: TableCatalog

    @property
    def state_tables(self) -> tuple[TableCatalog, ...]:
        return (self.table,)

    @property
    def details(self) -> str:
        column = self.schema[self.column]
        return f"{column.name} >= watermark {watermark_text(column.name, self.delay, column.data_type)}"


@dataclass(frozen=True, slots=True)
class RowIdGenNode(_UnaryNode):
    """Generates column `row_id_index` of inserted rows; rows of a source do not have it in the input."""

    row_id_index: int

    @property
    def details(self) -> str:
        return self.schema.names[self.row_id_index]


@dataclass(frozen=True, slots=True)
class StreamScanNode(StreamNode):
    """Selected columns of another job's table: its existing rows, then its changes. `progress`: the table of how far
    the existing rows were read; None for a job that an older release created, which has read them all."""

    table: TableCatalog
    columns: tuple[int, ...]
    progress: TableCatalog | None = None

    @property
    def state_tables(self) -> tuple[TableCatalog, ...]:
        return () if self.progress is None else (self.progress,)

    @property
    def details(self) -> str:
        return f"{self.table.name} ({', '.join(self.schema.names)})"


@dataclass(frozen=True, slots=True)
class ExchangeNode(_UnaryNode):
    """Ends a fragment: its rows go to the actors that own the vnodes of the columns `key` by `rule`, of `vnode_count`
    vnodes. `key` empty: to the only actor; None: each of its actors sends to one that owns the same vnodes."""

    key: tuple[int, ...] | None
    vnode_count: int
    rule: VnodeRule = VnodeRule.HASH

    @property
    def details(self) -> str:
        if self.key is None:
            return "no shuffle"
        return f"{self.rule} [{', '.join(self.schema.names[column] for column in self.key)}]" if self.key else "to one"


@dataclass(frozen=True, slots=True)
class MergeNode(StreamNode):
    """A leaf of a fragment, which replaces an exchange: the rows of `fragment`, an index into the fragments of the
    plan, distributed as ExchangeNode says. `vnode_count` 0: of a fragment with one actor."""

    fragment: int
    key: tuple[int, ...] | None
    vnode_count: int
    rule: VnodeRule = VnodeRule.HASH

    @property
    def details(self) -> str:
        return f"fragment {self.fragment}"


@dataclass(frozen=True, slots=True)
class ShareNode(_UnaryNode):
    """Ends a fragment that is executed once for several readers: all nodes of one `number` in a plan are equal."""

    number: int

    @property
    def details(self) -> str:
        return str(self.number)


@dataclass(frozen=True, slots=True)
class UnionNode(StreamNode):
    """The rows of all `branches`, whose columns are the same; each is the input of an exchange, and none is a union."""

    branches: tuple[StreamNode, ...]

    @property
    def inputs(self) -> tuple[StreamNode, ...]:
        return self.branches


@dataclass(frozen=True, slots=True)
class FilterNode(_UnaryNode):
    """The rows for which `predicate` is true."""

    predicate: Expression

    @property
    def details(self) -> str:
        return self.predicate.describe(self.input.schema.names)


@dataclass(frozen=True, slots=True)
class ProjectNode(_UnaryNode):
    """One output column per expression over the input's columns."""

    expressions: tuple[Expression, ...]

    @property
    def details(self) -> str:
        return ", ".join(select_items(self.expressions, self.input.schema.names, self.schema.names))


@dataclass(frozen=True, slots=True)
class ExpandNode(_UnaryNode):
    """The input's rows, each once for each of `sets`: its columns, then the columns `columns` again, NULL where they
    are not in the set, then the number of the set. A set has positions in `columns`."""

    columns: tuple[int, ...]
    sets: tuple[tuple[int, ...], ...]

    @property
    def details(self) -> str:
        return sets_text(self.columns, self.sets, self.input.schema.names)


@dataclass(frozen=True, slots=True)
class ProjectSetNode(_UnaryNode):
    """The rows of set-returning functions: for each row of the input its columns `passed` beside the elements of the
    lists `functions`, and the number of the element. `is_outer`: a row without elements comes once."""

    passed: tuple[int, ...]
    functions: tuple[Expression, ...]
    is_outer: bool

    @property
    def details(self) -> str:
        names = self.schema.names[len(self.passed) : -1]
        return set_text(self.functions, self.passed, self.input.schema.names, names, self.is_outer)


@dataclass(frozen=True, slots=True)
class KeptInput:
    """The rows that aggregate call number `call` keeps: `columns` of the input, in the order of `table`'s
    columns; the call's argument is `columns[argument]`."""

    call: int
    table: TableCatalog
    columns: tuple[int, ...]
    argument: int


@dataclass(frozen=True, slots=True)
class ValueOverflow:
    """The values of aggregate call number `call` that the states of groups have no room for, with their numbers of
    rows. `columns`: those of the input in the table, the group columns and the call's argument."""

    call: int
    table: TableCatalog
    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DistinctArgument:
    """The values of one argument, for the DISTINCT calls numbered `calls`. `columns`: those of the input in the table,
    the group columns, or two of None if the table has their hash, and the argument. `has_counts`: the table has numbers
    of rows, since these can be retracted; else bits."""

    calls: tuple[int, ...]
    table: TableCatalog
    columns: tuple[int | None, ...]
    has_counts: bool

    def with_distribution(self, groups: tuple[int, ...]) -> DistinctArgument:
        """With a table whose vnodes are those of these of the group columns."""
        key = (0,) if groups and self.columns[0] is None else groups
        return replace(self, table=replace(self.table, distribution_key=key))


@dataclass(frozen=True, slots=True)
class OrderedRows:
    """The rows that the calls numbered `calls`, which have one order, are computed from. `columns`: those of the input
    in the table, the group columns first. Of their positions there: `keys`, the order of the rows of a group, and
    `stream_key`. `is_append_only`: rows are only inserted."""

    calls: tuple[int, ...]
    table: TableCatalog
    columns: tuple[int, ...]
    keys: tuple[SortKey, ...]
    stream_key: tuple[int, ...]
    is_append_only: bool


BesideGroups = TypeVar("BesideGroups", KeptInput, ValueOverflow, OrderedRows)


@dataclass(frozen=True, slots=True)
class HashAggNode(_UnaryNode):
    """Groups by input columns; each call whose extreme a retraction can change has an entry in `overflows` if its
    values are words, else, or if an earlier release planned it, in `kept`; each argument of DISTINCT calls has one in
    `distinct`; each order of calls that collect has one in `ordered`. `closing`: the position of the group column below
    whose watermark the state is dropped; it is the first of the key of all its tables. None: without a watermark.
    `is_append_only`: it has no calls, and its groups never go. `hash_key`: 16 bytes, the key of the hashes of groups,
    if tables of `distinct` have these."""

    group_by: tuple[int, ...]
    calls: tuple[AggCall, ...]
    state_table: TableCatalog
    kept: tuple[KeptInput, ...]
    closing: int | None = None
    overflows: tuple[ValueOverflow, ...] = ()
    distinct: tuple[DistinctArgument, ...] = ()
    ordered: tuple[OrderedRows, ...] = ()
    is_append_only: bool = False
    hash_key: bytes | None = None

    @property
    def state_tables(self) -> tuple[TableCatalog, ...]:
        beside: list[KeptInput | ValueOverflow | DistinctArgument | OrderedRows] = [
            *self.kept, *self.overflows, *self.distinct, *self.ordered]
        return (self.state_table, *(each.table for each in beside))

    def with_distribution(self, groups: tuple[int, ...]) -> HashAggNode:
        """With state tables that are distributed by these of their group columns."""

        def by_groups(beside: tuple[BesideGroups, ...]) -> tuple[BesideGroups, ...]:
            return tuple(replace(each, table=replace(each.table, distribution_key=groups)) for each in beside)

        return replace(
            self, state_table=replace(self.state_table, distribution_key=groups), kept=by_groups(self.kept),
            overflows=by_groups(self.overflows), ordered=by_groups(self.ordered),
            distinct=tuple(each.with_distribution(groups) for each in self.distinct))

    @property
    def details(self) -> str:
        names = self.input.schema.names
        closing = "" if self.closing is None else f" until watermark [{names[self.group_by[self.closing]]}]"
        first = " the first row of each" if self.is_append_only else ""
        return grouping_text(self.group_by, self.calls, names) + first + closing


@dataclass(frozen=True, slots=True)
class PartialAggNode(_UnaryNode):
    """Ends a fragment below an aggregation whose states add up: its rows, or states of groups of them, for the
    aggregation with these `group_by` and `calls`, which owns `state_table`. `is_forced`: it makes groups of all rows,
    not only while these are few. `sends_rows`: for a distinct input of a join, the owner of `state_table`, it sends the
    groups, which have all columns in their order, as rows."""

    group_by: tuple[int, ...]
    calls: tuple[AggCall, ...]
    state_table: TableCatalog
    is_forced: bool = False
    sends_rows: bool = False

    @property
    def details(self) -> str:
        text = grouping_text(self.group_by, self.calls, self.input.schema.names)
        return f"{text}{' forced' if self.is_forced else ''}{' as rows' if self.sends_rows else ''}"


@dataclass(frozen=True, slots=True)
class JoinInterval:
    """The rows that match are close to each other: `bounds`, of a column of either input with a watermark. `times`: for
    each input the table of its rows in the order of that column, from which those are taken that the watermarks have
    passed; None: its rows stay. `columns`: those of the input in that table."""

    bounds: DistanceBounds
    times: tuple[TableCatalog | None, TableCatalog | None]
    columns: tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class HashJoinNode(StreamNode):
    """The rows of `kind` of two inputs, each behind an exchange. Rows match if they are equal in `keys`, a column of
    either input each, where `null_safe` says whether NULL equals NULL, and if `condition`, over the first columns of
    both inputs, is true. The output has these columns, as many as `widths` says; the others are computed keys.
    `append_only`: of each input, whether its rows are only inserted. `passing`: whether its rows are kept only until
    they find their partner. `tables`: the rows of each. `marked`: the numbers of the keys both columns of which have a
    watermark; below that of the first, the first column of the key of `tables`, the state is dropped. `interval`: how
    rows are dropped otherwise. `distinct`: of each input, whether only the first row of each key counts."""

    left: StreamNode
    right: StreamNode
    kind: JoinKind
    keys: tuple[tuple[int, int], ...]
    null_safe: tuple[bool, ...]
    condition: Expression | None
    widths: tuple[int, int]
    append_only: tuple[bool, bool]
    passing: tuple[bool, bool]
    tables: tuple[TableCatalog, TableCatalog]
    marked: tuple[int, ...] = ()
    interval: JoinInterval | None = None
    distinct: tuple[bool, bool] = (False, False)

    @property
    def inputs(self) -> tuple[StreamNode, ...]:
        return self.left, self.right

    @property
    def state_tables(self) -> tuple[TableCatalog, ...]:
        times = () if self.interval is None else self.interval.times
        return (*self.tables, *(table for table in times if table is not None))

    @property
    def identity(self) -> str:
        return "HashJoin" if self.interval is None else "IntervalJoin"

    @property
    def details(self) -> str:
        names = self.left.schema.names, self.right.schema.names
        sides = [side for side, passes in zip(("left", "right"), self.passing, strict=True) if passes]
        passing = f", {sides[0]} rows wait for their only partner" if sides else ""
        first = [side for side, is_distinct in zip(("left", "right"), self.distinct, strict=True) if is_distinct]
        distinct = f", of {' and '.join(first)} rows the first of each key" if first else ""
        text = join_text(self.keys, self.null_safe, self.condition, names, self.widths)
        return f"{self.kind} on {text}{passing}{distinct}{self._cleaning_text(*names)}"

    def _cleaning_text(self, left: tuple[str, ...], right: tuple[str, ...]) -> str:
        if self.marked:
            return f", until watermark [{left[self.keys[self.marked[0]][0]]}]"
        if self.interval is None:
            return ""
        bounds = self.interval.bounds
        data_type, name = self.right.schema.types[bounds.right], f"right.{right[bounds.right]}"
        least, most = (None if distance is None else moved_text(name, distance, data_type)
                       for distance in (bounds.least, bounds.most))
        within = [*([] if least is None else [f"from {least}"]), *([] if most is None else [f"to {most}"])]
        return f", where left.{left[bounds.left]} is {' '.join(within)}"


@dataclass(frozen=True, slots=True)
class TemporalJoinNode(StreamNode):
    """Each row of the left input, once, with the row of `table` under the primary key that its columns `key` are equal
    to, at that time, if `condition` over the columns of both is true; `kind` INNER or LEFT. `right` brings the changes
    of `table`, in the columns `columns`. The output has the first `width` columns of the left input, then these."""

    left: StreamNode
    right: StreamNode
    kind: JoinKind
    key: tuple[int, ...]
    condition: Expression | None
    width: int
    table: TableCatalog
    columns: tuple[int, ...]
    vnode_count: int

    @property
    def inputs(self) -> tuple[StreamNode, ...]:
        return self.left, self.right

    @property
    def looked_up(self) -> tuple[TableCatalog, ...]:
        return (self.table,)

    @property
    def pk(self) -> tuple[int, ...]:
        """The columns of the primary key in the right input."""
        return tuple(map(self.columns.index, self.table.pk_indices))

    @property
    def details(self) -> str:
        names = self.left.schema.names, self.right.schema.names
        keys = tuple(zip(self.key, self.pk, strict=True))
        widths = self.width, len(self.columns)
        return f"{self.kind} on {join_text(keys, (False,) * len(keys), self.condition, names, widths)}"


@dataclass(frozen=True, slots=True)
class StoredInput:
    """The stored rows of one input of a delta join: `columns` of `table`, which are those of the input. `prefix`: the
    numbers of the keys of the join that are the first columns of its primary key, in their order. `progress`: the table
    of how far the input has read the rows of before; None: it brings changes alone."""

    table: TableCatalog
    columns: tuple[int, ...]
    prefix: tuple[int, ...]
    progress: TableCatalog | None


@dataclass(frozen=True, slots=True)
class DeltaJoinNode(StreamNode):
    """The pairs of rows of two stored tables that are equal in `keys`, a column of either input each, and for which
    `condition`, over the columns of both inputs, is true. Its own state is none: rows of `stored` are looked up."""

    left: StreamNode
    right: StreamNode
    keys: tuple[tuple[int, int], ...]
    condition: Expression | None
    stored: tuple[StoredInput, StoredInput]
    vnode_count: int

    @property
    def inputs(self) -> tuple[StreamNode, ...]:
        return self.left, self.right

    @property
    def looked_up(self) -> tuple[TableCatalog, ...]:
        progress = [each.progress for each in self.stored if each.progress is not None]
        return (*(each.table for each in self.stored), *progress)

    @property
    def details(self) -> str:
        names = self.left.schema.names, self.right.schema.names
        widths = len(names[0]), len(names[1])
        text = join_text(self.keys, (False,) * len(self.keys), self.condition, names, widths)
        return f"inner on {text}, rows of {' and '.join(each.table.name for each in self.stored)}"


@dataclass(frozen=True, slots=True)
class TopNNode(_UnaryNode):
    """The rows whose number by `kind` is above `offset` and at most `last` among those that are equal in `groups`, in
    the order `keys`: the first `width` columns, and behind them the number if `has_number`; the others are computed
    keys. `is_append_only`: rows of the input are only inserted. `table`: the rows, or then those of the windows."""

    groups: tuple[int, ...]
    keys: tuple[SortKey, ...]
    kind: RankKind
    offset: int
    last: int
    width: int
    has_number: bool
    is_append_only: bool
    table: TableCatalog

    @property
    def state_tables(self) -> tuple[TableCatalog, ...]:
        return (self.table,)

    @property
    def details(self) -> str:
        numbers = numbers_text(self.kind, self.offset, self.last)
        return f"{numbers} {groups_text(self.groups, self.keys, self.input.schema.names)}"


@dataclass(frozen=True, slots=True)
class OverWindowNode(_UnaryNode):
    """The rows with the values of `calls` over the rows that are equal in `groups`, in the order `keys`: the first
    `width` columns, and behind them the values; the others are computed keys. `is_append_only`: rows of the input are
    only inserted. `table`: the rows, each with its states."""

    groups: tuple[int, ...]
    keys: tuple[SortKey, ...]
    calls: tuple[WindowCall, ...]
    width: int
    is_append_only: bool
    table: TableCatalog

    @property
    def state_tables(self) -> tuple[TableCatalog, ...]:
        return (self.table,)

    @property
    def details(self) -> str:
        inputs = self.input.schema.names
        names = self.schema.names[self.width :]
        return f"{calls_text(self.calls, names, inputs)} {groups_text(self.groups, self.keys, inputs)}"


@dataclass(frozen=True, slots=True)
class DynamicFilterNode(_UnaryNode):
    """The rows whose value in `column` compares with a bound as `relation` says: `bound` of the time of the epoch, an
    expression of one column. The output has the first columns of the input; the others are computed values. `table`:
    the rows that the bound has not reached."""

    column: int
    relation: Relation
    bound: Expression
    table: TableCatalog

    @property
    def state_tables(self) -> tuple[TableCatalog, ...]:
        return (self.table,)

    @property
    def details(self) -> str:
        value, bound = InputRef(self.column, self.bound.data_type), substitute(self.bound, [NOW])
        return Call(self.relation, (value, bound), DataType.BOOLEAN).describe(self.input.schema.names)


@dataclass(frozen=True, slots=True)
class EmitOnWindowCloseNode(_UnaryNode):
    """The rows of the input once the watermark of `column` has passed them. `table`: those that wait for it."""

    column: int
    table: TableCatalog

    @property
    def state_tables(self) -> tuple[TableCatalog, ...]:
        return (self.table,)

    @property
    def details(self) -> str:
        return f"watermark [{self.schema.names[self.column]}]"


@dataclass(frozen=True, slots=True)
class MaterializeNode(_UnaryNode):
    """Writes `table`. `conflict`: the rule by which the input is fitted to it; None: the input is a legal change
    stream."""

    table: TableCatalog
    conflict: ConflictBehaviour | None

    @property
    def details(self) -> str:
        key = ", ".join(self.schema.names[index] for index in self.table.pk_indices)
        rule = "trusted" if self.conflict is None else self.conflict.value
        return f"{self.table.name} key [{key}] conflict {rule}"


@dataclass(frozen=True, slots=True)
class SinkNode(_UnaryNode):
    """Delivers the input to the connector with the options `table.sink`, or sends it to the table that these name; the
    state of the delivery is in `table`.
    `log`: the tables of changes that are not delivered yet, and of their batches; None: the sink keeps its state within
    the store."""

    table: TableCatalog
    log: tuple[TableCatalog, TableCatalog] | None = None

    @property
    def state_tables(self) -> tuple[TableCatalog, ...]:
        return self.log or ()

    @property
    def details(self) -> str:
        into = self.table.sink_table
        if into is not None:
            return f"{self.table.name} into {into.name} ({', '.join(self.input.schema.names)}) {into.order}"
        options = ", ".join(f"{name}: {value}" for name, value in sorted((self.table.sink or {}).items()))
        return f"{self.table.name} {options}"


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """The plan of one job: a table with its own input, or a view or sink over tables and sources.

    `error_table`: the table of the job's rows without a value; None if it has none. `is_single`: the job is one
    fragment with one actor, whatever its distribution."""

    root: MaterializeNode | SinkNode
    error_table: TableCatalog | None = None
    is_single: bool = False

    @property
    def state_tables(self) -> tuple[TableCatalog, ...]:
        """The internal tables of the job, by ascending id, which is the order in which ids are requested."""
        errors = () if self.error_table is None else (self.error_table,)
        tables = {table.id: table for node in self.root.walk() for table in node.state_tables}
        tables |= {table.id: table for table in errors}
        return tuple(tables[table_id] for table_id in sorted(tables))

    @property
    def scans(self) -> tuple[StreamScanNode, ...]:
        """The inputs that are other jobs' tables."""
        return tuple(dict.fromkeys(node for node in self.root.walk() if isinstance(node, StreamScanNode)))

    @property
    def sources(self) -> tuple[SourceNode, ...]:
        """The connectors that the job reads, each once."""
        return tuple(dict.fromkeys(node for node in self.root.walk() if isinstance(node, SourceNode)))

    def explain(self) -> str:
        """The tree as indented text, the root first, then one line per internal table."""
        lines = list(_explained(self.root, 0))
        for table in self.state_tables:
            names = table.schema.names
            key = ", ".join(f"{names[part.column]} {part.order}" for part in table.pk)
            value = ", ".join(names[index] for index in table.value_indices)
            lines.append(f"table {table.id} {table.name}: key [{key}] value [{value}]")
        return "\n".join(lines)


def _explained(node: StreamNode, depth: int) -> Iterator[str]:
    yield "  " * depth + f"{node.identity} {node.details}".rstrip()
    for child in node.inputs:
        yield from _explained(child, depth + 1)


def without_partial_agg(root: StreamNode) -> StreamNode:
    """A fragment that sends rows, where it sends states of groups of them."""
    return root.input if isinstance(root, PartialAggNode) else root


def tables_of(root: StreamNode) -> dict[int, TableCatalog]:
    """All tables that the nodes of a fragment name, by id."""
    found: dict[int, TableCatalog] = {}
    for node in root.walk():
        found |= {state.id: state for state in node.state_tables}
        table = getattr(node, "table", None)
        if table is not None:
            found[table.id] = table
        found |= {table.id: table for table in node.looked_up}
    return found
