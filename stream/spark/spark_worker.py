"""SparkWorker: a Worker whose actors live for one epoch, in tasks on Spark.

The meta side sees the same protocol as of a compute node: it builds actors, injects barriers, and commits what was
collected. Here a barrier runs the epoch that it ends: the graph's segments, stage by stage, each task over the store as
of the epoch before. So an epoch begins when the one before is committed and readable; statements that arrive meanwhile
belong to a later one. An epoch of few rows runs as one task in this process: a Spark job takes longer to start than it
would to work.

A task that fails for no reason of its own is repeated by Spark, since nothing refers to what an attempt wrote [C19]; an
actor that fails because of its rows ends the epoch, and the recovery of the meta side decides, as for a compute node.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hummock.epoch import Epoch, monotonic_seconds
from relational.expr import ErrorCounts
from stream.actor_metrics import FragmentFigures
from stream.connector.base import connector_of
from stream.epoch_figures import EpochFigures
from stream.errors import (
    ActorFailed,
    InvalidStatement,
    JobNotRunning,
    ProfileInterrupted,
    SessionClosed,
    SourcePosition,
)
from stream.executor.meter import ExecutorMeter
from stream.job_memory import NO_MEMORY, NOT_RESIDENT, OperatorMemory
from stream.job_profile import FragmentProfile
from stream.message import (
    Add,
    Alter,
    Barrier,
    Block,
    InsertRows,
    Loading,
    Pause,
    Proposed,
    ReplayedBlock,
    Resume,
    Sent,
    Statement,
    addressed,
)
from stream.options import NAME_PREFIXES
from stream.plan.stream_plan import SinkNode, SourceNode, without_partial_agg
from stream.protocol import ActorSpec, CollectedEpoch, Step
from stream.runtime.channel import Channel
from stream.spark.altered import with_altered
from stream.spark.epoch_run import (
    ActorPart,
    EpochRun,
    EpochTasks,
    Kept,
    OpenEpoch,
    RunContext,
    SentStatement,
    blamed_on,
)
from stream.spark.epoch_spec import ActorFigures
from stream.worker.actor_builder import ActorBuilder
from stream.worker.pending_statements import PendingStatements
from stream.worker.running_actor import executor_profiles, profile_between

if TYPE_CHECKING:
    from stream.playground import WorkerPorts


NAMES_SECONDS = 300.0
"""How long tasks write under the same prefixes of names."""
PAUSED_SHARE = 2
"""An epoch brings at least one part in so many of the rows that the one before was expected to bring."""
LEAST_REDUCTION = 12.0
"""Rows in each group that make partial aggregation worthwhile. To make, send and merge a state of 73 bytes took as long
as to send about eight rows of 13 bytes; what is saved should be clear."""
UNCOMBINED_EPOCHS, MORE_ROWS = 32, 2
"""After so many epochs partial aggregation is tried again, or in one of so many times as many rows: the more there are
the more have the same group."""
RECENT_EPOCHS = 256
"""Of which figures are kept."""


@dataclass(slots=True)
class _InFlight:
    """A barrier whose epoch has not been run, and what takes part in it."""

    barrier: Barrier
    actors: tuple[ActorSpec, ...]
    statements: tuple[SentStatement, ...]
    is_paused: bool
    loading: frozenset[int]
    result: Future[CollectedEpoch] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class _Uncombined:
    """An aggregation receives rows for so many epochs more, unless there are far more of them than in the epoch in
    which they were too few for their groups, which was expected to have `rows`."""

    epochs: int
    rows: int


class SparkWorker:
    """A SessionWorker (stream.protocol) whose epochs run as `tasks`, over the store of `ports`. Thread safe."""

    def __init__(self, ports: WorkerPorts, tasks: EpochTasks) -> None:
        self.pending = PendingStatements()
        self._storage, self._options = ports.storage, ports.options
        self._on_failure, self._observer = ports.on_failure, ports.observer
        self._request_barrier = ports.request_barrier
        self._changed = threading.Condition()
        self._built: dict[int, ActorSpec] = {}  # built, but not yet begun
        self._running: dict[int, ActorSpec] = {}
        self._fresh: set[int] = set()  # actors that have taken part in no committed epoch
        self._backfilled: set[int] = set()  # actors that have read all existing rows
        self._finished: dict[int, set[str]] = {}  # by actor: the splits of which all rows were read
        self._kept: dict[ActorPart, Kept] = {}  # what tasks have left of actors that have not run since
        self._uncombined: dict[int, _Uncombined] = {}  # aggregations to which groups are not worth sending
        self._statements: list[SentStatement] = []  # of the open epoch
        self._in_flight: dict[int, _InFlight] = {}  # by the epoch that ends
        self._is_paused, self._loading = False, frozenset[int]()
        self._failed: Mapping[int, Exception] = {}  # job id -> error, of jobs that do not run because they failed
        self._is_serving = False  # between an Initial barrier and a reset
        self._failure: BaseException | None = None  # what ended this generation of actors
        self._closed_by: BaseException | None = None
        self._last_epoch = self._discarded_upto = 0
        self._ran_upto = 0  # the epoch that ran last
        self._expected_rows = 0  # that sources bring in the next epoch
        self._next_discovery = 0.0
        self._row_ids_ms = 0  # up to which millisecond row ids were given
        self._delivered: dict[int, int] = {}  # by job of a sink: the epoch up to which its last epoch knew deliveries
        self._figures: dict[tuple[int, int], ActorFigures] = {}  # of each fragment of a job, of all epochs
        self._recent: deque[EpochFigures] = deque(maxlen=RECENT_EPOCHS)
        self._names = ExitStack()  # registered prefixes
        self._names_until = 0.0
        self._context = RunContext(ports, tasks, (), lambda: self._failure is not None)
        self._trial = ActorBuilder(ports.storage, ports.options, lambda: None, ports.sink_progress)
        self._errors = ports.errors  # of all jobs, for metrics
        self._error_counts: dict[int, ErrorCounts] = {}  # of each actor
        self._epochs = _epoch_thread()

    # -- interface of the meta side (Worker) -----------------------------------------------------------

    def build(self, specs: Sequence[ActorSpec]) -> None:
        """Keep actors, which begin with the barrier that names them. ActorFailed if one cannot be built, which is tried
        here, before anything depends on it. Fragments send rows: whether groups are made of them is decided for each
        epoch."""
        specs = [replace(spec, root=without_partial_agg(spec.root)) for spec in specs]
        for spec in specs:
            tried = replace(spec, first_rows=None)
            inputs = [[Channel(1)] * len(each.upstreams) for each in spec.inputs]
            try:
                self._trial.build(tried, None if inputs else Channel(1), inputs, _Unobserved())
            except Exception as error:
                raise ActorFailed(spec.actor_id, error) from error
        with self._changed:
            self._built |= {spec.actor_id: spec for spec in specs}

    def inject(self, barrier: Barrier, on_passed: Callable[[], None] = lambda: None) -> Future[CollectedEpoch]:
        """Run the epoch that `barrier` ends; its mutation begins and ends actors. `on_passed` is called at once: the
        next epoch is prepared while this one runs."""
        on_passed()
        with self._changed:
            self._discarded_upto, self._last_epoch = self._last_epoch, barrier.epoch.curr
            statements, self._statements = tuple(self._statements), []
            waiting = _InFlight(barrier, tuple(self._running.values()), statements, self._is_paused, self._loading)
            if self._failure is not None:
                waiting.result.set_exception(self._failure)
                return waiting.result
            self._mutate(barrier)
            is_initial = not self._is_serving
            begins = isinstance(barrier.mutation, Add) and bool(barrier.mutation.actors)
            if not is_initial:
                self._in_flight[barrier.epoch.prev] = waiting
                self._epochs.submit(self._run, waiting)
        if is_initial:
            self._begin_serving(barrier)
            waiting.result.set_result(CollectedEpoch(barrier.epoch.prev))
        if begins:  # the new actors run when the next barrier comes
            self._request_barrier()
        return waiting.result

    def expect(self, seconds: float) -> bool:
        """False: between barriers nothing runs that one could wait for."""
        return False

    def missing(self, epoch: int) -> tuple[int, ...]:
        """The actors of an epoch that has not ended, for error messages."""
        with self._changed:
            found = self._in_flight.get(epoch)
            return () if found is None else tuple(sorted(spec.actor_id for spec in found.actors))

    def committed(self, epoch: int) -> None:
        """Everything up to `epoch` is durable: the next epoch begins once it is readable."""
        self.pending.committed(epoch)
        self._storage.wait_epoch(Epoch(epoch))
        with self._changed:
            self._changed.notify_all()

    def reset(self, cause: BaseException) -> None:
        """End the epoch under way and forget all actors."""
        self.pending.suspend(cause)
        with self._changed:
            self._failure, self._is_serving = self._failure or cause, False
            self._changed.notify_all()
        self._epochs.shutdown(wait=True, cancel_futures=True)
        with self._changed:
            self._built, self._running, self._in_flight = {}, {}, {}
            self._fresh, self._backfilled = set(), set()
            self._error_counts, self._finished, self._kept = {}, {}, {}
            self._statements, self._ran_upto = [], 0
            self._failure, self._is_paused, self._loading = None, False, frozenset()
            self._epochs = _epoch_thread()

    def close(self, error: BaseException) -> None:
        """Reset for the last time: every caller that waits for this worker gets `error`."""
        with self._changed:
            self._closed_by = error
            self._changed.notify_all()
        try:
            self.reset(error)
        finally:
            self.pending.close(error)
            self._epochs.shutdown(wait=True)
            self._release_names()

    @property
    def is_busy(self) -> bool:
        """Whether an epoch is under way."""
        return bool(self._in_flight)

    # -- interface of sessions -------------------------------------------------------------------------

    def execute(self, table_id: int, table_name: str, statement: Statement) -> int:
        """Rows affected, once the epoch of the statement has run. Waits for the end of a recovery. The errors of
        `ComputeNode.execute`."""
        return self.begin(table_id, table_name, statement)()

    def begin(self, table_id: int, table_name: str, statement: Statement) -> Callable[[], int]:
        """Sends a statement; what is returned waits for its result, as `execute`."""
        return self.pending.begin(
            statement,
            table_id,
            table_name,
            lambda message: self._send(table_id, table_name, message),
            self._request_barrier,
            on_sent=self._request_barrier,
        )

    def begin_block(self, block: Block) -> Callable[[], int]:
        """As `ComputeNode.begin_block`, of a block about one table: each table of an epoch is evaluated by itself.
        InvalidStatement for another one."""
        first = block.parts[0]
        if len(block.parts) > 1:
            names = ", ".join(repr(part.table) for part in block.parts)
            reason = f"with a Spark engine a transaction writes one table, not {names}: send a transaction for each"
            raise InvalidStatement(first.table, reason)
        return self.pending.begin(
            block,
            first.table_id,
            first.table,
            lambda message: self._send(first.table_id, first.table, message),
            self._request_barrier,
            on_sent=self._request_barrier,
        )

    def fragments(self) -> list[FragmentFigures]:
        """Figures of all fragments, by job and number, of the epochs so far."""
        with self._changed:
            running = sorted(self._running.values(), key=lambda spec: (spec.job_id, spec.fragment))
            figures = [self._figures.get((spec.job_id, spec.fragment), ActorFigures()) for spec in running]
        return [
            FragmentFigures(spec.table.name, spec.job_id, spec.fragment, 1, found.rows, found.cpu_seconds, 0, 0)
            for spec, found in zip(running, figures, strict=True)
        ]

    def memory(self) -> list[OperatorMemory]:
        """That nothing is, a row for each job: an epoch begins with the state in the store."""
        with self._changed:
            jobs = sorted({spec.job_id for spec in self._running.values()})
        return [OperatorMemory(job_id, None, None, NOT_RESIDENT, NO_MEMORY) for job_id in jobs]

    def recent_epochs(self) -> tuple[EpochFigures, ...]:
        """Figures of the last epochs, the newest one last."""
        with self._changed:
            return tuple(self._recent)

    def profile(self, job_id: int, job: str, interval: Callable[[], None]) -> list[FragmentProfile]:
        """What the fragments of a job did in the epochs that ended while `interval()` waited. JobNotRunning,
        ProfileInterrupted."""
        with self._changed:
            specs = [spec for spec in self._running.values() if spec.job_id == job_id]
        if not specs:
            raise JobNotRunning(job)
        before = self._profiles(specs)
        interval()
        after = self._profiles(specs)
        with self._changed:
            if any(spec.actor_id not in self._running for spec in specs):
                raise ProfileInterrupted(job)
        return [profile_between(*each) for each in zip(before, after, strict=True)]

    def _profiles(self, specs: Sequence[ActorSpec]) -> list[FragmentProfile]:
        """Of each fragment, of all epochs so far."""
        with self._changed:
            figures = [self._figures.get((spec.job_id, spec.fragment), ActorFigures()) for spec in specs]
        found = []
        for spec, each in zip(specs, figures, strict=True):
            meters = dict.fromkeys(range(sum(1 for _ in spec.root.walk())), ExecutorMeter())
            meters |= {at: ExecutorMeter(rows, seconds) for at, (rows, seconds) in each.executors.items()}
            executors = tuple(executor_profiles(spec.root, [meters]))
            found.append(FragmentProfile(spec.fragment, 1, executors, each.cpu_seconds, 0, 0.0))
        return found

    # -- epochs ----------------------------------------------------------------------------------------

    def _run(self, waiting: _InFlight) -> None:
        epoch = waiting.barrier.epoch.prev
        try:
            collected = self._collected(waiting)
        except BaseException as error:
            self._fail(waiting, error)
            return
        with self._changed:
            self._in_flight.pop(epoch, None)
        waiting.result.set_result(collected)

    def _fail(self, waiting: _InFlight, error: BaseException) -> None:
        with self._changed:
            is_first, self._failure = self._failure is None, self._failure or error
            self._in_flight.pop(waiting.barrier.epoch.prev, None)
        waiting.result.set_exception(error)
        if is_first:
            self._on_failure(error)

    def _collected(self, waiting: _InFlight) -> CollectedEpoch:
        """Runs an epoch, once the one before is committed."""
        epoch, began = waiting.barrier.epoch.prev, monotonic_seconds()
        self._wait_for_turn()
        self._renew_names()
        rows = self._expected_rows + sum(map(_rows_of, waiting.statements))
        open_epoch = self._opened(waiting, rows)
        with self._storage.pinned_version() as pinned:
            run = EpochRun(self._context, open_epoch, pinned.version, rows)
            run.execute()
            self._observer(Step.COLLECT, epoch)
            pinned.check()
        self._observer(Step.SYNC, epoch)
        with self._changed:
            self._note(run)
            seconds = monotonic_seconds() - began
            self._recent.append(EpochFigures(epoch, run.engine, seconds, run.source_rows, tuple(run.stages)))
        if run.wants_more:
            self._request_barrier()
        return CollectedEpoch(epoch, run.sstables, tuple(sorted(run.backfilled)), run.watermarks)

    def _renew_names(self) -> None:
        """New prefixes of names, now and then: what failed attempts have written under the old ones is garbage once
        they are not registered. REQUIRES that all epochs before are committed."""
        if monotonic_seconds() >= self._names_until:
            self._release_names()
            prefixes = self._names.enter_context(self._storage.upload_prefixes(NAME_PREFIXES))
            self._context = replace(self._context, prefixes=prefixes)
            self._names_until = monotonic_seconds() + NAMES_SECONDS

    def _release_names(self) -> None:
        with suppress(Exception):  # a registration that is not taken back expires
            self._names.close()

    def _wait_for_turn(self) -> None:
        """Returns once the epoch that ran last is committed; raises what ended this generation."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._failure is not None or self._storage.committed_epoch >= self._ran_upto
            )
            if self._failure is not None:
                raise self._failure

    def _opened(self, waiting: _InFlight, rows: int) -> OpenEpoch:
        """The epoch, of about `rows` rows, as it is when it begins: with what is known of the epoch before, and splits
        that were added."""
        with self._changed:
            current = {spec.actor_id: self._running.get(spec.actor_id, spec) for spec in waiting.actors}
        actors = tuple(map(self._unfinished, self._discovered(tuple(current.values()))))
        with self._changed:
            fresh, backfilled, before = frozenset(self._fresh), frozenset(self._backfilled), dict(self._delivered)
            kept = dict(self._kept)
        sinks = {spec.job_id for spec in actors if isinstance(spec.root, SinkNode)}
        progress = {job_id: self._context.ports.sink_progress(job_id) for job_id in sinks}
        return OpenEpoch(
            waiting.barrier,
            actors,
            waiting.statements,
            fresh,
            backfilled,
            waiting.is_paused,
            waiting.loading,
            {job_id: each.delivered for job_id, each in progress.items() if each.delivered > before.get(job_id, 0)},
            frozenset(job_id for job_id, each in progress.items() if each.is_full),
            kept,
            self._row_ids_ms,
            frozenset(actor_id for actor_id, each in self._uncombined.items() if rows <= MORE_ROWS * each.rows),
        )

    def _unfinished(self, spec: ActorSpec) -> ActorSpec:
        """The actor without the splits of which all rows were read: opening them again would find nothing."""
        finished = self._finished.get(spec.actor_id)
        if not finished:
            return spec
        left = tuple(split for split in spec.all_splits if split not in finished)
        return replace(spec, splits=left, all_splits=left)

    def _discovered(self, specs: Sequence[ActorSpec]) -> list[ActorSpec]:
        """The actors with the splits that their connectors have by now."""
        interval = self._options.split_discovery_ms / 1_000
        if not interval or monotonic_seconds() < self._next_discovery:
            return list(specs)
        self._next_discovery = monotonic_seconds() + interval
        found = []
        for spec in specs:
            nodes = [node for node in spec.root.walk() if isinstance(node, SourceNode)]
            if spec.splits is not None and nodes:
                with blamed_on(spec):
                    listed = set(connector_of(nodes[0].table).enumerator().list_splits()).difference(spec.all_splits)
                if listed:
                    splits = (*spec.all_splits, *sorted(listed))
                    spec = replace(spec, splits=splits, all_splits=splits)
                    with self._changed:
                        if spec.actor_id in self._running:
                            self._running[spec.actor_id] = spec
            found.append(spec)
        return found

    def _note(self, run: EpochRun) -> None:
        """What the next epoch follows from this one. REQUIRES the lock."""
        self._ran_upto = run.epoch.barrier.epoch.prev
        pause = self._expected_rows // PAUSED_SHARE  # a source that pauses for an epoch or two goes on as before
        self._expected_rows = max(run.source_rows, pause, self._options.epoch_rows if run.is_full else 0)
        self._fresh -= run.ran
        self._backfilled |= run.backfilled
        self._row_ids_ms = run.row_ids_ms
        self._note_reductions(run.reductions, run.expected_rows)
        self._kept = {part: kept for part, kept in self._kept.items() if part[0] not in run.ran} | run.kept
        for actor_id, splits in run.finished.items():
            self._finished.setdefault(actor_id, set()).update(splits)
        for actor_id in run.ran & self._running.keys():  # what was meant for the first epoch of an actor
            self._running[actor_id] = replace(
                self._running[actor_id], first_rows=None, since=None, is_loaded=False, skip=None, is_resumed=False
            )
        for spec in run.epoch.actors:
            found, key = run.figures.get(spec.actor_id), (spec.job_id, spec.fragment)
            if found is not None:
                self._figures[key] = self._figures.get(key, ActorFigures()) + replace(found, errors={})
                self._note_errors(spec, found)
        self._delivered.update(run.epoch.delivered_at)
        self._forget_stopped()

    def _forget_stopped(self) -> None:
        """Drops what is known of actors that run in no epoch any more. REQUIRES the lock."""
        known = self._running.keys() | {spec.actor_id for each in self._in_flight.values() for spec in each.actors}
        self._fresh &= known
        self._backfilled &= known
        self._kept = {part: kept for part, kept in self._kept.items() if part[0] in known}
        for of_actor in (self._finished, self._error_counts, self._uncombined):
            for actor_id in of_actor.keys() - known:
                del of_actor[actor_id]

    def _note_reductions(self, reductions: Mapping[int, tuple[int, int]], expected_rows: int) -> None:
        """Where few rows were in a state, rows are sent for a while. `expected_rows`: of the epoch. REQUIRES the lock.
        """
        self._uncombined = {actor_id: replace(each, epochs=each.epochs - 1)
                            for actor_id, each in self._uncombined.items() if each.epochs > 1}
        for actor_id, (rows, states) in reductions.items():
            if rows < LEAST_REDUCTION * states:
                self._uncombined[actor_id] = _Uncombined(UNCOMBINED_EPOCHS, expected_rows)

    def _note_errors(self, spec: ActorSpec, found: ActorFigures) -> None:
        """The counts of a job with a table of errors are those of all time, of others those of the epoch."""
        counts = self._error_counts.get(spec.actor_id)
        if counts is None:
            counts = self._error_counts[spec.actor_id] = self._errors.open(spec.table, spec.actor_id)
        if spec.error_table is not None:
            counts.restore(found.errors)
        else:
            for reason, rows in found.errors.items():
                counts.add(reason, rows)

    # -- internals -------------------------------------------------------------------------------------

    def _mutate(self, barrier: Barrier) -> None:
        """The barrier's mutation takes effect for the epoch that it opens. REQUIRES the lock."""
        mutation = barrier.mutation
        for actor_id in barrier.stopped:
            self._running.pop(actor_id, None)
        if isinstance(mutation, Add):
            beginning = {actor_id: self._built.pop(actor_id) for actor_id in sorted(mutation.actors)}
            self._running |= {actor_id: _whole(spec) for actor_id, spec in beginning.items()}
            self._fresh |= beginning.keys()
            if not self._is_serving:
                self._failed, self._is_paused = mutation.failed, mutation.is_paused
            self._loading = mutation.loading
        elif isinstance(mutation, Loading):
            self._loading = mutation.loading
        elif isinstance(mutation, Pause | Resume):
            self._is_paused = isinstance(mutation, Pause)
        elif isinstance(mutation, Alter):
            self._kept = {}
            self._running = {
                actor_id: with_altered(spec, mutation.table) for actor_id, spec in self._running.items()
            }

    def _begin_serving(self, barrier: Barrier) -> None:
        """After the Initial barrier of a generation: send undone statements again, then admit those of sessions."""
        with self._changed:
            known = {spec.job_id for spec in self._running.values()}
        for pending in self.pending.resume(barrier.epoch.prev, self._discarded_upto):
            if pending.table_id not in known or pending.is_suspect:
                self.pending.lose(pending, self._failed.get(pending.table_id))
                continue
            with self._changed:
                self._statements += _one_by_one(pending.table_id, pending.table, self.pending.again(pending))
            self.pending.sent(pending.statement.statement_id, barrier.epoch.curr)
        with self._changed:
            self._is_serving = True
            self._changed.notify_all()

    def _send(self, table_id: int, name: str, message: Sent) -> int:
        """The epoch in which a statement is sent. The errors of `execute` for a table that takes none."""
        with self._changed:
            timeout = self._options.barrier_timeout_ms / 1_000
            if not self._changed.wait_for(lambda: self._is_serving or self._closed_by is not None, timeout):
                raise SessionClosed(f"no recovery within {self._options.barrier_timeout_ms} ms")
            if self._closed_by is not None:
                raise self._closed_by
            if any(spec.job_id == table_id for spec in self._running.values()):
                self._statements += _one_by_one(table_id, name, message)
                return self._last_epoch
            if table_id in self._failed:
                raise self._failed[table_id]
        raise InvalidStatement(name, "the table was dropped")


class _Unobserved:
    """Observes an actor that never runs."""

    def collect(self, actor_id: int, barrier: Barrier) -> None: ...

    def fail(self, actor_id: int, error: BaseException, position: SourcePosition | None) -> None: ...

    def finish_backfill(self, actor_id: int) -> None: ...


def _epoch_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "spark-epochs")


def _whole(spec: ActorSpec) -> ActorSpec:
    """The actor with all splits of its fragment, of which it is the only one."""
    assert spec.siblings == 1, "a fragment is one actor until it is divided into tasks"
    return spec if spec.splits is None else replace(spec, splits=spec.all_splits)


def _one_by_one(table_id: int, name: str, message: Sent) -> tuple[SentStatement, ...]:
    """What tables receive for a message; nobody waits for the decision about a block of one table."""
    if isinstance(message, Block | ReplayedBlock):
        return addressed(message, lambda: None)
    return ((table_id, name, message),)


def _rows_of(sent: SentStatement) -> int:
    """Rows that a statement brings, as far as known."""
    message = sent[2]
    statements = message.part.statements if isinstance(message, Proposed) else (message,)
    return sum(each.chunk.capacity for each in statements if isinstance(each, InsertRows))
