"""ActorBuilder: a tree of stream nodes becomes a chain of executors with open tables and channels.

One builder function per kind of node, in one table; a new executor is a new row of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from relational.table.state_table import StateTable
from relational.table.storage_table import StorageTable
from stream.actor import Actor, ActorObserver
from stream.backfill.executor import BackfillExecutor, history_of
from stream.connector.base import SplitReader, open_connector
from stream.control import CONNECTOR_OPTION, ActorSpec
from stream.exchange.channel import Channel
from stream.exchange.dispatch import BroadcastDispatcher
from stream.exchange.turns import Turns
from stream.executor.agg_state import MaterializedInput
from stream.executor.base import Executor, ExecutorInfo
from stream.executor.dml import DmlExecutor
from stream.executor.filter import FilterExecutor
from stream.executor.hash_agg import HashAggExecutor
from stream.executor.materialize import MaterializeExecutor
from stream.executor.project import ProjectExecutor
from stream.executor.row_id_gen import RowIdGenExecutor
from stream.executor.source import SourceExecutor
from stream.options import StreamOptions
from stream.plan.stream_plan import (
    DmlNode,
    FilterNode,
    HashAggNode,
    MaterializeNode,
    ProjectNode,
    RowIdGenNode,
    SourceNode,
    StreamNode,
    StreamScanNode,
)

if TYPE_CHECKING:
    from hummock.state_store import StateStore


class ActorBuilder:
    """Builds actors over one store. `request_barrier` is what a source calls when it has read enough."""

    def __init__(self, store: StateStore, options: StreamOptions, request_barrier: Callable[[], None]) -> None:
        self.store = store
        self.options = options
        self.request_barrier = request_barrier

    def build(
        self,
        spec: ActorSpec,
        control: Channel | None,
        upstreams: Sequence[Channel],
        observer: ActorObserver,
        turns: Turns,
    ) -> Actor:
        """An actor that is not yet started. `control` brings barriers and statements to a head without
        upstreams; `upstreams` belong to the plan's scans in the order of a walk from the root."""
        executor = _ActorChain(self.store, self.options, self.request_barrier, spec, control, iter(upstreams)).build(
            spec.root
        )
        return Actor(spec.actor_id, executor, BroadcastDispatcher(spec.actor_id), observer, turns)


class ExecutorChain:
    """Executors under construction, over one store. What is fed by nothing but its input is built here."""

    def __init__(self, store: StateStore, options: StreamOptions) -> None:
        self.store = store
        self.options = options

    def build(self, node: StreamNode) -> Executor:
        """The executor of `node`, with those below it."""
        info = ExecutorInfo(node.schema, node.stream_key, node.identity)
        return BUILDERS[type(node)](self, node, info)

    def state_table(self, catalog: Any) -> StateTable:
        return StateTable(catalog, self.store)

    def filter(self, node: FilterNode, info: ExecutorInfo) -> Executor:
        return FilterExecutor(info, self.build(node.input), node.predicate)

    def project(self, node: ProjectNode, info: ExecutorInfo) -> Executor:
        return ProjectExecutor(info, self.build(node.input), node.expressions)

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
            cache_bytes=options.aggregation_cache_bytes,
            flush_groups=options.aggregation_flush_groups,
            chunk_rows=options.chunk_rows,
        )

    def materialize(self, node: MaterializeNode, info: ExecutorInfo) -> Executor:
        table = self.state_table(node.table)
        return MaterializeExecutor(info, self.build(node.input), table, node.conflict, self.options.chunk_rows)


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
    ) -> None:
        super().__init__(store, options)
        self.request_barrier = request_barrier
        self.spec = spec
        self.control = control
        self.upstreams = upstreams

    def head_channel(self) -> Channel:
        """What brings barriers and statements; an actor with a head has it, for it has no upstreams."""
        assert self.control is not None
        return self.control

    def dml(self, node: DmlNode, info: ExecutorInfo) -> Executor:
        return DmlExecutor(info, self.head_channel(), node.table)

    def source(self, node: SourceNode, info: ExecutorInfo) -> Executor:
        return SourceExecutor(
            info,
            self.head_channel(),
            self.readers(node),
            self.state_table(node.offset_table),
            self.options.chunk_rows,
            self.options.checkpoint_rows,
            self.request_barrier,
            node.table,
        )

    def readers(self, node: SourceNode) -> dict[str, SplitReader]:
        """A reader for each split of the actor; without splits the connector is not even opened."""
        if not self.spec.splits:
            return {}
        options = dict(node.table.connector or {})
        connector = open_connector(options.pop(CONNECTOR_OPTION), options, node.table.schema)
        return {split: connector.open_split(split) for split in self.spec.splits}

    def row_id_gen(self, node: RowIdGenNode, info: ExecutorInfo) -> Executor:
        return RowIdGenExecutor(info, self.build(node.input), self.spec.root.table)

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
}
