"""ActorBuilder: turns a tree of stream nodes into a chain of executors with open tables and channels.

There is one builder function per node type, in the table BUILDERS; a new executor is a new row of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from relational.expr import ErrorCounts
from relational.table.state_table import StateTable
from relational.table.storage_table import StorageTable
from stream.connector.base import CONNECTOR_OPTION, SplitReader, connector_of, open_reader, settings_of
from stream.connector.sink import SinkIdentity, SinkWriter, check_target, open_stored_sink
from stream.connector.sink_log import LogWriter, SinkProgress
from stream.error_counts import RunningErrorCounts, StoredErrorCounts
from stream.errors import ConnectorError, SourcePosition
from stream.executor.agg_state import MaterializedInput
from stream.executor.backfill import BackfillExecutor, history_of
from stream.executor.base import Executor, ExecutorInfo
from stream.executor.dml import DmlExecutor
from stream.executor.filter import FilterExecutor
from stream.executor.hash_agg import HashAggExecutor
from stream.executor.materialize import MaterializeExecutor
from stream.executor.project import ProjectExecutor
from stream.executor.row_id_gen import RowIdGenExecutor
from stream.executor.sink import SinkExecutor
from stream.executor.source import FindSplits, SourceExecutor, read_columns
from stream.options import StreamOptions
from stream.plan.stream_plan import (
    DmlNode,
    FilterNode,
    HashAggNode,
    MaterializeNode,
    ProjectNode,
    RowIdGenNode,
    SinkNode,
    SourceNode,
    StreamNode,
    StreamScanNode,
)
from stream.protocol import ActorSpec
from stream.runtime.actor import Actor, ActorObserver
from stream.runtime.channel import Channel
from stream.runtime.dispatch import BroadcastDispatcher
from stream.runtime.run_slots import RunSlots

if TYPE_CHECKING:
    from hummock.state_store import StateStore


NO_SOURCE_TO_WAIT = "when_full = 'wait' needs a query that reads a source itself: a table does not wait for its readers"


class ActorBuilder:
    """Builds actors over one store. A source calls `request_barrier` when it has read enough. `errors` holds the counts
    of the running actors. `sink_progress(job_id)`: what the actor of a sink shares with its delivering thread."""

    def __init__(
        self,
        store: StateStore,
        options: StreamOptions,
        request_barrier: Callable[[], None],
        sink_progress: Callable[[int], SinkProgress] = lambda job_id: SinkProgress(),
    ) -> None:
        self.store = store
        self.options = options
        self.request_barrier = request_barrier
        self.sink_progress = sink_progress
        self.errors = RunningErrorCounts()

    def build(
        self,
        spec: ActorSpec,
        control: Channel | None,
        upstreams: Sequence[Channel],
        observer: ActorObserver,
        run_slots: RunSlots,
    ) -> Actor:
        """An actor that is not yet started. `control` carries barriers and statements to an actor without upstreams;
        `upstreams` are those of the plan's scans, in pre-order from the root."""
        errors = self.errors.open(spec.root.table)
        chain = _ActorChain(self.store, self.options, self.request_barrier, spec, control, iter(upstreams), errors)
        chain.progress = self.sink_progress(spec.job_id)
        dispatcher = BroadcastDispatcher(spec.actor_id)
        chain.has_readers = lambda: bool(dispatcher.targets)
        return Actor(spec.actor_id, chain.build(spec.root), dispatcher, observer, run_slots, chain.position)


