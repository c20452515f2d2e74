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
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stream.errors import ActorFailed, ChannelClosed, InvalidStatement, RecoveryFailed, SessionClosed
from stream.message import STATEMENTS, Add, Barrier, Replayed, Statement, Stop
from stream.options import StreamOptions
from stream.protocol import ActorSpec, CollectedEpoch, StepObserver, unobserved
from stream.runtime.actor import Actor
from stream.runtime.channel import Channel
from stream.runtime.dispatch import Output
from stream.runtime.run_slots import RunSlots
from stream.worker.local_barrier_manager import LocalBarrierManager
from stream.worker.pending_statements import PendingStatements

if TYPE_CHECKING:
    from hummock.state_store import StateStore
    from stream.worker.actor_builder import ActorBuilder

JOIN_SECONDS = 60.0
"""How long an actor may take to end once its channels are closed: one read or write of the store."""


@dataclass(frozen=True, slots=True)
class _Running:
    """An actor with its input channels. `control` is None if it has upstreams."""

    spec: ActorSpec
    actor: Actor
    control: Channel | None
    upstreams: tuple[Channel, ...]

    def close(self, cause: BaseException | None) -> None:
        for channel in (*self.upstreams, *filter(None, (self.control,))):
            channel.close(cause)


class ComputeNode:
    """A Worker (stream.protocol). Thread safe."""

    def __init__(
        self,
        store: StateStore,
        builder: ActorBuilder,
        options: StreamOptions,
        run_slots: RunSlots,
        on_failure: Callable[[BaseException], None],
        observer: StepObserver = unobserved,
        request_barrier: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._options = options
        self._builder = builder
        self._run_slots = run_slots
        self._barriers = LocalBarrierManager(store, on_failure, observer)
        self._request_barrier = request_barrier
        self.pending = PendingStatements()
        self._changed = threading.Condition()
        self._built: dict[int, _Running] = {}  # built, but not yet begun
        self._running: dict[int, _Running] = {}
        self._ended: list[_Running] = []  # stopped by a barrier
        self._is_serving = False  # between an Initial barrier and a reset
        self._failed: Mapping[int, Exception] = {}  # job id -> error, of jobs that do not run because they failed
        self._closed_by: BaseException | None = None
        self._last_epoch = 0  # the newest that was opened
        self._discarded_upto = 0  # as of the last barrier

    # -- interface of the meta side (Worker) -----------------------------------------------------------

    def build(self, specs: Sequence[ActorSpec]) -> None:
        """Build and start actors, which wait for their first barrier."""
        for spec in specs:
            permits = self._options.channel_permits_rows
            upstreams = tuple(
                Channel(permits, f"actor {upstream} to {spec.actor_id}", self._run_slots)
                for upstream in spec.upstreams
            )
            control = (
                None if upstreams else Channel(permits, f"control of actor {spec.actor_id}", self._run_slots)
            )
            try:
                actor = self._builder.build(spec, control, upstreams, self._barriers, self._run_slots)
            except Exception as error:
                raise ActorFailed(spec.actor_id, error) from error
            with self._changed:
                self._built[spec.actor_id] = _Running(spec, actor, control, upstreams)
            actor.start()

    def inject(self, barrier: Barrier) -> Future[CollectedEpoch]:
        """Send `barrier` to every control channel; its mutation begins and ends actors."""
        with self._changed:
            self._discarded_upto, self._last_epoch = self._last_epoch, barrier.epoch.curr
            stopped: list[_Running] = []
            if isinstance(barrier.mutation, Add):
                barrier = replace(barrier, mutation=self._begin(barrier.mutation))
            expected = tuple(self._running)
            heads = [each.control for each in self._running.values() if each.control is not None]
            if isinstance(barrier.mutation, Stop):
                stopped = [self._running.pop(each) for each in barrier.mutation.actors]
                self._ended += stopped
        collected = self._barriers.inject(barrier, heads, expected)
        for each in stopped:
            if each.control is not None:
                each.control.close()
        if not self._is_serving:
            self._begin_serving(barrier)
        return collected

    def missing(self, epoch: int) -> tuple[int, ...]:
        return self._barriers.missing(epoch)

    def committed(self, epoch: int) -> None:
        """Statements up to `epoch` are durable; actors that were stopped and have ended are removed."""
        self.pending.committed(epoch)
        with self._changed:
            ended, self._ended = self._ended, []
        for each in ended:
            if each.actor.join(0):
                _refuse_leftovers(each)
            else:
                with self._changed:
                    self._ended.append(each)

    def reset(self, cause: BaseException) -> None:
        """End all actors and discard everything uncommitted, except the statements that will be sent again."""
        self._barriers.quiesce()
        self.pending.suspend()
        with self._changed:
            self._is_serving = False
            everyone = [*self._built.values(), *self._running.values(), *self._ended]
            self._built, self._running, self._ended = {}, {}, []
        for each in everyone:
            each.close(cause)
        stuck = [each.actor.actor_id for each in everyone if not each.actor.join(JOIN_SECONDS)]
        if stuck:
            raise RecoveryFailed(1, TimeoutError(f"actors {stuck} did not end in {JOIN_SECONDS} s"))
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

    # -- interface of sessions -------------------------------------------------------------------------

    def execute(self, table_id: int, table_name: str, statement: Statement) -> int:
        """Rows affected, once the table's own actor has evaluated the statement. Waits for the end of a recovery,
        whether it begins before or after the statement was sent. StatementError if the statement fails, JobFailed if
        the table was set aside, StatementsLost if the table could not accept it again after a recovery."""
        number = statement.statement_id
        self.pending.add(statement, table_id, table_name, self._request_barrier)
        message: Statement | Replayed | None = statement
        try:
            while message is not None:
                control = self._control_of(table_id, table_name)
                try:
                    before = control.send(message)
                except ChannelClosed:
                    continue
                assert before is not None, "a table takes statements only after its first barrier"
                message = self.pending.sent(number, before.epoch.curr)
            rows = statement.result.result()
        except Exception:
            self.pending.forget(number)
            raise
        self.pending.acknowledged(number)
        return rows

    def emitted_rows(self, job_ids: Iterable[int]) -> int:
        """The number of changes that the actors of these jobs have emitted since they were built."""
        wanted = frozenset(job_ids)
        with self._changed:
            return sum(each.actor.rows for each in self._running.values() if each.spec.job_id in wanted)

    # -- internals -------------------------------------------------------------------------------------

    def _begin_serving(self, barrier: Barrier) -> None:
        """After the Initial barrier of a generation: send undone statements again, then admit those of sessions."""
        with self._changed:
            heads = {each.spec.job_id: each.control for each in self._running.values() if each.control is not None}
            self._failed = barrier.mutation.failed if isinstance(barrier.mutation, Add) else {}
        for pending in self.pending.resume(barrier.epoch.prev, self._discarded_upto):
            control = heads.get(pending.table_id)
            if control is None:
                self.pending.lose(pending, self._failed.get(pending.table_id))
                continue
            with contextlib.suppress(ChannelClosed):  # the end of the actor leads to another recovery
                control.send(self.pending.again(pending), free=True)
            self.pending.sent(pending.statement.statement_id, barrier.epoch.curr)
        with self._changed:
            self._is_serving = True
            self._changed.notify_all()

    def _begin(self, add: Add) -> Add:
        outputs: dict[int, tuple[Output, ...]] = {}
        for actor_id in sorted(add.actors):
            beginning = self._built.pop(actor_id)
            self._running[actor_id] = beginning
            for upstream, channel in zip(beginning.spec.upstreams, beginning.upstreams, strict=True):
                outputs[upstream] = (*outputs.get(upstream, ()), Output(actor_id, channel))
        return replace(add, outputs=outputs)

    def _control_of(self, table_id: int, table_name: str) -> Channel:
        with self._changed:
            timeout = self._options.barrier_timeout_ms / 1_000
            if not self._changed.wait_for(lambda: self._is_serving or self._closed_by is not None, timeout):
                raise SessionClosed(f"no recovery within {self._options.barrier_timeout_ms} ms")
            if self._closed_by is not None:
                raise self._closed_by
            for each in self._running.values():
                if each.spec.job_id == table_id and each.control is not None:
                    return each.control
            if table_id in self._failed:
                raise self._failed[table_id]
        raise InvalidStatement(table_name, "the table was dropped")


def _refuse_leftovers(ended: _Running) -> None:
    """Complete statements that arrived after the Stop of their table with an error."""
    while ended.control is not None:
        try:
            message = ended.control.try_recv()
        except ChannelClosed:
            return
        if isinstance(message, STATEMENTS):
            message.result.set_exception(InvalidStatement(ended.actor.name, "the table was dropped"))
