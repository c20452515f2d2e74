"""Playground: all roles in one process over one store; with an engine, the actors run elsewhere.

It claims the writer role, so a process that had the store open as a writer is fenced from its next commit on. The
playground owns the stores that are passed to it."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias
from weakref import WeakSet

from hummock.base.closing import ClosedAtExit, close_all
from hummock.base.foreground import ForegroundWork
from hummock.base.logs import Event
from hummock.base.process import use_system_arrow_pool
from hummock.epoch import Clock, Epoch, EpochGenerator, wall_clock_ms
from hummock.errors import WriterRunning
from hummock.maintenance import Maintenance
from hummock.meta import open_meta_store
from hummock.meta.commit_socket import CommitAnnouncer
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.store.base import MetaStore
from hummock.meta.writer_process import running_writer
from hummock.meta_client import WriterSession
from hummock.metrics import Metrics, serve_metrics
from hummock.object_store import open_object_store
from hummock.object_store.base import ObjectStore
from hummock.options import CompactionOptions, StorageOptions
from hummock.store.staging_store import StagingStore
from hummock.store.stats import COUNTED
from hummock.store.storage import HummockStorage
from relational.batch.query_memory import COUNTED as QUERY_COUNTED
from relational.batch.query_memory import QueryMemory
from relational.catalog.job_failure import JobFailure
from relational.catalog.manager import CatalogManager
from relational.catalog.objects import TableCatalog
from relational.catalog.snapshot import CatalogSnapshot
from relational.memory_budget import MemoryBudget
from relational.table.scan_positions import stored_since
from relational.table.storage_table import StorageTable
from relational.table.store_rules import missing_rules
from stream.actor_metrics import ActorMetrics, FragmentFigures
from stream.connector.file_rows import open_file_rows
from stream.connector.sink_log import SinkProgress
from stream.error_counts import RunningErrorCounts
from stream.job_memory import OperatorMemory
from stream.job_profile import FragmentProfile
from stream.meta.meta_node import HummockCommitter, MetaNode, NodePins
from stream.options import StreamOptions, cache_bytes_of, query_limits
from stream.protocol import Step, StepObserver, unobserved
from stream.runtime.actor_pool import ActorPool
from stream.sink_delivery import SinkDeliveries
from stream.worker.actor_builder import ActorBuilder
from stream.worker.compute_node import ComputeNode
from stream.worker.detached_worker import DetachedWorker
from stream.worker.session_worker import SessionWorker
from stream.worker.state_handover import StateHandover

log = logging.getLogger(__name__)
CLOSE_SECONDS = 60.0
"""How long `close()` waits for a commit under way."""
MOST_THREADS = 8
"""Threads that run actors, at most: beyond a few, waiting for the interpreter's lock costs more than they gain."""


@dataclass(frozen=True, slots=True)
class PlaygroundOptions:
    """The options of all layers."""

    stream: StreamOptions = field(default_factory=StreamOptions)
    storage: StorageOptions = field(default_factory=StorageOptions)
    compaction: CompactionOptions = field(default_factory=CompactionOptions)
    is_maintained: bool = True
    """Whether compaction and vacuum run in this process; otherwise other processes run them."""


@dataclass(frozen=True, slots=True)
class WorkerPorts:
    """What a worker is connected with: the store that it writes, whom it notifies, what sinks share with those who
    deliver, and the counts of rows without a value."""

    storage: HummockStorage
    options: StreamOptions
    on_failure: Callable[[BaseException], None]
    observer: StepObserver
    request_barrier: Callable[[], None]
    sink_progress: Callable[[int], SinkProgress]
    errors: RunningErrorCounts


OpenWorker: TypeAlias = Callable[[WorkerPorts], SessionWorker]


