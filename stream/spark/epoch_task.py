"""A task of an epoch: a compute node that lives for one epoch, over the store as of the epoch before.

Its actors begin as after a recovery, from committed state, and end with the barrier that ends the epoch. The same
function runs in a Spark executor and, for what only the driver can do, in the driver's process.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from hummock.epoch import EpochPair, monotonic_seconds
from hummock.errors import HummockError
from hummock.object_store.base import ObjectStore, name_minter
from hummock.options import MS_LIMIT
from hummock.spark.worker import MAY_PASS, executor_name, local_directory, task_memory, task_store
from hummock.sstable.store import SstableStore
from hummock.store.epoch_store import EpochStore
from relational.spark.read_spec import files_of
from stream.connector.base import register_connector
from stream.connector.sink_log import SinkProgress
from stream.errors import ActorFailed, ChannelClosed
from stream.message import Add, Barrier, Proposed, Replayed, Statement, Stop
from stream.options import StreamOptions
from stream.plan.stream_plan import SourceNode, WatermarkFilterNode
from stream.protocol import ActorSpec, CollectedEpoch
from stream.runtime.actor_pool import ActorPool
from stream.spark.epoch_spec import ActorFigures, EpochReport, EpochTask, TaskFailure, edge_schemas
from stream.spark.kept_groups import KeptGroups, TaskGroups
from stream.spark.parallel_actors import ParallelActors
from stream.spark.shuffle_files import ShuffleFile
from stream.spark.shuffle_nodes import ShuffleEnds
from stream.worker.actor_builder import ActorBuilder
from stream.worker.compute_node import ComputeNode
from stream.worker.running_actor import RunningActor

EXTENSION = 10
"""How many times as long a source may take as it may read."""
LOOK_SECONDS = 0.02
KEPT_BYTES = 128 << 20
"""Of groups that a process of an executor keeps between epochs."""
_KEPT = KeptGroups(task_memory(KEPT_BYTES))
NOT_OF_AN_ACTOR = (*MAY_PASS, HummockError, ChannelClosed)
"""Errors of what all tasks share; another attempt may succeed, or a recovery decides."""


def run_epoch_task(serialized: bytes) -> bytes:
    """Runs in a Spark executor the task of a serialized spec; its serialized report."""
    task = EpochTask.from_bytes(serialized)
    for name, factory in task.connectors.items():
        module, _, attribute = factory.partition(":")
        register_connector(name, getattr(importlib.import_module(module), attribute))
    try:
        report = run_actors(
            task, task_store(task.url), files_of(task.url), sink_progress=partial(_progress_in, task), kept=_KEPT)
    except MemoryError:
        _KEPT.clear()  # another attempt has more room
        raise
    return replace(report, executor=executor_name()).to_bytes(edge_schemas(task.actors))


def _progress_in(task: EpochTask, job_id: int) -> SinkProgress:
    """What the sources of a job know of its sink, which another process delivers."""
    return SinkProgress(is_full=job_id in task.held)


def prepare_worker(_: bytes) -> bytes:
    """Does nothing in a Spark executor, whose worker has imported this module then."""
    return b""


def run_actors(
    task: EpochTask,
    objects: ObjectStore,
    files: SstableStore,
    *,
    kept: KeptGroups | None = None,
    statements: Iterable[tuple[int, str, Statement | Replayed | Proposed]] = (),
    sink_progress: Callable[[int], SinkProgress] = lambda job_id: SinkProgress(),
) -> EpochReport:
    """Runs the task's actors. `files` reads what is in the store, `objects` holds it and what is written. `statements`:
    those of the epoch, each with the id and the name of its table, in the order in which they were sent.
    `sink_progress`: as of the driver's process, for the actors of sinks. `kept`: of this process, None: it keeps no
    groups."""
    mint, attempt = name_minter(os.urandom, task.prefixes), "" if kept is None else os.urandom(8).hex()
    actors = ParallelActors(task.actors, task.threads)
    with ExitStack() as undo:
        file = undo.enter_context(ShuffleFile(objects, mint, local_directory()))
        store = undo.enter_context(EpochStore(task.version, files, task.storage, objects, mint, local_directory()))
        ends = ShuffleEnds(objects, file)
        sources = _Sources(task, actors)
        builder = ActorBuilder(
            store,
            _options_of(task),
            lambda: None,
            sink_progress,
            handover=None if kept is None else TaskGroups(kept, task.url, task.actors, task.accepted, attempt),
            on_idle=sources.note_idle,
            more=ends.builders,
            is_for_one_epoch=True,
            row_ids_after_ms=task.row_ids_after_ms,
        )
        node = ComputeNode(store, builder, builder.options, ActorPool(task.threads, spare=0), sources.note_failure)
        undo.callback(node.close, ChannelClosed("a task"))
        try:
            opened, collected = _run_epoch(node, task, actors.specs, sources, statements)
        except ActorFailed as failed:
            error = failed.__cause__
            if isinstance(error, NOT_OF_AN_ACTOR):
                raise error from error.__cause__  # from `failed` would make a cycle of causes
            return EpochReport(failure=_failure_of(failed, actors))
        return EpochReport(
            collected.sstables,
            collected.watermarks,
            ends.finish(),
            _backfilled(actors, (*opened.backfilled, *collected.backfilled)),
            _rows_read(node.actors()),
            sources.is_full,
            _figures_of(actors, node.actors(), builder),
            _finished(actors, builder, sources.specs),
            attempt=attempt,
            row_ids_ms=max((each.last_ms for each in builder.row_ids.values()), default=0),
        )


def _run_epoch(
    node: ComputeNode,
    task: EpochTask,
    actors: Sequence[ActorSpec],
    sources: _Sources,
    statements: Iterable[tuple[int, str, Statement | Replayed | Proposed]],
) -> tuple[CollectedEpoch, CollectedEpoch]:
    """What was collected with the barrier that opens the epoch, and with the one that ends it. ActorFailed."""
    node.build(actors)
    node.measure()
    begin = Add(frozenset(spec.actor_id for spec in actors), is_paused=task.is_paused, loading=task.loading)
    opened = node.inject(Barrier(task.epoch, checkpoint=False, mutation=begin))
    for table_id, name, statement in statements:
        node.send(table_id, name, statement)
    sources.wait(lambda: any(each.actor.rows for each in node.actors()))
    end = Barrier(EpochPair(task.next_epoch, task.epoch.curr), checkpoint=True, mutation=Stop(begin.actors))
    collected = node.inject(end)
    return opened.result(), collected.result()


class _Sources:
    """The actors of a task that read connectors or existing rows, and whether they have read all. Thread safe."""

    def __init__(self, task: EpochTask, actors: ParallelActors) -> None:
        self._limit, self._ms = task.source_rows, task.source_ms
        self._lock = threading.Lock()
        self.specs = {spec.actor_id: spec for spec in actors.specs if _reads_connector(spec)}
        reading = self.specs.keys() | {part for actor_id in task.scanning for part in actors.parts(actor_id)}
        self._read = dict.fromkeys(reading, -1)
        self._done = threading.Event()
        self._is_late = False
        if not self._read:
            self._done.set()

    def wait(self, has_rows: Callable[[], bool]) -> None:
        """Returns when all have read enough, or have nothing more, or one has failed, or the time is over: it is
        extended for what a source does before its first rows."""
        if self._done.wait(self._ms / 1_000):
            return
        deadline = monotonic_seconds() + (EXTENSION - 1) * self._ms / 1_000
        while not has_rows() and monotonic_seconds() < deadline:
            if self._done.wait(LOOK_SECONDS):
                return
        self._is_late = True

    def note_idle(self, actor_id: int, rows: int) -> None:
        """The actor reads nothing more for the moment, after `rows` rows."""
        with self._lock:
            if actor_id in self._read:
                self._read[actor_id] = max(rows, self._read[actor_id])
                if min(self._read.values()) >= 0:
                    self._done.set()

    def note_failure(self, _: BaseException) -> None:
        self._done.set()

    @property
    def is_full(self) -> bool:
        """Whether one may have more rows."""
        with self._lock:
            return self._is_late or any(0 < self._limit <= rows for rows in self._read.values())


def _rows_read(actors: Iterable[RunningActor]) -> int:
    """Rows that came from connectors."""
    return sum(
        each.actor.meters[position].rows
        for each in actors
        for position, node in enumerate(each.spec.root.walk())
        if isinstance(node, SourceNode)
    )


def _backfilled(actors: ParallelActors, parts: Iterable[int]) -> tuple[int, ...]:
    """The actors of which all parts have read all existing rows."""
    found = set(parts)
    return tuple(sorted(actor_id for actor_id in {actors.whole(part) for part in found}
                        if found.issuperset(actors.parts(actor_id))))


def _finished(
    actors: ParallelActors, builder: ActorBuilder, sources: Mapping[int, ActorSpec]
) -> dict[int, tuple[str, ...]]:
    """By actor, the splits of which all rows were read."""
    found: dict[int, tuple[str, ...]] = {}
    for part, spec in sources.items():
        splits = _finished_by(builder, spec)
        if splits:
            found[actors.whole(part)] = found.get(actors.whole(part), ()) + splits
    return found


def _finished_by(builder: ActorBuilder, spec: ActorSpec) -> tuple[str, ...]:
    """The splits that an actor of a source need not open again. The bound of a watermark is known with all of them."""
    source = builder.sources.get(spec.actor_id)
    if source is None or any(isinstance(node, WatermarkFilterNode) for node in spec.root.walk()):
        return ()
    prefix = next(node.split_prefix for node in spec.root.walk() if isinstance(node, SourceNode))
    return tuple(split.removeprefix(prefix) for split in source.finished_splits)


def _options_of(task: EpochTask) -> StreamOptions:
    """Of actors that live for one epoch."""
    return StreamOptions(
        chunk_rows=task.chunk_rows,
        checkpoint_rows=task.source_rows,
        barrier_interval_ms=MS_LIMIT,
        split_discovery_ms=0,
        state_cache_bytes=task.state_cache_bytes,
    )


def _figures_of(
    actors: ParallelActors, running: Iterable[RunningActor], builder: ActorBuilder
) -> dict[int, ActorFigures]:
    """By actor, of all its parts."""
    found: dict[int, ActorFigures] = {}
    for each in running:
        actor_id = actors.whole(each.spec.actor_id)
        found[actor_id] = found.get(actor_id, ActorFigures()) + _figures_of_part(each, builder)
    return found


def _figures_of_part(running: RunningActor, builder: ActorBuilder) -> ActorFigures:
    executors = {at: (meter.rows, meter.cpu_seconds) for at, meter in running.actor.meters.items()}
    errors = builder.errors.of_actor(running.spec.table, running.spec.actor_id)
    return ActorFigures(running.actor.rows, running.actor.spent_cpu_seconds, executors, errors)


def _reads_connector(spec: ActorSpec) -> bool:
    return spec.splits is not None and any(isinstance(node, SourceNode) for node in spec.root.walk())


def _failure_of(failed: ActorFailed, actors: ParallelActors) -> TaskFailure:
    error = failed.__cause__
    assert error is not None
    position = failed.position
    return TaskFailure(
        actors.whole(failed.actor_id),
        type(error).__module__,
        type(error).__name__,
        str(error),
        None if position is None else (position.split, position.offset),
    )

