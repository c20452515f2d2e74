"""EpochRun: the execution of one epoch, as one task in this process or stage by stage as tasks on Spark.

Only the reports of tasks count. Their sum is what the meta side commits: files, watermarks, and which actors have read
all existing rows.
"""

from __future__ import annotations

import builtins
import importlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

from hummock.epoch import Epoch, EpochPair, monotonic_seconds
from hummock.errors import ObjectStoreError
from hummock.object_store.base import sstable_data_path
from stream.connector.base import connector_of, factory_path, settings_of
from stream.epoch_figures import StageFigures
from stream.errors import ActorFailed, SourcePosition, StreamError
from stream.message import Barrier, Proposed, Replayed, Statement
from stream.options import task_cache_bytes
from stream.plan.stream_plan import DynamicFilterNode, SourceNode, StreamScanNode
from stream.protocol import ActorSpec
from stream.spark.epoch_spec import ActorFigures, EpochReport, EpochTask, TaskFailure
from stream.spark.epoch_task import run_actors
from stream.spark.kept_groups import keeps_groups
from stream.spark.shuffle_nodes import SentEdge, ShuffleReadNode
from stream.spark.stages import (
    FIRST_VIRTUAL_ACTOR,
    Segment,
    StageGraph,
    bundled,
    must_run_in_driver,
    ranges_read,
)

if TYPE_CHECKING:
    from hummock.base.key_watermark import KeyWatermark
    from hummock.sstable.info import SstableInfo
    from hummock.store.storage import HummockStorage
    from hummock.version import HummockVersion
    from relational.catalog.objects import TableCatalog
    from stream.options import StreamOptions
    from stream.playground import WorkerPorts

SOURCE_MS = 1_000
"""For which sources read in one epoch on Spark: a few times as long as it takes to start its jobs."""
MOST_SOURCE_MS = 10_000
"""For which sources read in one epoch, however long the interval is."""
TASK_BYTES = 128 << 20
"""Writes that a task buffers in memory."""
MEASURED_ROWS = 32_768
"""Of an edge, from which on the reduction by partial aggregation says something."""
SOURCE_BYTES = 64 << 20
"""What a part of a source counts for where parts of segments are divided among tasks."""
DRIVER_THREADS = 2
"""Threads that run the actors of a task in the process of the driver."""

SentStatement: TypeAlias = "tuple[int, str, Statement | Replayed | Proposed]"
"""A statement with the id and name of its table."""


class EpochTasks(Protocol):
    """Runs tasks of epochs; implemented by `SparkEpochTasks`."""

    @property
    def slots(self) -> int:
        """How many tasks run at once."""
        ...

    @property
    def threads(self) -> int:
        """How many threads a task has."""
        ...

    def run(
        self, name: str, tasks: Sequence[EpochTask], near: Sequence[str], is_cancelled: Callable[[], bool]
    ) -> list[EpochReport]:
        """The reports of the tasks, in their order. `near`: the executor that should run each; empty: any."""
        ...


ActorPart: TypeAlias = tuple[int, int, int]
"""An actor, and which of how many parts of it a task runs."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Groups of an actor that an `attempt` at a task has left in the memory of `executor`."""

    attempt: str
    executor: str


@dataclass(frozen=True, slots=True)
class RunContext:
    """What all epochs of a worker share. Objects are written under names that begin with one of `prefixes`."""

    ports: WorkerPorts
    tasks: EpochTasks
    prefixes: tuple[str, ...]
    is_cancelled: Callable[[], bool]

    @property
    def storage(self) -> HummockStorage:
        return self.ports.storage

    @property
    def options(self) -> StreamOptions:
        return self.ports.options


@dataclass(frozen=True, slots=True)
class OpenEpoch:
    """An epoch to run: the actors that take part, the statements sent in it, and the barrier that ends it.

    `fresh`: actors that have taken part in no committed epoch. `backfilled`: actors that have read all existing rows.
    `delivered_at`: jobs of sinks that have delivered something since their last epoch, up to which epoch. `held`: those
    whose sources wait. `kept`: what tasks of epochs before have left of actors that have not run since.
    `row_ids_ms`: up to which millisecond row ids were given. `uncombined`: aggregations that are to receive rows, not
    states of groups.
    """

    barrier: Barrier
    actors: tuple[ActorSpec, ...]
    statements: tuple[SentStatement, ...]
    fresh: frozenset[int]
    backfilled: frozenset[int]
    is_paused: bool
    loading: frozenset[int]
    delivered_at: Mapping[int, int]
    held: frozenset[int]
    kept: Mapping[ActorPart, Kept]
    row_ids_ms: int
    uncombined: frozenset[int]