class Playground:
    """Meta side, compute node and storage, running from construction until close()."""

    def __init__(
        self,
        object_store: ObjectStore,
        meta_store: MetaStore,
        options: PlaygroundOptions | None = None,
        *,
        observer: StepObserver = unobserved,
        clock: Clock = wall_clock_ms,
        random_bytes: Callable[[int], bytes] = os.urandom,
        metrics: Metrics | None = None,
        engine: OpenWorker | None = None,
    ) -> None:
        options = options or PlaygroundOptions()
        if engine is not None:
            options = replace(options, stream=replace(options.stream, in_flight_barriers=1, checkpoint_frequency=1))
        self.options, self.is_divided = options, engine is not None
        self.url = object_store.url
        self.object_store, self.meta_store = object_store, meta_store
        self.feeds: WeakSet[ClosedAtExit] = WeakSet()
        """Readers of changes, which end with it."""
        self.metrics = metrics or Metrics()
        self._state_memory = MemoryBudget(cache_bytes_of(options.stream))
        self.node_name = f"playground-{random_bytes(8).hex()}"
        with contextlib.ExitStack() as undo:
            undo.callback(object_store.close)
            undo.callback(meta_store.close)
            self._writer = self._open_store(object_store, meta_store, random_bytes, undo)
            self._announcer = None if self.url.startswith("memory:") else CommitAnnouncer(meta_store.url)
            if self._announcer is not None:
                undo.callback(self._announcer.close)
            self._check_functions(self.catalog.refresh())
            self._set_missing_rules()
            self.deliveries = SinkDeliveries(self.catalog, self.storage, self.storage.snapshot)
            undo.callback(self.deliveries.close)
            pool = ActorPool(min(os.cpu_count() or 1, MOST_THREADS))
            self.node = self._compute_node(pool) if engine is None else self._worker_of(engine)
            self.metrics.registry.register(self.errors)
            undo.callback(self.metrics.registry.unregister, self.errors)
            self.meta = MetaNode(
                self.catalog,
                HummockCommitter(self.manager, self._writer, self.node.pending.operations),
                self.node,
                EpochGenerator(clock, self.manager.committed_epoch),
                options.stream,
                NodePins(self.manager, self.node_name),
                self._open_detached,
                self._stored_since,
                lambda table_ids: sum(self.storage.table_bytes(table_ids).values()),
                self._delivering(observer),
                divides_actors=engine is not None,
            )
            self.metrics_url = self._serve_metrics(pool, undo)
            undo.callback(self.meta.close, CLOSE_SECONDS)
            self.meta.start()
            self._begin_maintenance()  # now epochs that interrupted jobs need are pinned
            self.deliveries.committed()
            undo.callback(close_all, self.feeds)
            self._undo = undo.pop_all()
        log.info(Event("session opened", url=self.url, role="writer", epoch=self.manager.committed_epoch,
                       version=self.manager.version.id, metrics=self.metrics_url))

    def _compute_node(self, pool: ActorPool) -> SessionWorker:
        """The worker of this process."""
        self._handover = StateHandover()
        builder = ActorBuilder(
            self.storage,
            self.options.stream,
            lambda: self.meta.request_barrier(),
            self.deliveries.progress,
            handover=self._handover,
            memory=self._state_memory,
            announce_barrier=lambda: self.meta.announce_barrier(),
        )
        self.errors = builder.errors
        return ComputeNode(
            self.storage,
            builder,
            self.options.stream,
            pool,
            lambda error: self.meta.fail(error),
            lambda step, epoch: self.meta.observe(step, epoch),
            lambda: self.meta.request_barrier(),
            self._foreground,
            self.storage.expect_sync,
        )

    def _worker_of(self, engine: OpenWorker) -> SessionWorker:
        """The worker that `engine` opens, which divides the actors that it gets."""
        self.errors, self._handover = RunningErrorCounts(), StateHandover()
        return engine(WorkerPorts(
            self.storage,
            self.options.stream,
            lambda error: self.meta.fail(error),
            lambda step, epoch: self.meta.observe(step, epoch),
            lambda: self.meta.request_barrier(),
            self.deliveries.progress,
            self.errors,
        ))

    def _serve_metrics(self, pool: ActorPool, undo: contextlib.ExitStack) -> str | None:
        """Adds the figures of actors and barriers; the URL of all metrics, if they are served."""
        actors = ActorMetrics(
            self.fragments, lambda: pool.ready_actors, lambda: self.meta.figures, self.node.recent_epochs)
        self.metrics.registry.register(actors)
        undo.callback(self.metrics.registry.unregister, actors)
        port = self.options.stream.metrics_port
        return undo.enter_context(serve_metrics(self.metrics, port)) if port >= 0 else None

    def _open_store(
        self,
        object_store: ObjectStore,
        meta_store: MetaStore,
        random_bytes: Callable[[int], bytes],
        undo: contextlib.ExitStack,
    ) -> WriterSession:
        """Creates manager, catalog, storage and maintenance; returns the writer role that was claimed."""
        options = self.options
        self._begin_maintenance: Callable[[], object] = lambda: None
        self._foreground = ForegroundWork()  # checkpoints
        self.manager = HummockManager(
            meta_store, object_store, compaction=options.compaction, metrics=self.metrics, random_bytes=random_bytes
        )
        undo.callback(self.manager.close)
        self.catalog = CatalogManager(
            meta_store, self.manager.notifications, allows_functions=options.stream.allow_user_functions,
            open_rows=open_file_rows,
        )
        self._check_functions(self.catalog.snapshot)
        writer = self.manager.claim_writer(self.node_name)
        self.storage = HummockStorage(
            self.manager,
            object_store,
            options.storage,
            session=writer,
            node=self.node_name,
            metrics=self.metrics,
            compaction=options.compaction if options.is_maintained else None,
        )
        undo.callback(self.storage.close)
        self.metrics.watch(self.storage.stats, COUNTED)
        self.query_memory = QueryMemory(*query_limits(options.stream))
        self.metrics.watch(lambda: self.query_memory.counts, QUERY_COUNTED)
        self.storage.follow_versions()
        if options.is_maintained:
            maintenance = Maintenance(self.manager, meta_store, object_store, foreground=self._foreground)
            undo.callback(maintenance.close)
            self._begin_maintenance = maintenance.start
        return writer

    def _check_functions(self, known: CatalogSnapshot) -> None:
        """FunctionsNotAllowed if a job calls functions that may not run: before another process is fenced, and again
        for what it did until then."""
        self.catalog.check_functions(known.jobs())

    def _set_missing_rules(self) -> None:
        """Registers the rules of tables that a release created which registered none."""
        missing = missing_rules(self.catalog.snapshot.tables.values(), self.manager.version.tables)
        if missing:
            self.manager.set_rules(self._writer, missing)

    def _open_detached(self, request: Callable[[], None]) -> DetachedWorker:
        """The worker of a job that is being created apart from the graph."""
        return DetachedWorker(
            StagingStore(self.storage),
            self.storage,
            self.options.stream,
            max(1, min(os.cpu_count() or 1, MOST_THREADS) // 2),
            request,
            lambda load_id: self.manager.load_answer(load_id) is not None,
            self._handover,
            lambda: self.node.is_busy,
            self._state_memory,
        )

    def _stored_since(self, table: TableCatalog) -> Epoch | None:
        """See `scan_positions.stored_since`."""
        with self.storage.snapshot() as epoch:
            return stored_since(StorageTable(table, self.storage), epoch)

    def _delivering(self, observer: StepObserver) -> StepObserver:
        """The observer; and the sinks and other processes, which are notified of each commit."""

        def observed(step: Step, epoch: int) -> None:
            observer(step, epoch)
            if step is Step.NOTIFY:
                if self._announcer is not None:
                    self._announcer.announce(Epoch(epoch))
                self.deliveries.committed()

        return observed

    def fragments(self) -> list[FragmentFigures]:
        """Figures of all running fragments, those apart from the graph last."""
        apart = [figures for worker in self.meta.detached_workers().values() for figures in worker.fragments()]
        return [*self.node.fragments(), *apart]

    def memory(self) -> list[OperatorMemory]:
        """What the executors of all running jobs keep in memory, those apart from the graph last."""
        apart = [use for worker in self.meta.detached_workers().values() for use in worker.memory()]
        return [*self.node.memory(), *apart]

    def profile(self, table: TableCatalog, interval: Callable[[], None]) -> Sequence[FragmentProfile]:
        """Measures the fragments of a job while `interval()` waits. JobNotRunning, ProfileInterrupted."""
        worker = self.meta.detached_workers().get(table.id)
        return (self.node if worker is None else worker).profile(table.id, table.name, interval)

    def failed_jobs(self) -> Mapping[int, JobFailure]:
        """The jobs that are set aside, by id."""
        return self.meta.failures.failed()

    def settle(self, tables: Iterable[int], known: CatalogSnapshot) -> None:
        """Returns at once: the catalog knows what a commit did when the storage has it."""

    def check_serves(self) -> None:
        """Raises Fenced if another process has the writer role by now."""
        self.manager.check_writer(self._writer)

    def close(self) -> None:
        """Close everything; uncommitted changes are lost. Idempotent."""
        self._undo.close()


def open_playground(url: str, options: PlaygroundOptions | None = None, *, meta: str | None = None,
                    accept_rollback: bool = False, engine: OpenWorker | None = None, create: bool = True,
                    take_over: bool = True) -> Playground:
    """A playground on any URL that `hummock.open` accepts, with its metadata at `meta`; its actors are run by the
    worker that `engine` opens, by default in this process. InvalidOption; StoreNotFound unless `create`; WriterRunning
    unless `take_over`; MetaStoreRolledBack if an older copy of the metadata was restored, unless `accept_rollback`."""
    if options is None or options.stream.system_arrow_pool:
        use_system_arrow_pool()
    metrics = Metrics()
    object_store = open_object_store(url, metrics=metrics, create=create)
    with contextlib.ExitStack() as undo:
        undo.callback(object_store.close)
        meta_store = open_meta_store(
            url, meta, object_store=object_store, create=create, accept_rollback=accept_rollback
        )
        undo.callback(meta_store.close)
        running = None if take_over else running_writer(meta_store)
        if running is not None:
            raise WriterRunning(url, running.node, running.host, running.pid, running.since_ms)
        undo.pop_all()
    return Playground(object_store, meta_store, options, metrics=metrics, engine=engine)
