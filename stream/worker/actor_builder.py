"""ActorBuilder: turns a tree of stream nodes into a chain of executors with open tables and channels.

There is one builder function per node type, in the table BUILDERS; a new executor is a new row of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from weakref import WeakValueDictionary
from zlib import crc32

import numpy as np

from relational.agg.group_hashes import GroupHashes
from relational.catalog.objects import SinkOrder
from relational.expr import ErrorCounts
from relational.expr.set_rows import SetRows
from relational.expr.window_reach import reach_within
from relational.memory_budget import MemoryBudget
from relational.table.scan_positions import ScanPositions
from relational.table.state_table import ROW_CACHE_BYTES, StateTable
from relational.table.storage_table import StorageTable
from relational.table.write_budget import WriteBudget
from stream.connector.base import SplitReader, connector_of, open_reader, settings_of
from stream.connector.sink import SinkIdentity, SinkWriter, check_target, open_stored_sink
from stream.connector.sink_log import LogWriter, SinkProgress
from stream.error_counts import RunningErrorCounts, StoredErrorCounts
from stream.errors import SourcePosition, StatementError
from stream.executor.agg_state import DistinctTable, ExtremeTable, MaterializedInput, OverflowTable
from stream.executor.backfill import BackfillExecutor
from stream.executor.backfill_pace import BackfillPace
from stream.executor.base import Executor, ExecutorInfo
from stream.executor.delta_join import DeltaJoinExecutor, StoredRows
from stream.executor.dml import DmlExecutor
from stream.executor.dynamic_filter import DynamicFilterExecutor
from stream.executor.emit_on_window_close import EmitOnWindowCloseExecutor
from stream.executor.expand import ExpandExecutor
from stream.executor.filter import FilterExecutor
from stream.executor.flush_pace import EARLY_GROUPS
from stream.executor.hash_agg import HashAggExecutor
from stream.executor.hash_join import HashJoinExecutor
from stream.executor.join_side import JoinInput, JoinSide, RowTimes, Shown
from stream.executor.join_watermarks import IntervalWatermarks, JoinWatermarks, KeyWatermarks, MarkedKey
from stream.executor.materialize import MaterializeExecutor
from stream.executor.merge import MergeExecutor
from stream.executor.meter import ExecutorMeter, MeteredExecutor
from stream.executor.ordered_input import OrderedInput, RowLayout
from stream.executor.over_window import OverWindowExecutor, Windows
from stream.executor.partial_agg import FinalAggExecutor, PartialAggExecutor, Reduction
from stream.executor.project import ProjectExecutor
from stream.executor.project_set import ProjectSetExecutor
from stream.executor.row_id_gen import RowIdGenExecutor
from stream.executor.sink import SinkExecutor
from stream.executor.snapshot_backfill import SnapshotBackfillExecutor
from stream.executor.source import FindSplits, SourceExecutor, read_columns
from stream.executor.source_watermark import SourceWatermark
from stream.executor.store_errors import StoreErrorsExecutor
from stream.executor.table_sink import TableSinkExecutor
from stream.executor.table_watermark import TableWatermarkExecutor
from stream.executor.temporal_join import TemporalJoinExecutor
from stream.executor.top_n import TopNExecutor, Window
from stream.executor.watermark_filter import WatermarkFilterExecutor
from stream.message import Barrier
from stream.options import StreamOptions, cache_bytes_of
from stream.plan.state_tables import window_states
from stream.plan.stream_plan import (
    DeltaJoinNode,
    DmlNode,
    DynamicFilterNode,
    EmitOnWindowCloseNode,
    ExpandNode,
    FilterNode,
    HashAggNode,
    HashJoinNode,
    JoinInterval,
    MaterializeNode,
    MergeNode,
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
    StreamScanNode,
    TemporalJoinNode,
    TopNNode,
    UnionNode,
    WatermarkFilterNode,
)
from stream.protocol import ActorSpec
from stream.runtime.actor import Actor, ActorObserver
from stream.runtime.barrier_forecast import BarrierForecast, BarrierNotice
from stream.runtime.channel import Channel
from stream.runtime.dispatch import Outputs
from stream.worker.state_handover import Handover

if TYPE_CHECKING:
    from hummock.state_store import StateStore
    from relational.agg import AggGroups
    from relational.catalog.objects import TableCatalog


PARTIAL_AGG_BYTES = 16 << 20
"""At most, of the groups of one partial aggregation, which should stay in the caches of a core."""
BuilderFunctions: TypeAlias = Mapping[type[StreamNode], Callable[[Any, Any, ExecutorInfo], Executor]]
"""By node type: the executor of a node, given the chain under construction."""



class ActorBuilder:
    """Builds actors over one store. A source calls `request_barrier` when it has read enough. `errors` holds the counts
    of the running actors. `sink_progress(job_id)`: what the actor of a sink shares with its delivering thread.
    `upstream`: the store of the tables of other jobs, if it is another one. `handover`: with the actors before and
    after those of this builder, None: there is none. `on_idle(actor_id, rows)`: the actor of a source reads nothing
    more for the moment, after so many rows of the epoch, or that of a backfill has read all rows. `more`: builder
    functions of further node types. `is_for_one_epoch`: no rows are cached, actors leave their groups at the end, and
    each actor of a backfill has a pace of its own, and calls `on_idle` where others request a barrier.
    `row_ids_after_ms`: up to which millisecond row ids were given by other actors. `memory`: of the state of executors,
    None: that of `options`, for these actors alone. `announce_barrier`: for a source that has read all and waits for
    nothing, None: `request_barrier`."""

    def __init__(
        self,
        store: StateStore,
        options: StreamOptions,
        request_barrier: Callable[[], None],
        sink_progress: Callable[[int], SinkProgress] = lambda job_id: SinkProgress(),
        upstream: StateStore | None = None,
        handover: Handover | None = None,
        on_idle: Callable[[int, int], None] = lambda actor_id, rows: None,
        more: BuilderFunctions = MappingProxyType({}),
        is_for_one_epoch: bool = False,
        row_ids_after_ms: int = 0,
        memory: MemoryBudget | None = None,
        announce_barrier: Callable[[], None] | None = None,
    ) -> None:
        self.announce_barrier = request_barrier if announce_barrier is None else announce_barrier
        self.on_idle, self.more, self.is_for_one_epoch = on_idle, more, is_for_one_epoch
        self.sources: WeakValueDictionary[int, SourceExecutor] = WeakValueDictionary()
        """By the id of the actor."""
        self.row_ids: WeakValueDictionary[int, RowIdGenExecutor] = WeakValueDictionary()
        """By the id of the actor."""
        self.row_ids_after_ms = row_ids_after_ms
        self.row_cache_bytes = 0 if is_for_one_epoch else ROW_CACHE_BYTES
        self.store = store
        self.upstream = store if upstream is None else upstream
        self.options = options
        self.request_barrier = request_barrier
        self.sink_progress = sink_progress
        self.errors = RunningErrorCounts()
        self.budget = WriteBudget(options.state_write_bytes)
        self.memory = MemoryBudget(cache_bytes_of(options)) if memory is None else memory
        self.handover = handover
        self.notice = BarrierNotice()
        self._paces: WeakValueDictionary[int, BackfillPace] = WeakValueDictionary()  # by job id
        self._watermarks: WeakValueDictionary[int, SourceWatermark] = WeakValueDictionary()  # by the first actor's id

    def build(
        self,
        spec: ActorSpec,
        control: Channel | None,
        inputs: Sequence[Sequence[Channel]],
        observer: WorkerObserver,
    ) -> Actor:
        """An actor that does not run yet. `control` carries barriers and statements to an actor without inputs;
        `inputs` are the channels of each input of `spec`."""
        errors = self.errors.open(spec.table, spec.actor_id)
        pace = self.pace_of(spec)
        outputs = Outputs(spec.actor_id)
        chain = _ActorChain(self, spec, control, iter(inputs), errors, pace, outputs)
        chain.backfilled = partial(self._finish_backfill, spec.actor_id, observer)
        chain.progress = self.sink_progress(spec.job_id)
        executor = chain.build(spec.root)
        if spec.error_table is not None:
            table = self._state_table(spec.error_table)
            executor = StoreErrorsExecutor(executor, StoredErrorCounts(errors, table, spec.fragment, spec.vnodes))
        chain.has_readers = lambda: bool(outputs.targets)
        paced = _Paced(observer, pace)
        actor = Actor(spec.actor_id, executor, outputs, paced, chain.position, chain.meters, chain.blamed,
                      chain.executors)
        chain.cpu_clock = actor.cpu_clock
        return actor

    def _finish_backfill(self, actor_id: int, observer: WorkerObserver) -> None:
        observer.finish_backfill(actor_id)
        self.on_idle(actor_id, 0)

    def pace_of(self, spec: ActorSpec) -> BackfillPace:
        """What the actors of a job share."""
        if self.is_for_one_epoch:
            return BackfillPace(lambda: self.on_idle(spec.actor_id, 0), is_detached=True)
        pace = self._paces.get(spec.job_id)
        if pace is None:
            pace = self._paces[spec.job_id] = BackfillPace(self.request_barrier, is_detached=spec.is_detached)
        return pace

    def watermark_of(self, spec: ActorSpec) -> SourceWatermark:
        """What the actors of a source's fragment share; those that replace them share another one."""
        return self._watermarks.setdefault(spec.actor_id - spec.number, SourceWatermark(spec.siblings))

    def forecast(self) -> BarrierForecast:
        """Of the barriers of an actor, or of all of them."""
        interval_ms = 0 if self.is_for_one_epoch else self.options.barrier_interval_ms
        return BarrierForecast(interval_ms, notice=self.notice)

    def _state_table(self, catalog: TableCatalog) -> StateTable:
        return StateTable(catalog, self.store, budget=self.budget)


