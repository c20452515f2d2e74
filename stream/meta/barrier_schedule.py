"""BarrierSchedule: when the next barrier is due, and its payload."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stream.message import Mutation

if TYPE_CHECKING:
    from hummock.loaded_files import LoadedFiles
    from hummock.meta.store.base import MetaOperations
    from stream.options import StreamOptions


@dataclass(frozen=True, slots=True)
class JobChange:
    """What a DDL adds to the transaction of a commit: catalog rows, tables whose rows are no longer read, and files
    that were written elsewhere."""

    operations: MetaOperations
    dropped_tables: tuple[int, ...] = ()
    loads: tuple[LoadedFiles, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """A pending DDL: what its barrier carries, and what its commit carries.

    `prepare()` returns the mutation, None if nothing that runs changes; it is called by the injection thread, never
    during a recovery, and may refuse by raising. `in_new_epoch`: the change belongs to the commit of the epoch that
    the barrier opens, not of the one that it ends. After a recovery `is_applied()` returns whether a commit of unknown
    outcome happened; if not, the command is tried again, with a new call of `prepare()`. `attempt` counts from 1.
    """

    prepare: Callable[[], Mutation | None]
    change: JobChange
    in_new_epoch: bool
    is_applied: Callable[[], bool]
    result: Future[int] = field(default_factory=Future, compare=False)
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class BarrierPayload:
    """What one barrier carries: its mutation, and the commands and flushes that its commit completes."""

    mutation: Mutation | None
    is_checkpoint: bool
    commands: tuple[Command, ...] = ()
    flushes: tuple[Future[int], ...] = ()


class BarrierSchedule:
    """Not thread safe: the BarrierManager's lock guards it. Times are seconds of the manager's clock."""

    def __init__(self, options: StreamOptions) -> None:
        self._interval = options.barrier_interval_ms / 1_000
        self._checkpoint_frequency = options.checkpoint_frequency
        self._commands: deque[Command] = deque()
        self._opening: list[Command] = []  # completed by the epoch that is open now
        self._flushes: list[Future[int]] = []
        self._has_request = self._wants_checkpoint = False
        self._barriers = 0
        self.next_at = 0.0
        """When the interval is over, or a barrier is due that was brought forward."""

    @property
    def is_requested(self) -> bool:
        """Whether a barrier is due before the interval is over."""
        return bool(self._has_request or self._flushes or self._commands or self._opening)

    def request(self) -> None:
        self._has_request = True

    def bring_forward(self, at: float) -> None:
        """The next barrier is due at `at`, if that is before the interval is over."""
        self.next_at = min(self.next_at, at)

    def request_checkpoint(self) -> None:
        """The next barrier, which is due at once, is a checkpoint."""
        self._has_request = self._wants_checkpoint = True

    def flush(self, waiter: Future[int]) -> None:
        self._flushes.append(waiter)

    def schedule(self, command: Command) -> None:
        self._commands.append(command)

    def begin(self, now: float) -> None:
        """An Initial barrier is injected now."""
        self.next_at = now + self._interval

    def next_command(self) -> Command | None:
        """Removes and returns the command that has waited longest."""
        return self._commands.popleft() if self._commands else None

    def cut(self, now: float, command: Command | None = None, mutation: Mutation | None = None) -> BarrierPayload:
        """The payload of the barrier that is injected now: `command` with its mutation, all flushes, and the commands
        whose first epoch ends here."""
        completed, self._opening = self._opening, []
        if command is not None:
            (self._opening if command.in_new_epoch else completed).append(command)
        flushes, self._flushes = self._flushes, []
        self._barriers += 1
        is_wanted, self._has_request, self._wants_checkpoint = self._wants_checkpoint, False, False
        self.next_at = now + self._interval
        is_due = not self._barriers % self._checkpoint_frequency
        is_checkpoint = bool(command or completed or flushes or is_wanted or is_due)
        return BarrierPayload(mutation, is_checkpoint, tuple(completed), tuple(flushes))

    def put_back(self, flushes: tuple[Future[int], ...]) -> None:
        """The barrier of these flushes was undone: a later one completes them."""
        self._flushes.extend(flushes)

    def put_back_command(self, command: Command) -> None:
        """The barrier of this command was undone: the next one carries it."""
        self._commands.appendleft(command)

    def take_opening(self) -> list[Command]:
        """Removes the commands whose mutation was injected, and which wait for the epoch that it opened."""
        commands, self._opening = self._opening, []
        return commands

    def take_commands(self) -> list[Command]:
        """Removes all commands that wait for their barrier."""
        commands, self._commands = list(self._commands), deque()
        return commands

    def take_flushes(self) -> list[Future[int]]:
        """Removes all flushes that wait for a barrier."""
        flushes, self._flushes = self._flushes, []
        return flushes
