"""BarrierStats: latencies of barriers, for people and progress bars."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hummock.epoch import monotonic_seconds
from stream.protocol import Step

REMEMBERED_BARRIERS = 1_024
REMEMBERED_STEPS = 64


@dataclass(frozen=True, slots=True)
class BarrierFigures:
    """Latencies in milliseconds from injection to notification, over the last committed barriers.

    `committed_barriers` counts all of them; `last_steps_ms` is the duration of each step of the last one, `passing_*`
    that of the first step, in which the barrier passes all actors.
    """

    committed_barriers: int
    committed_epoch: int
    in_flight: int
    last_ms: float
    median_ms: float
    p99_ms: float
    largest_ms: float
    passing_p99_ms: float
    last_steps_ms: dict[str, float]


class BarrierStats:
    """A step observer of bounded size; thread safe. `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic_seconds) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._began: dict[int, dict[Step, float]] = {}
        self._latencies_ms: deque[float] = deque(maxlen=REMEMBERED_BARRIERS)
        self._passing_ms: deque[float] = deque(maxlen=REMEMBERED_BARRIERS)
        self._committed_barriers = 0
        self._committed_epoch = 0
        self._last_steps_ms: dict[str, float] = {}

    def observe(self, step: Step, epoch: int) -> None:
        """A step of the barrier that ends `epoch` begins now."""
        now = self._clock()
        with self._lock:
            if step is Step.INJECT:
                while len(self._began) >= REMEMBERED_STEPS:
                    del self._began[next(iter(self._began))]
                self._began[epoch] = {}
            steps = self._began.get(epoch)
            if steps is not None:
                steps[step] = now

    def finished(self, epoch: int) -> None:
        """All steps of `epoch` are done, and those of the epochs below it, which this checkpoint made durable too."""
        now = self._clock()
        with self._lock:
            steps = self._began.get(epoch)
            for each in [begun for begun in self._began if begun <= epoch]:
                del self._began[each]
            self._committed_barriers += 1
            self._committed_epoch = epoch
            if steps and Step.INJECT in steps:
                ends = [*list(steps.values())[1:], now]
                self._latencies_ms.append(1_000 * (now - steps[Step.INJECT]))
                self._passing_ms.append(1_000 * (ends[0] - steps[Step.INJECT]))
                self._last_steps_ms = {
                    step.value: 1_000 * (end - begun) for (step, begun), end in zip(steps.items(), ends, strict=True)
                }

    def discarded(self) -> None:
        """A recovery discarded the barriers in flight."""
        with self._lock:
            self._began.clear()

    def figures(self) -> BarrierFigures:
        """The current figures; zeros before the first commit."""
        with self._lock:
            ordered = sorted(self._latencies_ms) or [0.0]
            passing = sorted(self._passing_ms) or [0.0]
            return BarrierFigures(
                committed_barriers=self._committed_barriers,
                committed_epoch=self._committed_epoch,
                in_flight=len(self._began),
                last_ms=self._latencies_ms[-1] if self._latencies_ms else 0.0,
                median_ms=ordered[len(ordered) // 2],
                p99_ms=_p99(ordered),
                largest_ms=ordered[-1],
                passing_p99_ms=_p99(passing),
                last_steps_ms=dict(self._last_steps_ms),
            )


def _p99(ordered: Sequence[float]) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