class WorkerObserver(ActorObserver, Protocol):
    """What an actor notifies of, with the end of a backfill."""

    def finish_backfill(self, actor_id: int) -> None:
        """`actor_id` has read all existing rows, the last ones in the epoch that its next barrier ends."""
        ...


class _Paced:
    """An observer that also measures the time of barriers within a job."""

    def __init__(self, observer: WorkerObserver, pace: BackfillPace) -> None:
        self._observer = observer
        self._pace = pace

    def collect(self, actor_id: int, barrier: Barrier) -> None:
        self._pace.passed(barrier.epoch.prev)
        self._observer.collect(actor_id, barrier)

    def fail(self, actor_id: int, error: BaseException, position: SourcePosition | None) -> None:
        self._observer.fail(actor_id, error, position)


class ExecutorChain:
    """Executors under construction, over one store; they count into `errors`, and have shares of `memory` for their
    state. This class builds the executors that read nothing but their input."""

    def __init__(
        self, store: StateStore, options: StreamOptions, errors: ErrorCounts, memory: MemoryBudget
    ) -> None:
        self.store = store
        self.options = options
        self.errors = errors
        self.memory = memory
        self.has_readers: Callable[[], bool] = lambda: True
        self.progress = SinkProgress()
        self.request_barrier: Callable[[], None] = lambda: None
        self.partial_errors: Mapping[str, int] | None = None
        self.forecast = BarrierForecast()
        self.is_for_one_epoch = True
        """Nothing follows its only barrier, ahead of which nothing needs to be emitted."""

    def build(self, node: StreamNode) -> Executor:
        """The executor of `node`, and recursively those of its inputs."""
        info = ExecutorInfo(node.schema, node.stream_key, node.identity)
        return BUILDERS[type(node)](self, node, info)

    def state_table(self, catalog: Any) -> StateTable:
        return StateTable(catalog, self.store)

    def share(self, node: ShareNode, info: ExecutorInfo) -> Executor:
        return self.build(node.input)

    def filter(self, node: FilterNode, info: ExecutorInfo) -> Executor:
        return FilterExecutor(info, self.build(node.input), node.predicate, self.errors)

    def project(self, node: ProjectNode, info: ExecutorInfo) -> Executor:
        return ProjectExecutor(info, self.build(node.input), node.expressions, self.errors)

    def expand(self, node: ExpandNode, info: ExecutorInfo) -> Executor:
        return ExpandExecutor(info, self.build(node.input), node.columns, node.sets)

    def project_set(self, node: ProjectSetNode, info: ExecutorInfo) -> Executor:
        rows = SetRows(node.passed, node.functions, is_outer=node.is_outer)
        input, chunk_rows = self.build(node.input), self.options.chunk_rows
        return ProjectSetExecutor(info, input, rows, node.passed, self.errors, chunk_rows=chunk_rows)

    def hash_agg(self, node: HashAggNode, info: ExecutorInfo) -> Executor:
        options = self.options
        kind: Callable[..., HashAggExecutor] = HashAggExecutor
        if self.partial_errors is not None:
            kind = partial(FinalAggExecutor, partial_errors=self.partial_errors)
        return kind(
            info,
            self.build(node.input),
            node.group_by,
            node.calls,
            self.state_table(node.state_table),
            extreme_tables(node, self.state_table),
            distinct_tables(node, self.state_table),
            ordered_inputs(node, self.state_table),
            self.errors,
            memory=self.memory,
            flush_groups=options.aggregation_flush_groups,
            chunk_rows=options.chunk_rows,
            early_groups=options.aggregation_flush_groups if self.is_for_one_epoch else EARLY_GROUPS,
            forecast=self.forecast,
            is_append_only=node.is_append_only,
            hashes=group_hashes(node),
            groups=self.left_groups(node),
            leave=self.leaving(node),
        )

    def hash_join(self, node: HashJoinNode, info: ExecutorInfo) -> Executor:
        return HashJoinExecutor(
            info,
            [self.build(child) for child in node.inputs],
            join_sides(node, self.state_table, self.memory),
            node.condition,
            self.errors,
            has_pairs=node.kind.has_pairs,
            chunk_rows=self.options.chunk_rows,
            watermarks=join_watermarks(node),
        )

    def top_n(self, node: TopNNode, info: ExecutorInfo) -> Executor:
        window = Window(
            node.groups, node.keys, node.kind, node.offset, node.last, node.width, node.has_number
        )
        return TopNExecutor(
            info,
            self.build(node.input),
            window,
            self.state_table(node.table),
            self.errors,
            is_append_only=node.is_append_only,
            memory=self.memory.share(),
            chunk_rows=self.options.chunk_rows,
        )

    def dynamic_filter(self, node: DynamicFilterNode, info: ExecutorInfo) -> Executor:
        return DynamicFilterExecutor(
            info,
            self.build(node.input),
            node.column,
            node.relation,
            node.bound,
            self.state_table(node.table),
            self.errors,
            chunk_rows=self.options.chunk_rows,
        )

    def emit_on_window_close(self, node: EmitOnWindowCloseNode, info: ExecutorInfo) -> Executor:
        table, rows = self.state_table(node.table), self.options.chunk_rows
        return EmitOnWindowCloseExecutor(
            info, self.build(node.input), node.column, table, self.errors, chunk_rows=rows
        )


    def over_window(self, node: OverWindowNode, info: ExecutorInfo) -> Executor:
        return OverWindowExecutor(
            info,
            self.build(node.input),
            windows_of(node),
            self.state_table(node.table),
            self.errors,
            is_append_only=node.is_append_only,
            memory=self.memory.share(),
            chunk_rows=self.options.chunk_rows,
        )

    def left_groups(self, node: HashAggNode) -> AggGroups | None:
        """The groups of `node` that the executor continues with."""
        return None

    def leaving(self, node: HashAggNode) -> Callable[[AggGroups], None] | None:
        """What gets the groups of `node` at the end."""
        return None

    def materialize(self, node: MaterializeNode, info: ExecutorInfo) -> Executor:
        table = self.state_table(node.table)
        input, rows = self.build(node.input), self.options.chunk_rows
        return MaterializeExecutor(info, input, table, node.conflict, rows, self.errors, lambda: self.has_readers())

    def sink(self, node: SinkNode, info: ExecutorInfo) -> Executor:
        into = node.table.sink_table
        if into is not None:
            return self.table_sink(node, info, into.order)
        return SinkExecutor(info, self.build(node.input), self.sink_writer(node), self.state_table(node.table))

    def table_sink(self, node: SinkNode, info: ExecutorInfo, order: SinkOrder) -> Executor:
        return TableSinkExecutor(
            info,
            self.build(node.input),
            self.state_table(node.table),
            order,
            self.options.chunk_rows,
            lambda: self.request_barrier(),
        )

    def sink_writer(self, node: SinkNode) -> SinkWriter:
        """What delivers the changes of a sink. UnknownConnector, ConnectorError."""
        options, schema = node.table.sink or {}, node.input.schema
        if node.log is None:
            return open_stored_sink(options)
        limits = check_target(options, SinkIdentity(node.table.name, node.table.id), schema)
        log, batches = (self.state_table(each) for each in node.log)
        return LogWriter(node.table.name, schema, log, batches, limits, self.progress)


