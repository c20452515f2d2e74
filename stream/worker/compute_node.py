"""ComputeNode: the actors of one process, their channels, and the entry point for statements.

Actors are built first and begin with the barrier whose Add mutation names them; from then on their upstream actors send
to them [C2]. A reset ends all actors before it discards what they wrote [C9], so an old actor cannot write to the store
afterwards. The first barrier after a reset tells which epochs were committed: the statements of the others are sent
again right after it, before any new one [C12]."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from hummock.epoch import Epoch
from stream.actor_metrics import FragmentFigures
from stream.errors import (
    ActorFailed,
    ChannelClosed,
    InvalidStatement,
    JobNotRunning,
    ProfileInterrupted,
    RecoveryFailed,
    SessionClosed,
)
from stream.executor.schema_change import fitted_changes
from stream.job_memory import OperatorMemory
from stream.job_profile import FragmentProfile
from stream.message import (
    STATEMENTS,
    Add,
    Alter,
    Barrier,
    Block,
    JoinedSink,
    Proposed,
    Replayed,
    ReplayedBlock,
    Sent,
    Statement,
    addressed,
)
from stream.options import StreamOptions
from stream.protocol import ActorSpec, CollectedEpoch, EdgeSpec, StepObserver, unobserved
from stream.runtime.actor import Actor
from stream.runtime.actor_pool import ActorPool
from stream.runtime.channel import Channel
from stream.runtime.dispatch import Edge, HashEdge, SimpleEdge
from stream.worker.local_barrier_manager import LocalBarrierManager
from stream.worker.pending_statements import PendingStatements
from stream.worker.running_actor import (
    RunningActor,
    by_fragment,
    operator_memory,
    profile_between,
    profile_since_start,
    read_meters,
)

if TYPE_CHECKING:
    from hummock.base.foreground import ForegroundWork
    from hummock.state_store import StateStore
    from relational.catalog.objects import TableCatalog
    from stream.epoch_figures import EpochFigures
    from stream.worker.actor_builder import ActorBuilder

MUCH_CPU_SECONDS = 0.1
"""Of actors in one or two epochs: less leaves little to flush, and little in the queues."""
JOIN_SECONDS = 60.0
"""How long an actor may take to end once its channels are closed: one read or write of the store."""


class ComputeNode:
    """A Worker (stream.protocol). Its checkpoints are `foreground` work. `expect_sync(epoch, seconds)`: of its
    store. Thread safe."""

    def __init__(
        self,
        store: StateStore,
        builder: ActorBuilder,
        options: StreamOptions,
        pool: ActorPool,
        on_failure: Callable[[BaseException], None],
        observer: StepObserver = unobserved,
        request_barrier: Callable[[], None] = lambda: None,
        foreground: ForegroundWork | None = None,
        expect_sync: Callable[[Epoch, float], None] = lambda epoch, seconds: None,
    ) -> None:
        self._store, self._expect_sync = store, expect_sync
        self._options = options
        self._builder = builder
        self._pool = pool
        self._barriers = LocalBarrierManager(
            store, on_failure, observer, pool.niceness, foreground, builder.forecast(), pool.left_core)
        self._request_barrier = request_barrier
        self.pending = PendingStatements()
        self._sending = threading.Lock()
        """Held while a barrier, or the parts of a block, are sent: all parts are between the same two barriers."""
        self._changed = threading.Condition()
        self._built: dict[int, RunningActor] = {}  # built, but not yet begun
        self._running: dict[int, RunningActor] = {}
        self._ended: list[RunningActor] = []  # stopped by a barrier
        self._is_serving = False  # between an Initial barrier and a reset
        self._failed: Mapping[int, Exception] = {}  # job id -> error, of jobs that do not run because they failed
        self._closed_by: BaseException | None = None
        self._last_epoch = 0  # the newest that was opened
        self._spent_by_ended = 0.0  # CPU time of actors
        self._spent_before = 0.0, 0.0  # by all actors, as of the last two barriers
        self._discarded_upto = 0  # as of the last barrier
        self._altered: dict[int, TableCatalog] = {}  # the columns of tables since their actors were built

    # -- interface of the meta side (Worker) -----------------------------------------------------------

    def build(self, specs: Sequence[ActorSpec]) -> None:
        """Build actors, which begin with the barrier that names them."""
        for spec in specs:
            permits = self._options.channel_permits_rows
            inputs = tuple(
                tuple(Channel(permits, f"actor {upstream} to {spec.actor_id}") for upstream in each.upstreams)
                for each in spec.inputs
            )
            control = None if inputs else Channel(permits, f"control of actor {spec.actor_id}")
            try:
                actor = self._builder.build(spec, control, inputs, self._barriers)
            except Exception as error:
                raise ActorFailed(spec.actor_id, error) from error
            built = RunningActor(spec, actor, control, inputs)
            for channel in built.channels:
                channel.on_readable = partial(self._pool.wake, actor)
            with self._changed:
                self._built[spec.actor_id] = built

    def inject(self, barrier: Barrier, on_passed: Callable[[], None] = lambda: None) -> Future[CollectedEpoch]:
        """Send `barrier` to every control channel; its mutation begins and ends actors. `on_passed` is called when all
        actors have passed it."""
        with self._sending:
            collected = self._inject(barrier, on_passed)
        if not self._is_serving:
            self._begin_serving(barrier)
        return collected

    def _inject(self, barrier: Barrier, on_passed: Callable[[], None]) -> Future[CollectedEpoch]:
        with self._changed:
            if isinstance(barrier.mutation, Alter):
                self._altered[barrier.mutation.table.id] = barrier.mutation.table
            self._discarded_upto, self._last_epoch = self._last_epoch, barrier.epoch.curr
            self._builder.notice.note_injected(barrier.epoch.curr)
            beginning: list[Actor] = []
            if isinstance(barrier.mutation, Add):
                beginning = [self._built[actor_id].actor for actor_id in barrier.mutation.actors]
                barrier = replace(barrier, mutation=self._begin(barrier.mutation))
            expected = tuple(self._running)
            heads = [each.control for each in self._running.values() if each.control is not None]
            self._spent_before = self._spent_before[1], self._spent_cpu_seconds()
            stopped = [self._running.pop(each) for each in barrier.stopped]
            self._spent_by_ended += sum(each.actor.spent_cpu_seconds for each in stopped)
            for each in stopped:
                if each.spec.writes in self._running:
                    self._running[each.spec.writes].sinks.pop(each.spec.actor_id, None)
            self._ended += stopped
        collected = self._barriers.inject(barrier, heads, expected, lambda: self._let_begin(beginning), on_passed)
        for each in stopped:
            if each.control is not None:
                each.control.close()
        return collected

    def expect(self, seconds: float) -> bool:
        """Whether the actors have done much since the barrier before the last one; then what they do, flushes and
        merges prepare for the next one."""
        with self._changed:
            has_much = self._spent_cpu_seconds() - self._spent_before[0] > MUCH_CPU_SECONDS
            epoch = Epoch(self._last_epoch)
        if has_much:
            self._builder.notice.announce(seconds)
            self._expect_sync(epoch, seconds)
            self._barriers.expect()
        return has_much

    def _spent_cpu_seconds(self) -> float:
        """CPU time so far of the actors that run, and of those that ran. REQUIRES the lock."""
        return self._spent_by_ended + sum(each.actor.spent_cpu_seconds for each in self._running.values())

    def missing(self, epoch: int) -> tuple[int, ...]:
        return self._barriers.missing(epoch)

    def committed(self, epoch: int) -> None:
        """Statements up to `epoch` are durable; actors that were stopped and have ended are removed."""
        self._barriers.committed(epoch)
        self.pending.committed(epoch)
        with self._changed:
            ended, self._ended = self._ended, []
        running = self._pool.join([each.actor for each in ended], 0)
        for each in ended:
            if each.actor not in running:
                _refuse_leftovers(each)
            else:
                with self._changed:
                    self._ended.append(each)

    def reset(self, cause: BaseException) -> None:
        """End all actors and discard everything uncommitted, except the statements that will be sent again."""
        self._barriers.quiesce()
        self.pending.suspend(cause)
        with self._changed:
            self._is_serving = False
            everyone = [*self._built.values(), *self._running.values(), *self._ended]
            self._built, self._running, self._ended, self._altered = {}, {}, [], {}
            self._spent_by_ended, self._spent_before = 0.0, (0.0, 0.0)
        for each in everyone:
            each.close(cause)
        stuck = self._pool.join([each.actor for each in everyone], JOIN_SECONDS)
        if stuck:
            names = ", ".join(actor.name for actor in stuck)
            raise RecoveryFailed(1, TimeoutError(f"{names} did not end in {JOIN_SECONDS} s"))
        self._barriers.reset()
        self._store.clear_uncommitted()

    def close(self, error: BaseException) -> None:
        """Reset for the last time: every caller that waits for this node gets `error`."""
        with self._changed:
            self._closed_by = error
            self._changed.notify_all()
        try:
            self.reset(error)
        finally:
            self.pending.close(error)
            self._barriers.close()
            self._pool.close()

    @property
    def is_busy(self) -> bool:
        """Whether actors have yet to pass a barrier, or an epoch that they have passed is not committed. Takes no lock.
        """
        return self._barriers.is_busy

    # -- interface of sessions -------------------------------------------------------------------------

    def execute(self, table_id: int, table_name: str, statement: Statement) -> int:
        """Rows affected, once the table's own actor has evaluated the statement. Waits for the end of a recovery,
        whether it begins before or after the statement was sent. StatementError if the statement fails, JobFailed if
        the table was set aside, StatementsLost if the table could not accept it again after a recovery."""
        return self.begin(table_id, table_name, statement)()

    def begin(self, table_id: int, table_name: str, statement: Statement) -> Callable[[], int]:
        """Sends a statement; what is returned waits for its result, as `execute`."""
        def send(message: Sent) -> int | None:
            assert not isinstance(message, Block | ReplayedBlock)
            try:
                before = self._control_of(table_id, table_name).send(message)
            except ChannelClosed:
                return None
            assert before is not None, "a table takes statements only after its first barrier"
            return before.epoch.curr

        return self.pending.begin(statement, table_id, table_name, send, self._request_barrier)

    def begin_block(self, block: Block) -> Callable[[], int]:
        """Sends a block to all its tables, in one epoch; what is returned waits for its result, the rows affected. The
        errors of `execute`; after any of them nothing of the block takes effect."""
        first = block.parts[0]
        return self.pending.begin(block, first.table_id, first.table, self._send_block, self._request_barrier)

    def _send_block(self, message: Sent) -> int | None:
        """The epoch in which a block was sent to all its tables; None if it has to be sent again."""
        assert isinstance(message, Block | ReplayedBlock)
        if isinstance(message, Block) and message.result.done():
            return 0  # a table refused it before a recovery
        tables = [(each[0], each[1]) for each in message.parts]
        for table_id, table in tables:
            self._control_of(table_id, table)
        with self._sending:
            with self._changed:
                if not self._is_serving:
                    return None
                receivers = {table_id: self._receiver_of(table_id, table) for table_id, table in tables}
            self._check_fits(message, receivers)
            try:
                return self._deliver(message, receivers)
            except ChannelClosed:
                return None

    def _deliver(self, message: Block | ReplayedBlock, receivers: Mapping[int, RunningActor]) -> int:
        """Sends the parts of a block; their epoch. REQUIRES that no barrier is sent meanwhile. ChannelClosed."""
        actors = [each.actor for each in receivers.values()]

        def wake() -> None:
            for actor in actors:
                self._pool.wake(actor)

        epochs = set()
        for table_id, _, part in addressed(message, wake):
            control = receivers[table_id].control
            assert control is not None
            before = control.send(part, free=True)
            assert before is not None, "a table takes statements only after its first barrier"
            epochs.add(before.epoch.curr)
        assert len(epochs) <= 1, "a barrier came between the parts of a block"
        return epochs.pop() if epochs else 0

    def _check_fits(self, message: Block | ReplayedBlock, receivers: Mapping[int, RunningActor]) -> None:
        """InvalidStatement unless each table can hold the changes that are to be replayed."""
        if isinstance(message, Block):
            return
        for table_id, table, replayed in message.parts:
            columns = self._altered.get(table_id, receivers[table_id].spec.table)
            if fitted_changes(replayed.evaluation, columns) is None:
                raise InvalidStatement(table, "a column of this block was dropped meanwhile")

    def send(self, table_id: int, table_name: str, message: Statement | Replayed | Proposed) -> None:
        """Sends a statement to the table's own actor, in the open epoch. The errors of `execute` for a table that takes
        none."""
        self._control_of(table_id, table_name).send(message, free=True)

    def fragments(self) -> list[FragmentFigures]:
        """Figures of all running fragments, by job and fragment."""
        with self._changed:
            running = list(self._running.values())
        found = []
        for (table_id, fragment), actors in by_fragment(running):
            channels = [channel for actor in actors for channel in actor.channels]
            found.append(FragmentFigures(
                actors[0].spec.table.name,
                table_id,
                fragment,
                len(actors),
                sum(each.actor.rows for each in actors),
                sum(each.actor.spent_cpu_seconds for each in actors),
                sum(channel.waiting_rows for channel in channels),
                sum(channel.waiting_bytes for channel in channels),
            ))
        return found

    def memory(self) -> list[OperatorMemory]:
        """What the executors of all running jobs keep in memory, by job and fragment. Takes no lock of an actor."""
        with self._changed:
            running = list(self._running.values())
        return [use for _, actors in by_fragment(running) for use in operator_memory(actors)]

    def recent_epochs(self) -> tuple[EpochFigures, ...]:
        """None: the actors of this process do not run as tasks."""
        return ()

    def measure(self) -> None:
        """From now on the meters of all actors count."""
        with self._changed:
            read_meters([*self._built.values(), *self._running.values()], +1)

    def actors(self) -> list[RunningActor]:
        """All that run, or have ended and are still known."""
        with self._changed:
            return [*self._running.values(), *self._ended]

    def profile(self, job_id: int, job: str, interval: Callable[[], None]) -> list[FragmentProfile]:
        """Measures the fragments of a job while `interval()` waits. JobNotRunning if the job runs no actor;
        ProfileInterrupted if its actors were replaced meanwhile."""
        with self._changed:
            running = [each for each in self._running.values() if each.spec.job_id == job_id]
            if not running:
                raise JobNotRunning(job)
            read_meters(running, +1)
        try:
            before = [profile_since_start(actors) for _, actors in by_fragment(running)]
            interval()
            after = [profile_since_start(actors) for _, actors in by_fragment(running)]
            with self._changed:
                if any(self._running.get(each.spec.actor_id) is not each for each in running):
                    raise ProfileInterrupted(job)
        finally:
            with self._changed:
                read_meters(running, -1)
        return [profile_between(*each) for each in zip(before, after, strict=True)]

    # -- internals -------------------------------------------------------------------------------------

    def _begin_serving(self, barrier: Barrier) -> None:
        """After the Initial barrier of a generation: send undone statements again, then admit those of sessions."""
        with self._changed:
            heads = {each.spec.job_id: each for each in self._running.values() if each.control is not None}
            self._failed = barrier.mutation.failed if isinstance(barrier.mutation, Add) else {}
        for pending in self.pending.resume(barrier.epoch.prev, self._discarded_upto):
            missing = [table_id for table_id in pending.tables if table_id not in heads]
            if missing or pending.is_suspect:
                self.pending.lose(pending, self._failed.get(missing[0]) if missing else None)
                continue
            message = self.pending.again(pending)
            with contextlib.suppress(ChannelClosed):  # the end of the actor leads to another recovery
                if isinstance(message, Block | ReplayedBlock):
                    try:
                        self._check_fits(message, heads)
                    except InvalidStatement as refusal:
                        self.pending.lose(pending, refusal)
                        continue
                    self._deliver(message, heads)
                else:
                    control = heads[pending.table_id].control
                    assert control is not None
                    control.send(message, free=True)
            self.pending.sent(pending.statement.statement_id, barrier.epoch.curr)
        with self._changed:
            self._is_serving = True
            self._changed.notify_all()

    def _begin(self, add: Add) -> Add:
        """Start the actors that `add` names; the mutation with the edges on which their upstream actors send to
        them."""
        beginning = [self._built.pop(actor_id) for actor_id in sorted(add.actors)]
        for each in beginning:
            self._running[each.spec.actor_id] = each
            each.actor.may_begin = not add.stopped
            self._pool.start(each.actor, each.has_barrier)
        targets: dict[int, dict[tuple[int, ...], dict[int, Channel]]] = {}  # sender -> edge -> receiver -> channel
        specs: dict[tuple[int, ...], EdgeSpec] = {}
        for each in beginning:
            for input, channels in zip(each.spec.inputs, each.inputs, strict=True):
                specs[input.edge.edge_id] = input.edge
                for upstream, channel in zip(input.upstreams, channels, strict=True):
                    channel.on_writable = partial(self._pool.wake, self._running[upstream].actor)
                    of_edge = targets.setdefault(upstream, {}).setdefault(input.edge.edge_id, {})
                    of_edge[each.spec.actor_id] = channel
        outputs = {
            upstream: tuple((edge_id, _edge(specs[edge_id], receivers)) for edge_id, receivers in edges.items())
            for upstream, edges in targets.items()
        }
        joined: dict[int, tuple[JoinedSink, ...]] = {}
        for each in beginning:
            if each.spec.writes is not None:
                actor_id, table_actor = each.spec.actor_id, each.spec.writes
                into, channel = each.spec.table.sink_table, self._join(each, self._running[table_actor])
                assert into is not None
                sink = JoinedSink(actor_id, channel, into.column_ids)
                joined[table_actor] = (*joined.get(table_actor, ()), sink)
                edge = (each.spec.job_id, table_actor), SimpleEdge({table_actor: channel})
                outputs[actor_id] = (*outputs.get(actor_id, ()), edge)
        return replace(add, outputs=outputs, joined=joined)

    def _join(self, sink: RunningActor, table: RunningActor) -> Channel:
        """The channel from the actor of a sink to that of the table that it writes."""
        actor_id = sink.spec.actor_id
        channel = Channel(self._options.channel_permits_rows, f"sink actor {actor_id} to {table.spec.actor_id}")
        channel.on_readable = partial(self._pool.wake, table.actor)
        channel.on_writable = partial(self._pool.wake, sink.actor)
        sink.written.append(channel)
        table.sinks[actor_id] = channel
        return channel

    def _let_begin(self, actors: Iterable[Actor]) -> None:
        """The actors that they replace have passed their last barrier: the state is complete in the store [R19]."""
        for actor in actors:
            actor.may_begin = True
            self._pool.wake(actor)

    def _control_of(self, table_id: int, table_name: str) -> Channel:
        with self._changed:
            timeout = self._options.barrier_timeout_ms / 1_000
            if not self._changed.wait_for(lambda: self._is_serving or self._closed_by is not None, timeout):
                raise SessionClosed(f"no recovery within {self._options.barrier_timeout_ms} ms")
            if self._closed_by is not None:
                raise self._closed_by
            control = self._receiver_of(table_id, table_name).control
            assert control is not None
            return control

    def _receiver_of(self, table_id: int, table_name: str) -> RunningActor:
        """The actor that evaluates the statements of a table. REQUIRES the lock."""
        for each in self._running.values():
            if each.spec.job_id == table_id and each.control is not None:
                return each
        if table_id in self._failed:
            raise self._failed[table_id]
        raise InvalidStatement(table_name, "the table was dropped")


def _edge(spec: EdgeSpec, targets: Mapping[int, Channel]) -> Edge:
    """The sending end of an edge."""
    if spec.vnode_map is None:
        return SimpleEdge(targets)
    if spec.table is None:
        return HashEdge(targets, spec.key, spec.vnode_map, spec.rule)
    column_ids = tuple(spec.table.column_ids[column] for column in spec.key)
    return HashEdge(targets, spec.key, spec.vnode_map, spec.rule, spec.table.id, column_ids)


def _refuse_leftovers(ended: RunningActor) -> None:
    """Complete statements that arrived after the Stop of their table with an error."""
    while ended.control is not None:
        try:
            message = ended.control.try_recv()
        except ChannelClosed:
            return
        refusal = InvalidStatement(ended.actor.name, "the table was dropped")
        if isinstance(message, STATEMENTS):
            message.result.set_exception(refusal)
        elif isinstance(message, Proposed):
            message.ballot.refuse(refusal)
