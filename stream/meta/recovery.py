"""RecoveryPolicy: number of attempts, backoff, and errors that no attempt can heal."""

from __future__ import annotations

from hummock.errors import Corruption, DiskFull, Fenced, MetaStoreEmptied, MetaStoreForked
from stream.errors import RecoveryFailed
from stream.options import StreamOptions

FATAL = (Fenced, Corruption, DiskFull, MetaStoreEmptied, MetaStoreForked)
"""Another process owns the store, its bytes are corrupt, or its disk is full: these errors end the session as they
are."""
MAX_BACKOFF_MS = 5_000


class RecoveryPolicy:
    """Counts consecutive recoveries without a committed epoch [C10]. Not thread safe: one thread recovers."""

    def __init__(self, options: StreamOptions) -> None:
        self._attempts_limit = options.recovery_attempts
        self._backoff_ms = options.recovery_backoff_ms
        self._attempts = 0

    def next_attempt(self, cause: BaseException) -> float:
        """Seconds to wait before the next attempt: none before the first, then doubled each time. Raises the FATAL
        error in the chain of `cause`, or RecoveryFailed after the last attempt."""
        fatal = fatal_cause(cause)
        if fatal is not None:
            raise fatal
        if self._attempts >= self._attempts_limit:
            raise RecoveryFailed(self._attempts, cause)
        self._attempts += 1
        if self._attempts == 1:
            return 0.0
        return min(self._backoff_ms * 2 ** (self._attempts - 2), MAX_BACKOFF_MS) / 1_000

    def committed(self) -> None:
        """An epoch was committed: the next failure is counted as the first."""
        self._attempts = 0

    def progressed(self) -> None:
        """What failed runs no more, a job that was set aside or a statement that was refused: the next failure is
        counted as the first."""
        self._attempts = 0

    @property
    def has_committed(self) -> bool:
        """Whether an epoch was committed between the last two recoveries."""
        return self._attempts <= 1


def fatal_cause(error: BaseException | None) -> BaseException | None:
    """The first error in a chain of causes that no recovery heals. A chain may be a cycle: `raise error from error`."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, FATAL):
            return error
        seen.add(id(error))
        error = error.__cause__
    return None
