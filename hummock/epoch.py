"""An epoch is the interval between two barriers: the unit of visibility, commit and recovery.

Layout, uint64: milliseconds since 2021-04-01T00:00Z << 16 | spill offset. A pure epoch has offset 0; stored keys have
the offset of the flush that wrote them, so several flushes fit into one epoch and stay ordered. Commits, pins,
watermarks and retention use pure epochs; a read at `e` sees offsets up to 0xFFFF. Callers never increment or decrement
epochs: the next one comes from an `EpochGenerator`. 0 means "never".
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from operator import index
from typing import NewType, SupportsIndex

from hummock.errors import InvalidEpoch

Epoch = NewType("Epoch", int)
Clock = Callable[[], int]           # milliseconds since 1970-01-01T00:00Z

SPILL_BITS = 16
SPILL_MASK = (1 << SPILL_BITS) - 1
MAX_EPOCH = Epoch((1 << 64) - 1)
NEVER = Epoch(0)
OWN_EPOCHS = 1 << 62               # epochs of commits are below: of times up to the year 4251
BASE_MS = 1_617_235_200_000         # 2021-04-01T00:00Z


def wall_clock_ms() -> int:
    """This machine's clock in milliseconds since 1970; no other code reads it."""
    return time.time_ns() // 1_000_000


def monotonic_seconds() -> float:
    """Monotonic seconds, for measuring waits."""
    return time.monotonic()


def check_epoch(epoch: SupportsIndex) -> Epoch:
    """`epoch` as an int. Raises `InvalidEpoch` unless it is an integer, of any type but bool, of 0 .. 2**64 - 1."""
    if isinstance(epoch, bool):
        raise InvalidEpoch(epoch, "an epoch is an integer")
    try:
        number = index(epoch)
    except TypeError:
        raise InvalidEpoch(epoch, "an epoch is an integer") from None
    if not 0 <= number <= MAX_EPOCH:
        raise InvalidEpoch(number, "an epoch is between 0 and 2**64 - 1")
    return Epoch(number)


def check_pure(epoch: SupportsIndex) -> Epoch:
    """`epoch` as an int. Raises `InvalidEpoch` unless it is pure and not 0."""
    number = check_epoch(epoch)
    if number & SPILL_MASK or number == NEVER:
        raise InvalidEpoch(number, "a pure epoch has its low 16 bits zero and is not 0")
    return number


def check_committable(epoch: SupportsIndex) -> Epoch:
    """As `check_pure`, and below OWN_EPOCHS: a store never goes back, so that one commit at the end of all epochs would
    leave none to write at.
    """
    number = check_pure(epoch)
    if number >= OWN_EPOCHS:
        raise InvalidEpoch(number, "epochs of writes are below 2**62, so that there are always later ones: an epoch is "
                                   "milliseconds since April 2021, times 2**16")
    return number


def pure_epoch(epoch: int) -> Epoch:
    """The epoch without its spill offset."""
    return Epoch(epoch & ~SPILL_MASK)


def with_spill(epoch: int, offset: int) -> Epoch:
    """The stored epoch of flush number `offset` in the pure `epoch`; `InvalidEpoch` past 0xFFFF."""
    if not 0 <= offset <= SPILL_MASK:
        raise InvalidEpoch(epoch, f"flush {offset} does not fit into 16 bits")
    return Epoch(pure_epoch(epoch) | offset)


def from_unix_ms(unix_ms: int) -> Epoch:
    """The pure epoch of a time; `InvalidEpoch` before April 2021."""
    if unix_ms <= BASE_MS:
        raise InvalidEpoch(unix_ms, "the moment is before 2021-04-01T00:00Z")
    return check_epoch((unix_ms - BASE_MS) << SPILL_BITS)


def to_unix_ms(epoch: int) -> int:
    """Milliseconds since 1970 of an epoch, its offset ignored."""
    return (epoch >> SPILL_BITS) + BASE_MS


def own_epoch(committed: int) -> Epoch:
    """The epoch of a writer apart from the commits, which has read what was committed up to `committed`: it is above
    all epochs of commits."""
    return Epoch(committed | OWN_EPOCHS)


def committed_epoch_of(own: int) -> Epoch:
    """The epoch that an `own_epoch` was made from."""
    return Epoch(own & ~OWN_EPOCHS)


@dataclass(frozen=True, slots=True)
class EpochPair:
    """A barrier ends epoch `prev` and opens epoch `curr`."""

    curr: Epoch
    prev: Epoch

    def __post_init__(self) -> None:
        if self.prev >= self.curr:
            raise InvalidEpoch(self.curr, f"does not follow {self.prev}")


class EpochGenerator:
    """Generates pure epochs, each greater than all before it and than `last`, even if the clock goes back.

    Thread safe.
    """

    def __init__(self, clock: Clock = wall_clock_ms, last: int = NEVER):
        self._clock = clock
        self._last = pure_epoch(check_epoch(last))
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"EpochGenerator(last={self._last})"

    def next(self) -> Epoch:
        """An epoch greater than all before it, for the writes from here on."""
        with self._lock:
            moment = max(self._clock() - BASE_MS, (self._last >> SPILL_BITS) + 1)
            self._last = check_epoch(moment << SPILL_BITS)
            return self._last