class ExecutorChain:
    """Executors under construction, over one store; they count into `errors`. This class builds the executors that read
    nothing but their input."""

    def __init__(self, store: StateStore, options: StreamOptions, errors: ErrorCounts) -> None:
        self.store = store
        self.options = options
        self.errors = errors
        self.has_readers: Callable[[], bool] = lambda: True
        self.progress = SinkProgress()

    def build(self, node: StreamNode) -> Executor:
        """The executor of `node`, and recursively those of its inputs."""
        info = ExecutorInfo(node.schema, node.stream_key, node.identity)
        return BUILDERS[type(node)](self, node, info)

    def state_table(self, catalog: Any) -> StateTable:
        return StateTable(catalog, self.store)

    def filter(self, node: FilterNode, info: ExecutorInfo) -> Executor:
        return FilterExecutor(info, self.build(node.input), node.predicate, self.errors)

    def project(self, node: ProjectNode, info: ExecutorInfo) -> Executor:
        return ProjectExecutor(info, self.build(node.input), node.expressions, self.errors)

    def hash_agg(self, node: HashAggNode, info: ExecutorInfo) -> Executor:
        options = self.options
        kept = [
            MaterializedInput(each.call, self.state_table(each.table), each.columns, each.argument)
            for each in node.kept
        ]
        return HashAggExecutor(
            info,
            self.build(node.input),
            node.group_by,
            node.calls,
            self.state_table(node.state_table),
            kept,
            self.errors,
            cache_bytes=options.aggregation_cache_bytes,
            flush_groups=options.aggregation_flush_groups,
            chunk_rows=options.chunk_rows,
        )

    def materialize(self, node: MaterializeNode, info: ExecutorInfo) -> Executor:
        table = self.state_table(node.table)
        input, rows = self.build(node.input), self.options.chunk_rows
        return MaterializeExecutor(
            info, input, table, node.conflict, rows, self.stored_errors(node), self.errors, self.has_readers
        )

    def sink(self, node: SinkNode, info: ExecutorInfo) -> Executor:
        table, errors = self.state_table(node.table), self.stored_errors(node)
        return SinkExecutor(info, self.build(node.input), self.sink_writer(node), table, errors)

    def sink_writer(self, node: SinkNode) -> SinkWriter:
        """What delivers the changes of a sink. UnknownConnector, ConnectorError."""
        options, schema = node.table.sink or {}, node.input.schema
        if node.log is None:
            return open_stored_sink(options)
        limits = check_target(options, SinkIdentity(node.table.name, node.table.id), schema)
        if limits.waits and not any(isinstance(each, SourceNode) for each in node.walk()):
            raise ConnectorError(options.get(CONNECTOR_OPTION, ""), NO_SOURCE_TO_WAIT)
        log, batches = (self.state_table(each) for each in node.log)
        return LogWriter(node.table.name, schema, log, batches, limits, self.progress)

    def stored_errors(self, node: MaterializeNode | SinkNode) -> StoredErrorCounts | None:
        """The counts of the chain in their table, None if the job has none."""
        if node.error_table is None:
            return None
        return StoredErrorCounts(self.errors, self.state_table(node.error_table))


class _ActorChain(ExecutorChain):
    """One actor under construction: its leaves are fed by channels."""

    def __init__(
        self,
        store: StateStore,
        options: StreamOptions,
        request_barrier: Callable[[], None],
        spec: ActorSpec,
        control: Channel | None,
        upstreams: Iterator[Channel],
        errors: ErrorCounts,
    ) -> None:
        super().__init__(store, options, errors)
        self.request_barrier = request_barrier
        self.spec = spec
        self.control = control
        self.upstreams = upstreams
        self.sources: list[SourceExecutor] = []

    def position(self) -> SourcePosition | None:
        """The position of the actor's source, None without one."""
        return self.sources[0].position if self.sources else None

    def head_channel(self) -> Channel:
        """The channel of barriers and statements, which every actor without upstreams has."""
        assert self.control is not None
        return self.control

    def dml(self, node: DmlNode, info: ExecutorInfo) -> Executor:
        return DmlExecutor(info, self.head_channel(), node.table)

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
            errors=self.errors,
            most_chunk_rows=self.options.source_chunk_rows,
            find_splits=find_splits,
            discovery_seconds=self.options.split_discovery_ms / 1_000,
            rate_limit=settings.rate_limit,
            start=settings.start,
            may_read=lambda: not self.progress.is_full,
            committed_epoch=lambda: self.store.committed_epoch,
        )
        self.sources.append(source)
        return source

    def readers(self, node: SourceNode) -> tuple[dict[str, SplitReader], FindSplits | None]:
        """A reader for each split of the actor, and how it finds further ones; without splits the connector is not even
        opened."""
        if self.spec.splits is None:
            return {}, None
        connector = connector_of(node.table)

        def find_splits(known: Collection[str]) -> dict[str, SplitReader]:
            listed = connector.enumerator().list_splits()
            return {split: opened(split) for split in listed if split not in known}

        def opened(split: str) -> SplitReader:
            return open_reader(connector, split, node.columns, node.filters)

        readers = {split: opened(split) for split in self.spec.splits}
        return readers, find_splits if self.options.split_discovery_ms else None

    def row_id_gen(self, node: RowIdGenNode, info: ExecutorInfo) -> Executor:
        return RowIdGenExecutor(info, self.build(node.input), self.spec.root.table, node.row_id_index)

    def stream_scan(self, node: StreamScanNode, info: ExecutorInfo) -> Executor:
        history = None
        if self.spec.is_new:
            history = history_of(StorageTable(node.table, self.store, node.columns), self.spec.loaded_at)
        rows = self.options.chunk_rows
        return BackfillExecutor(info, next(self.upstreams), node.table, node.columns, history, rows)


BUILDERS: Mapping[type[StreamNode], Callable[[Any, Any, ExecutorInfo], Executor]] = {
    DmlNode: _ActorChain.dml,
    SourceNode: _ActorChain.source,
    RowIdGenNode: _ActorChain.row_id_gen,
    StreamScanNode: _ActorChain.stream_scan,
    FilterNode: ExecutorChain.filter,
    ProjectNode: ExecutorChain.project,
    HashAggNode: ExecutorChain.hash_agg,
    MaterializeNode: ExecutorChain.materialize,
    SinkNode: ExecutorChain.sink,
}