def extreme_tables(node: HashAggNode, open_table: Callable[[TableCatalog], StateTable]) -> list[ExtremeTable]:
    """The tables of the minima and maxima of an aggregation."""
    found: list[ExtremeTable] = [
        MaterializedInput(each.call, open_table(each.table), each.columns, each.argument) for each in node.kept
    ]
    return found + [OverflowTable(each.call, open_table(each.table), each.columns) for each in node.overflows]


def distinct_tables(node: HashAggNode, open_table: Callable[[TableCatalog], StateTable]) -> list[DistinctTable]:
    """The tables of the values of an aggregation's DISTINCT calls."""
    return [DistinctTable(each.calls, open_table(each.table), each.columns, each.has_counts) for each in node.distinct]


def group_hashes(node: HashAggNode) -> GroupHashes | None:
    """Empty ones, where the tables of the values of DISTINCT calls have them."""
    table = node.state_table
    return None if node.hash_key is None else GroupHashes(table.distribution_key, table.vnode_count, node.hash_key)


def windows_of(node: OverWindowNode) -> Windows:
    """The window functions of a node."""
    reach = reach_within(node.calls, node.groups, node.keys)
    states = tuple(map(len, window_states(node.calls, reach, node.input.schema.types)))
    return Windows(node.groups, node.keys, node.calls, node.width, reach, states)