class EpochRun:
    """An epoch over `version`, and its result. `rows`: about as many are expected; few are one task in this process."""

    def __init__(self, context: RunContext, epoch: OpenEpoch, version: HummockVersion, rows: int) -> None:
        self.epoch = epoch
        self.sstables: tuple[SstableInfo, ...] = ()
        self.watermarks: dict[int, KeyWatermark] = {}
        self.backfilled: set[int] = set()
        self.ran: set[int] = set()
        self.figures: dict[int, ActorFigures] = {}
        self.source_rows = 0
        self.is_full = False
        self.stages: list[StageFigures] = []
        self.finished: dict[int, set[str]] = {}  # by actor: splits
        self.kept: dict[ActorPart, Kept] = {}
        self.reductions: dict[int, tuple[int, int]] = {}  # by aggregation: rows, and the states made of them
        self.expected_rows, self.row_ids_ms = rows, epoch.row_ids_ms
        self._context, self._version = context, version
        self._in_driver = rows < context.options.driver_rows
        self._graph: StageGraph | None = None
        self._sent: dict[int, list[SentEdge]] = {}  # by edge: of each task of the sender

    def execute(self) -> None:
        """Raises ActorFailed, and the errors of Spark and of the store."""
        if self._in_driver:
            actors, began = self.epoch.actors, monotonic_seconds()
            self.ran |= {spec.actor_id for spec in actors}
            self._add([self._run_here(actors, self._statements_of(None))], {spec.actor_id: 1 for spec in actors}, began)
            return
        with_statements = {table_id for table_id, _, _ in self.epoch.statements}

        def is_local(spec: ActorSpec) -> bool:
            is_asked = spec.job_id in with_statements and spec.is_root and not spec.inputs
            with blamed_on(spec):
                return is_asked or must_run_in_driver(spec, holds_rows)

        tasks, of_task = self._context.tasks, self._context.options.task_rows * self._context.tasks.threads
        wanted = max(1, min(tasks.slots, -(-self.expected_rows // of_task)))
        graph = self._graph = StageGraph(
            self.epoch.actors,
            is_local,
            is_shuffled=wanted > 1,
            combines=lambda actor_id: actor_id not in self.epoch.uncombined,
        )
        counts = graph.task_counts(wanted)
        try:
            for stage in graph.stages():
                self._run_stage(graph, [each for each in stage if self._has_work(graph, each)], counts)
            self._note_reductions(graph)
        finally:
            self._delete_shuffle_files()

    def _run_stage(self, graph: StageGraph, segments: Sequence[Segment], counts: Mapping[int, int]) -> None:
        """Runs segments, those for Spark as one job, beside those that this process runs."""
        began = monotonic_seconds()
        parts = [(segment, graph.actors_of(segment, number, counts, self._sent))
                 for segment in segments for number in range(counts[segment.number])]
        there = [(segment, actors) for segment, actors in parts if not segment.in_driver]
        received = [(segment.number, _bytes_received(actors)) for segment, actors in there]
        bundles = bundled(received, self._context.tasks.slots)
        threads = self._context.tasks.threads
        tasks = [self._task_of([spec for part in bundle for spec in there[part][1]], threads) for bundle in bundles]
        reports: list[EpochReport] = []
        with ThreadPoolExecutor(1, "spark-stage") as beside:
            running = beside.submit(self._run_there, tasks) if tasks else None
            for segment, actors in parts:
                if segment.in_driver:
                    reports.append(self._run_here(actors, self._statements_of(segment)))
            if running is not None:
                reports += running.result()
        for segment in segments:
            self.ran |= {spec.actor_id for spec in segment.specs}
        parts_of = {spec.actor_id: counts[segment.number] for segment in segments for spec in segment.specs}
        self._add(reports, parts_of, began)

    def _note_reductions(self, graph: StageGraph) -> None:
        for edge in graph.edges:
            sent = self._sent.get(edge.number, ())
            rows, states = sum(each.combined_rows for each in sent), sum(each.part.rows for each in sent)
            if states and rows >= MEASURED_ROWS and graph.combined(edge):
                self.reductions[edge.receiver] = rows, states

    def _run_there(self, tasks: Sequence[EpochTask]) -> list[EpochReport]:
        name = f"hummock: epoch {self.epoch.barrier.epoch.prev}"
        kept = [[found for found in map(self._kept_of, task.actors) if found is not None] for task in tasks]
        near = [Counter(each.executor for each in found).most_common(1)[0][0] if found else "" for found in kept]
        reports = self._context.tasks.run(name, tasks, near, self._context.is_cancelled)
        for task, report in zip(tasks, reports, strict=True):
            if report.attempt:
                kept_now = Kept(report.attempt, report.executor)
                self.kept |= {_part(spec): kept_now for spec in task.actors if keeps_groups(spec)}
        return reports

    def _kept_of(self, spec: ActorSpec) -> Kept | None:
        return self.epoch.kept.get(_part(spec))

    def _run_here(self, actors: Sequence[ActorSpec], statements: Sequence[SentStatement]) -> EpochReport:
        storage = self._context.storage
        return run_actors(
            self._task_of(actors, DRIVER_THREADS),
            storage.object_store,
            storage.sstable_store,
            statements=statements,
            sink_progress=self._context.ports.sink_progress,
        )

    def _task_of(self, actors: Sequence[ActorSpec], threads: int) -> EpochTask:
        storage, options, pair = self._context.storage, self._context.options, self.epoch.barrier.epoch
        rows = options.driver_rows if self._in_driver else options.epoch_rows
        return EpochTask(
            actors=tuple(actors),
            epoch=EpochPair(pair.prev, self._version.max_committed_epoch),
            next_epoch=Epoch(pair.curr),
            version=self._version if self._in_driver else self._version.narrowed(ranges_read(actors)),
            url=storage.object_store.url,
            prefixes=self._context.prefixes,
            storage=replace(storage.options, shared_buffer_bytes=TASK_BYTES),
            chunk_rows=options.chunk_rows,
            source_rows=min(rows, options.checkpoint_rows or rows),
            source_ms=min(options.barrier_interval_ms if self._in_driver else SOURCE_MS, MOST_SOURCE_MS),
            state_cache_bytes=task_cache_bytes(options),
            scanning=frozenset(spec.actor_id for spec in actors if self._is_scanning(spec)),
            held=self.epoch.held,
            is_paused=self.epoch.is_paused,
            loading=self.epoch.loading,
            connectors=_shipped_connectors(actors),
            threads=threads,
            row_ids_after_ms=self.epoch.row_ids_ms,
            accepted={spec.actor_id: kept.attempt for spec in actors if (kept := self._kept_of(spec)) is not None},
        )

    def _has_work(self, graph: StageGraph, segment: Segment) -> bool:
        """Whether a segment may do anything in this epoch: it has rows, or reads some, or begins, or has a dynamic
        filter, whose bound has moved. Other executors that go by time or by barriers alone are those of sources and of
        backfills."""
        epoch = self.epoch
        for edge in map(graph.sent_as, segment.incoming):
            if any(each.part.rows or each.marks or each.errors for each in self._sent.get(edge.number, ())):
                return True
        asked = {table_id for table_id, _, _ in epoch.statements}
        for spec in segment.specs:
            if spec.job_id in epoch.delivered_at:
                return True
            if spec.actor_id in epoch.fresh or (spec.splits and not epoch.is_paused):
                return True
            if spec.job_id in asked and not spec.inputs:
                return True
            if self._is_scanning(spec) or any(isinstance(node, DynamicFilterNode) for node in spec.root.walk()):
                return True
        return False

    def _is_scanning(self, spec: ActorSpec) -> bool:
        """Whether an actor may not have read all existing rows of the tables that it scans."""
        return spec.actor_id not in self.epoch.backfilled and any(
            isinstance(node, StreamScanNode) for node in spec.root.walk()
        )

    @property
    def engine(self) -> str:
        """What runs it, see `EpochFigures`."""
        return "driver" if self._in_driver else "spark"

    @property
    def wants_more(self) -> bool:
        """Whether there is more to read now, in the next epoch."""
        ran = [spec for spec in self.epoch.actors if spec.actor_id in self.ran]
        left = [spec for spec in ran if spec.actor_id not in self.backfilled]
        is_waiting = any(spec.is_resumed or self._is_scanning(spec) for spec in left)
        return self.is_full or is_waiting

    def _statements_of(self, segment: Segment | None) -> Sequence[SentStatement]:
        """The statements of the tables that a segment writes; None: all."""
        if segment is None:
            return self.epoch.statements
        jobs = {spec.job_id for spec in segment.specs if not spec.inputs}
        return [each for each in self.epoch.statements if each[0] in jobs]

    def _add(self, reports: Sequence[EpochReport], parts: Mapping[int, int], began: float) -> None:
        """Adds the reports of all tasks of a stage that `began` then. `parts`: into how many parts each actor was
        divided."""
        for report in reports:
            if report.failure is not None:
                raise failed_actor(self._blamed(report.failure))
        if reports:
            self.stages.append(_figures_of(reports, monotonic_seconds() - began))
        finished = Counter(actor_id for report in reports for actor_id in report.backfilled)
        self.backfilled |= {actor_id for actor_id, times in finished.items() if times == parts[actor_id]}
        for report in reports:
            self.sstables += report.sstables
            self.source_rows += report.source_rows
            self.is_full |= report.is_full
            self.row_ids_ms = max(self.row_ids_ms, report.row_ids_ms)
            for table_id, mark in report.watermarks.items():
                known = self.watermarks.get(table_id)
                self.watermarks[table_id] = mark if known is None else known.followed_by(mark)
            for actor_id, splits in report.finished.items():
                self.finished.setdefault(actor_id, set()).update(splits)
            for edge, sent in report.sent.items():
                self._sent.setdefault(edge, []).append(sent)
            for actor_id, each in report.figures.items():
                self.figures[actor_id] = self.figures.get(actor_id, ActorFigures()) + each

    def _blamed(self, failure: TaskFailure) -> TaskFailure:
        """The failure, if it is that of an actor that reads shuffle files, as that of the sender: its rows are refused.
        """
        sender = None if self._graph is None else self._graph.sender_of(failure.actor_id)
        return failure if sender is None else replace(failure, actor_id=sender)

    def _delete_shuffle_files(self) -> None:
        """Those of an attempt that does not count are left to vacuum."""
        names = {each.part.name for sent in self._sent.values() for each in sent if each.part.name}
        with suppress(ObjectStoreError):
            self._context.storage.object_store.delete([sstable_data_path(name) for name in sorted(names)])


def _figures_of(reports: Sequence[EpochReport], seconds: float) -> StageFigures:
    """Of the tasks of a stage, one at least."""
    actors = [[each for actor_id, each in report.figures.items() if actor_id < FIRST_VIRTUAL_ACTOR]
              for report in reports]
    cpu = [sum(each.cpu_seconds for each in of_task) for of_task in actors]
    sent = sum(size for report in reports for each in report.sent.values() for _, _, size, _ in each.part.blocks)
    changes = sum(each.rows for of_task in actors for each in of_task)
    skew = max(cpu) * len(cpu) / sum(cpu) if sum(cpu) else 1.0
    return StageFigures(seconds, len(reports), changes, sum(cpu), sent, skew)


def _part(spec: ActorSpec) -> ActorPart:
    return spec.actor_id, spec.number, spec.siblings


def _bytes_received(actors: Sequence[ActorSpec]) -> int:
    """Of shuffle blocks by a part of a segment; what a source reads is not known and taken for much."""
    if any(spec.splits for spec in actors):
        return SOURCE_BYTES
    reads = [spec.root for spec in actors if isinstance(spec.root, ShuffleReadNode)]
    return sum(block.size for root in reads for block in root.blocks)


def holds_rows(table: TableCatalog) -> bool:
    """Whether only this process has the rows of a table's connector, or its code."""
    return not connector_of(table).is_remote or factory_path(settings_of(table).connector) is None


@contextmanager
def blamed_on(spec: ActorSpec) -> Iterator[None]:
    """Any error of the block is one of the actor, as if it had come from its executors: ActorFailed."""
    try:
        yield
    except Exception as error:
        raise ActorFailed(spec.actor_id, error) from error


def _shipped_connectors(actors: Sequence[ActorSpec]) -> dict[str, str]:
    """The connectors that are not of this package, with the paths of their factories, None for those of this process.
    """
    tables = [node.table for spec in actors for node in spec.root.walk() if isinstance(node, SourceNode)]
    paths = {name: factory_path(name) for name in (settings_of(table).connector for table in tables)}
    return {name: path for name, path in paths.items() if path}


def failed_actor(failure: TaskFailure) -> ActorFailed:
    """The error of an actor, as if it had run here: of the class that it had there, if that is one of this package."""
    error: Exception = StreamError(f"{failure.name}: {failure.text}")
    if failure.module.split(".")[0] in ("hummock", "relational", "stream", builtins.__name__):
        kind = getattr(importlib.import_module(failure.module), failure.name, None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            error = kind.__new__(kind)
            error.args = (failure.text,)
    position = None if failure.position is None else SourcePosition(*failure.position)
    return ActorFailed(failure.actor_id, error, position)
