"""BarrierSchedule: what the next barrier is due for, and what rides on it."""

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
    """What a DDL adds to the transaction of a commit: catalog rows, the tables whose rows nobody reads any more, and
    files that were made elsewhere."""

    operations: MetaOperations
    dropped_tables: tuple[int, ...] = ()
    loads: tuple[LoadedFiles, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """A DDL on its way: what rides on the barrier, and what rides on the commit.

    `prepare()` gives the mutation, None where nothing that runs changes; it is called by the thread that
    injects, never beside a recovery, and may refuse by raising. `in_new_epoch`: the change belongs to the
    commit of the epoch that the barrier opens, not of the one it ends. `is_applied()` tells after a recovery
    whether a commit of unknown outcome happened; where it did not, the command is tried again, with a new call of
    `prepare()`. `attempt` counts from 1.
    """

    prepare: Callable[[], Mutation | None]
    change: JobChange
    in_new_epoch: bool
    is_applied: Callable[[], bool]
    result: Future[int] = field(default_factory=Future, compare=False)
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Ride:
    """What goes with one barrier: its mutation, the commands and flushes that its commit completes."""

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
        self._opening: list[Command] = []  # complete with the epoch that is open now
        self._flushes: list[Future[int]] = []
        self._is_requested = False
        self._barriers = 0
        self.next_at = 0.0
        """When the interval is over."""

    @property
    def is_asked(self) -> bool:
        """Whether somebody waits for a barrier before the interval is over."""
        return bool(self._is_requested or self._flushes or self._commands or self._opening)

    def request(self) -> None:
        self._is_requested = True

    def flush(self, waiter: Future[int]) -> None:
        self._flushes.append(waiter)

    def schedule(self, command: Command) -> None:
        self._commands.append(command)

    def begin(self, now: float) -> None:
        """An Initial barrier goes out now."""
        self.next_at = now + self._interval

    def next_command(self) -> Command | None:
        """The command that has waited longest, no longer waiting."""
        return self._commands.popleft() if self._commands else None

    def cut(self, now: float, command: Command | None = None, mutation: Mutation | None = None) -> Ride:
        """What rides on the barrier that goes out now: `command` with its mutation, all flushes, and the
        commands whose first epoch ends here."""
        completed, self._opening = self._opening, []
        if command is not None:
            (self._opening if command.in_new_epoch else completed).append(command)
        flushes, self._flushes = self._flushes, []
        self._barriers += 1
        self._is_requested = False
        self.next_at = now + self._interval
        is_checkpoint = bool(command or completed or flushes) or not (self._barriers % self._checkpoint_frequency)
        return Ride(mutation, is_checkpoint, tuple(completed), tuple(flushes))

    def put_back(self, flushes: tuple[Future[int], ...]) -> None:
        """The barrier of these flushes was undone: a later one answers them."""
        self._flushes.extend(flushes)

    def put_back_command(self, command: Command) -> None:
        """The barrier of this command was undone: it rides on the next one."""
        self._commands.appendleft(command)

    def take_opening(self) -> list[Command]:
        """The commands whose mutation has gone out, and which wait for the epoch that it opened."""
        commands, self._opening = self._opening, []
        return commands

    def take_commands(self) -> list[Command]:
        """All commands that wait for their barrier."""
        commands, self._commands = list(self._commands), deque()
        return commands

    def take_flushes(self) -> list[Future[int]]:
        """All flushes that wait for a barrier."""
        flushes, self._flushes = self._flushes, []
        return flushes