def ordered_inputs(node: HashAggNode, open_table: Callable[[TableCatalog], StateTable]) -> list[OrderedInput]:
    """The rows of an aggregation's calls that collect."""
    groups = len(node.group_by)
    return [
        OrderedInput(
            each.calls,
            open_table(each.table),
            RowLayout(each.columns, groups, each.keys, each.stream_key, each.is_append_only),
        )
        for each in node.ordered
    ]


def join_sides(
    node: HashJoinNode, open_table: Callable[[TableCatalog], StateTable], memory: MemoryBudget
) -> tuple[JoinSide, JoinSide]:
    """Both inputs of a join, each with a share of `memory`."""
    shown = Shown.UNMATCHED if node.kind.keeps_left else Shown.NONE if node.kind.has_pairs else Shown.MATCHED
    shown_sides = shown, Shown.UNMATCHED if node.kind.keeps_right else Shown.NONE
    left, right = (
        JoinSide(
            JoinInput(child.schema.types, key, child.stream_key or (), is_append_only, is_distinct, is_passing, width,
                      shown),
            open_table(table),
            node.null_safe,
            node.condition is not None,
            memory.share(),
            times,
        )
        for child, key, is_append_only, is_distinct, is_passing, width, shown, table, times in zip(
            node.inputs, zip(*node.keys, strict=True), node.append_only, node.distinct, node.passing, node.widths,
            shown_sides, node.tables, _row_times(node.interval, open_table), strict=True,
        )
    )
    return left, right


