"""Actor: pulls its chain of executors and sends what they emit.

An actor is run in slices by an ActorPool. Nothing inside it runs in parallel. An actor never swallows an error: it
reports the error and ends; the recovery decides what follows. Only what goes wrong when its executors are closed after
that, or after its last barrier, is no more than logged. It reports each barrier after everything before that barrier
has been sent."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Mapping
from types import MappingProxyType
from typing import Protocol

from hummock.base.logs import Event
from hummock.epoch import Epoch
from stream.errors import SourcePosition
from stream.executor.base import Executor
from stream.executor.meter import ExecutorMeter
from stream.message import PAUSE, STATEMENTS, WAIT, Barrier, Decision, Proposed, Replayed, Wait, Watermark
from stream.runtime.dispatch import Outputs
from stream.runtime.thread_clock import slice_began, slice_ended

log = logging.getLogger(__name__)


class ActorObserver(Protocol):
    """Is notified by an actor, in the thread that runs it."""

    def collect(self, actor_id: int, barrier: Barrier) -> None:
        """`actor_id` has passed `barrier`: its state up to epoch.prev is ingested."""
        ...

    def fail(self, actor_id: int, error: BaseException, position: SourcePosition | None) -> None:
        """`actor_id` has ended with `error` and will pass no further barrier; its source was at `position`."""
        ...


class Actor:
    """Runs until it has passed a mutation that stops it, its input ends, or an error occurs. `position()` is the
    position of its source, None without one. `meters`: those of its executors. `blamed(error)`: the actor
    whose rows are the cause of an error, None: this one. `executors`: by the position of their nodes, until it ends. It
    processes nothing before `may_begin` is set."""

    def __init__(
        self,
        actor_id: int,
        executor: Executor,
        outputs: Outputs,
        observer: ActorObserver,
        position: Callable[[], SourcePosition | None] = lambda: None,
        meters: Mapping[int, ExecutorMeter] = MappingProxyType({}),
        blamed: Callable[[BaseException], int | None] = lambda error: None,
        executors: Mapping[int, Executor] = MappingProxyType({}),
    ) -> None:
        self.actor_id = actor_id
        self.meters = meters
        self.executors = executors
        self.passed_epoch = Epoch(0)
        """The epoch that the last barrier opened which it has passed; read from any thread."""
        self.name = f"actor-{actor_id}-{executor.info.identity}"
        self._outputs = outputs
        self._observer = observer
        self._position = position
        self._blamed = blamed
        self.may_begin = True
        self._messages = executor.execute()
        self._cpu_seconds = 0.0  # of earlier slices
        self._slice_began = 0.0  # CPU time of the thread that executes the current slice

    @property
    def rows(self) -> int:
        """Changes emitted so far; read from any thread."""
        return self._outputs.sent_rows

    @property
    def spent_cpu_seconds(self) -> float:
        """CPU time of the actor as of its last slice; read from any thread."""
        return self._cpu_seconds

    def cpu_clock(self) -> float:
        """CPU time of the actor so far. REQUIRES that the caller runs in a slice of the actor."""
        return self._cpu_seconds + time.thread_time() - self._slice_began

    def run(self, until: Callable[[], bool]) -> Wait | bool:
        """One slice, see `Runnable.run`. Errors are reported to the observer, none is raised."""
        if not self.may_begin:
            return WAIT
        self._slice_began = slice_began()
        try:
            return self._run(until)
        except BaseException as error:
            try:
                blamed = self._blamed(error)
                self._observer.fail(self.actor_id if blamed is None else blamed, error, self._position())
            finally:
                self._end()
            return False
        finally:
            self._cpu_seconds += slice_ended() - self._slice_began

    def _run(self, until: Callable[[], bool]) -> Wait | bool:
        if not self._outputs.flush():
            return WAIT
        for message in self._messages:
            if isinstance(message, Wait):
                if message != PAUSE:
                    return message
            elif isinstance(message, Barrier):
                self._outputs.broadcast(message)
                is_last = message.stops(self.actor_id)
                if is_last:
                    self._end()
                self._observer.collect(self.actor_id, message)
                self.passed_epoch = message.epoch.curr
                if is_last:
                    return False
            elif isinstance(message, Watermark):
                self._outputs.broadcast(message)
            else:
                own = (*STATEMENTS, Replayed, Proposed, Decision)
                assert not isinstance(message, own), "a statement ends in its table's own chain"
                if not self._outputs.dispatch(message):
                    return WAIT
            if until():
                return True
        self._end()
        return False

    def _end(self) -> None:
        """Closes the executors. Logs what they raise."""
        if isinstance(self._messages, Generator):
            try:
                self._messages.close()
            except BaseException:
                log.exception(Event("actor not closed", actor=self.name))
        self.executors = {}
