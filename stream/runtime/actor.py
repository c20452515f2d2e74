"""Actor: one thread that pulls its chain of executors and pushes into its dispatcher.

Nothing inside an actor runs in parallel, and it runs only while it holds a run slot. An actor never swallows an error:
it reports the error and ends; the recovery decides what follows. It reports each barrier after everything before that
barrier has been dispatched."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import Protocol

from stream.errors import SourcePosition
from stream.executor.base import Executor
from stream.message import STATEMENTS, Barrier, Replayed, Watermark
from stream.runtime.dispatch import Dispatcher
from stream.runtime.run_slots import RunSlots


class ActorObserver(Protocol):
    """Is notified by an actor, in the actor's thread."""

    def collect(self, actor_id: int, barrier: Barrier) -> None:
        """`actor_id` has passed `barrier`: its state up to epoch.prev is ingested."""
        ...

    def fail(self, actor_id: int, error: BaseException, position: SourcePosition | None) -> None:
        """`actor_id` has ended with `error` and will pass no further barrier; its source was at `position`."""
        ...


class Actor:
    """Runs until it has passed a Stop mutation that names it, its input ends, or an error occurs. `position()` is the
    position of its source, None without one."""

    def __init__(
        self,
        actor_id: int,
        executor: Executor,
        dispatcher: Dispatcher,
        observer: ActorObserver,
        run_slots: RunSlots,
        position: Callable[[], SourcePosition | None] = lambda: None,
    ) -> None:
        self.actor_id = actor_id
        self.rows = 0
        """Changes emitted so far; read from any thread."""
        self.name = f"actor-{actor_id}-{executor.info.identity}"
        self._executor = executor
        self._dispatcher = dispatcher
        self._observer = observer
        self._run_slots = run_slots
        self._position = position
        self._thread = threading.Thread(target=self.run, name=self.name, daemon=True)

    def start(self) -> None:
        """Start the actor's thread."""
        self._thread.start()

    def join(self, timeout: float) -> bool:
        """Wait for the thread to end; whether it has ended within `timeout` seconds."""
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def run(self) -> None:
        """Process messages until the end. Errors are reported to the observer, none is raised."""
        self._run_slots.acquire()
        messages = self._executor.execute()
        try:
            for message in messages:
                if isinstance(message, Barrier):
                    self._dispatcher.broadcast(message)
                    self._observer.collect(self.actor_id, message)
                    if message.stops(self.actor_id):
                        return
                elif isinstance(message, Watermark):
                    self._dispatcher.broadcast(message)
                else:
                    assert not isinstance(message, (*STATEMENTS, Replayed)), "a statement ends in its table's own chain"
                    self.rows += message.capacity
                    self._dispatcher.dispatch(message)
                self._run_slots.yield_if_due()
        except BaseException as error:
            self._observer.fail(self.actor_id, error, self._position())
        finally:
            if isinstance(messages, Generator):
                messages.close()
            self._run_slots.release()