def _row_times(
    interval: JoinInterval | None, open_table: Callable[[TableCatalog], StateTable]
) -> list[RowTimes | None]:
    """Of both inputs of a join."""
    if interval is None:
        return [None, None]
    return [
        None if table is None else RowTimes(columns, open_table(table))
        for columns, table in zip(interval.columns, interval.times, strict=True)
    ]


def join_watermarks(node: HashJoinNode) -> JoinWatermarks | None:
    """The watermarks that clean the state of a join; None if none do."""
    widths = node.widths
    is_whole = not node.kind.keeps_right, node.kind.has_pairs and not node.kind.keeps_left

    def outputs(columns: tuple[int, int]) -> tuple[int | None, int | None]:
        left, right = (column if is_shown and column < width else None
                       for column, width, is_shown in zip(columns, widths, is_whole, strict=True))
        return left, None if right is None else widths[0] + right

    if node.interval is not None:
        bounds = node.interval.bounds
        types = node.left.schema.types[bounds.left], node.right.schema.types[bounds.right]
        return IntervalWatermarks(bounds, types, node.kind.counts_partners, outputs((bounds.left, bounds.right)))
    if not node.marked:
        return None
    keys = [node.keys[number] for number in node.marked]
    return KeyWatermarks([
        MarkedKey(key, tuple(column for column in outputs(key) if column is not None)) for key in keys
    ])


class _ActorChain(ExecutorChain):
    """One actor under construction: its leaves are fed by channels."""

    def __init__(
        self,
        builder: ActorBuilder,
        spec: ActorSpec,
        control: Channel | None,
        inputs: Iterator[Sequence[Channel]],
        errors: ErrorCounts,
        pace: BackfillPace,
        outputs: Outputs,
    ) -> None:
        super().__init__(builder.store, builder.options, errors, builder.memory)
        self.request_barrier, self.announce_barrier = builder.request_barrier, builder.announce_barrier
        self.budget = builder.budget
        self.upstream = builder.upstream
        self.spec, self.partial_errors = spec, spec.partial_errors
        self.control = control
        self.inputs = inputs
        self.pace, self.outputs = pace, outputs
        self.forecast = builder.forecast()
        self.watermark_of = builder.watermark_of
        self.handover, self.is_for_one_epoch = builder.handover, builder.is_for_one_epoch
        self.sources: list[SourceExecutor] = []
        self.row_id_gen_of_actor: RowIdGenExecutor | None = None
        self.statements: DmlExecutor | None = None
        self.cpu_clock: Callable[[], float] = lambda: 0.0
        self.backfilled: Callable[[], None] = lambda: None
        self.meters: dict[int, ExecutorMeter] = {}
        """By the position of the node in the fragment, in pre-order."""
        self.executors: dict[int, Executor] = {}
        """By the same."""
        self.row_cache_bytes = builder.row_cache_bytes
        self.all_sources, self.all_row_ids = builder.sources, builder.row_ids
        self.row_ids_after_ms = builder.row_ids_after_ms
        self.on_idle = partial(builder.on_idle, spec.actor_id)
        self.more = builder.more
        self._positions = {id(node): position for position, node in enumerate(spec.root.walk())}

    def build(self, node: StreamNode) -> Executor:
        position = self._positions[id(node)]
        meter = self.meters[position] = ExecutorMeter()
        further = self.more.get(type(node))
        if further is not None:
            executor = further(self, node, ExecutorInfo(node.schema, node.stream_key, node.identity))
        else:
            executor = super().build(node)
        self.executors[position] = executor
        return MeteredExecutor(executor, meter)

    def state_table(self, catalog: TableCatalog) -> StateTable:
        """A table of this fragment. An actor owns the vnodes of tables that are distributed; in the others it has rows
        of its own."""
        vnodes = self.spec.vnodes if catalog.distribution_key else None
        return StateTable(catalog, self.store, vnodes, budget=self.budget, row_cache_bytes=self.row_cache_bytes)

    def position(self) -> SourcePosition | None:
        """The position of the actor's source, None without one."""
        return self.sources[0].position if self.sources else None

    def blamed(self, error: BaseException) -> int | None:
        """The actor of the sink whose rows the table cannot hold."""
        if self.statements is None or not isinstance(error, StatementError):
            return None
        return self.statements.writer

    def head_channel(self) -> Channel:
        """The channel of barriers and statements, which every actor without upstreams has."""
        assert self.control is not None
        return self.control

    def dml(self, node: DmlNode, info: ExecutorInfo) -> Executor:
        rows = None if self.spec.first_rows is None else self.spec.first_rows.take()
        self.statements = DmlExecutor(
            info, self.head_channel(), node.table, self.spec.actor_id, rows, self.request_barrier
        )
        return self.statements

    def source(self, node: SourceNode, info: ExecutorInfo) -> Executor:
        readers, find_splits = self.readers(node)
        settings = settings_of(node.table)
        source = SourceExecutor(
            info,
            self.head_channel(),
            readers,
            self.state_table(node.offset_table),
            self.options.chunk_rows,
            self.options.checkpoint_rows,
            self.request_barrier,
            read_columns(node.table, node.columns),
            connector=settings.connector,
            skips_malformed=settings.skips_malformed,
            skip=self.spec.skip,
            skippable=self.spec.skippable,
            is_resumed=self.spec.is_resumed,
            errors=self.errors,
            forecast=self.forecast,
            announce_barrier=self.announce_barrier,
            find_splits=find_splits,
            discovery_seconds=self.options.split_discovery_ms / 1_000,
            cpu_clock=lambda: self.cpu_clock(),
            rate_limit=-(-settings.rate_limit // self.spec.siblings),
            start=settings.start,
            may_read=lambda: not self.progress.is_full,
            committed_epoch=lambda: self.store.committed_epoch,
            on_idle=self.on_idle,
            receivers=self.outputs,
        )
        self.sources.append(source)
        self.all_sources[self.spec.actor_id] = source
        return source

    def readers(self, node: SourceNode) -> tuple[dict[str, SplitReader], FindSplits | None]:
        """A reader for each split of the actor, and how it finds further ones; without splits the connector is not even
        opened. Splits that are added while the job runs are divided among its actors by a hash of their names."""
        spec = self.spec
        if spec.splits is None:
            return {}, None
        connector = connector_of(node.table)

        def find_splits(known: Collection[str]) -> dict[str, SplitReader]:
            listed = set(connector.enumerator().list_splits()).difference(spec.all_splits)
            mine = [each for each in sorted(listed) if crc32(each.encode()) % spec.siblings == spec.number]
            return opened(each for each in mine if node.split_prefix + each not in known)

        def opened(splits: Iterable[str]) -> dict[str, SplitReader]:
            return {
                node.split_prefix + split: open_reader(connector, split, node.columns, node.filters)
                for split in splits
            }

        return opened(spec.splits), find_splits if self.options.split_discovery_ms else None

    def watermark_filter(self, node: WatermarkFilterNode, info: ExecutorInfo) -> Executor:
        input = self.build(node.input)
        if isinstance(node.input, DmlNode):
            state = self.state_table(node.table)
            return TableWatermarkExecutor(info, input, node.input.table, state, self.errors)
        return WatermarkFilterExecutor(
            info,
            input,
            self.sources[-1],
            node.column,
            node.delay,
            self.state_table(node.table),
            self.errors,
            self.watermark_of(self.spec),
            self.spec.number,
            idle_seconds=self.options.watermark_idle_ms / 1_000,
        )

    def row_id_gen(self, node: RowIdGenNode, info: ExecutorInfo) -> Executor:
        vnodes = None if self.spec.vnodes is None else np.flatnonzero(self.spec.vnodes)
        executor = RowIdGenExecutor(
            info, self.build(node.input), self.spec.table, node.row_id_index, vnodes, self.row_ids_after_ms)
        self.all_row_ids[self.spec.actor_id] = self.row_id_gen_of_actor = executor
        return executor

    def partial_agg(self, node: PartialAggNode, info: ExecutorInfo) -> Executor:
        """Rows of a fragment with one actor are passed on: it gains little, and another one takes a part of the work.
        """
        input = self.build(node.input)
        if not node.is_forced and self.spec.siblings == 1:
            return input
        options, bytes = self.options, min(self.memory.limit_bytes, PARTIAL_AGG_BYTES)
        return PartialAggExecutor(
            info, input, node.group_by, node.calls, node.state_table, self.errors, cache_bytes=bytes,
            chunk_rows=options.chunk_rows, reduction=None if node.is_forced else Reduction(),
            sends_rows=node.sends_rows, forecast=self.forecast,
        )

    def left_groups(self, node: HashAggNode) -> AggGroups | None:
        spec = self.spec
        if self.handover is None or spec.is_detached:
            return None
        return self.handover.take(spec.job_id, node.state_table.id, spec.vnodes)

    def leaving(self, node: HashAggNode) -> Callable[[AggGroups], None] | None:
        spec = self.spec
        if self.handover is None or not (spec.is_detached or self.is_for_one_epoch):
            return None
        return partial(self.handover.leave, spec.job_id, node.state_table.id, spec.vnodes)

    def merge(self, node: MergeNode, info: ExecutorInfo) -> Executor:
        return MergeExecutor(info, next(self.inputs), self.options.chunk_rows, self.forecast)

    def union(self, node: UnionNode, info: ExecutorInfo) -> Executor:
        """One merge of the channels of all branches [R11]."""
        return MergeExecutor(info, [channel for _ in node.branches for channel in next(self.inputs)],
                             self.options.chunk_rows, self.forecast)

    def temporal_join(self, node: TemporalJoinNode, info: ExecutorInfo) -> Executor:
        return TemporalJoinExecutor(
            info,
            [self.build(child) for child in node.inputs],
            StorageTable(node.table, self.upstream, node.columns),
            node.key,
            node.pk,
            node.right.stream_key or (),
            node.condition,
            self.errors,
            keeps_left=node.kind.keeps_left,
            memory=self.memory.share(),
            chunk_rows=self.options.chunk_rows,
        )

    def delta_join(self, node: DeltaJoinNode, info: ExecutorInfo) -> Executor:
        return DeltaJoinExecutor(
            info,
            [self.build(child) for child in node.inputs],
            list(map(self.stored_rows, node.stored, zip(*node.keys, strict=True))),
            node.condition,
            self.errors,
            chunk_rows=self.options.chunk_rows,
            since=self.spec.since,
            request_barrier=self.request_barrier,
        )

    def stored_rows(self, stored: StoredInput, keys: Sequence[int]) -> StoredRows:
        table, progress = stored.table, stored.progress
        behind = [column for column in table.pk_indices if column not in stored.columns]
        return StoredRows(
            StorageTable(table, self.upstream, (*stored.columns, *behind)),
            tuple(keys),
            stored.prefix,
            tuple(table.schema.types[column] for column in stored.columns),
            None if progress is None else StateTable(progress, self.upstream),
        )

    def stream_scan(self, node: StreamScanNode, info: ExecutorInfo) -> Executor:
        spec, options = self.spec, self.options
        progress = None if node.progress is None else StateTable(node.progress, self.store, budget=self.budget)
        positions = ScanPositions(node.table, progress, spec.vnodes, is_loaded=spec.is_loaded)
        if spec.is_detached:
            return SnapshotBackfillExecutor(
                info,
                MergeExecutor(info, [self.head_channel()], options.chunk_rows, self.forecast),
                StorageTable(node.table, self.upstream, node.columns),
                positions,
                self.pace,
                options.chunk_rows,
                slice_rows=options.snapshot_slice_rows,
                finished=lambda: self.backfilled(),
            )
        return BackfillExecutor(
            info,
            MergeExecutor(info, next(self.inputs), None, self.forecast),
            lambda table, columns: StorageTable(table, self.upstream, columns),
            node.table,
            node.columns,
            positions,
            self.pace,
            options.chunk_rows,
            slice_rows=options.snapshot_slice_rows,
            since=spec.since,
            finished=lambda: self.backfilled(),
        )


BUILDERS: BuilderFunctions = {
    DmlNode: _ActorChain.dml,
    SourceNode: _ActorChain.source,
    WatermarkFilterNode: _ActorChain.watermark_filter,
    RowIdGenNode: _ActorChain.row_id_gen,
    StreamScanNode: _ActorChain.stream_scan,
    MergeNode: _ActorChain.merge,
    UnionNode: _ActorChain.union,
    ShareNode: ExecutorChain.share,
    FilterNode: ExecutorChain.filter,
    ProjectNode: ExecutorChain.project,
    ExpandNode: ExecutorChain.expand,
    ProjectSetNode: ExecutorChain.project_set,
    HashAggNode: ExecutorChain.hash_agg,
    PartialAggNode: _ActorChain.partial_agg,
    HashJoinNode: ExecutorChain.hash_join,
    TemporalJoinNode: _ActorChain.temporal_join,
    DeltaJoinNode: _ActorChain.delta_join,
    TopNNode: ExecutorChain.top_n,
    DynamicFilterNode: ExecutorChain.dynamic_filter,
    EmitOnWindowCloseNode: ExecutorChain.emit_on_window_close,
    OverWindowNode: ExecutorChain.over_window,
    MaterializeNode: ExecutorChain.materialize,
    SinkNode: ExecutorChain.sink,
}
