"""Metrics of running jobs: rows and CPU time of each fragment, what waits in its channels, barriers by step.

Registered with a Prometheus registry, this collector gives

    stream_fragment_actors               actors of a fragment
    stream_fragment_rows_total           changes that its actors emitted since they were built
    stream_fragment_cpu_seconds_total    CPU time of its actors since they were built
    stream_fragment_waiting_rows, _bytes what its input channels hold
    stream_ready_actors                  actors that wait for a thread of the pool
    stream_barriers_total                committed barriers
    stream_barriers_in_flight            barriers between injection and commit
    stream_barrier_seconds               latency of barriers, by quantile (0.5, 0.99, 1) over the last ones
    stream_barrier_step_seconds          duration of each step of the last barrier
    stream_epoch_seconds, _source_rows   of the last epoch that ran as tasks, if any did, by engine (driver, spark)
    stream_epoch_stage_seconds, _tasks, _shuffled_bytes, _skew      of its stages

Fragments are labelled with the name and id of their job and their number in its plan; the last one emits the output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from stream.epoch_figures import EpochFigures

LABELS = ("job", "id", "fragment")


@dataclass(frozen=True, slots=True)
class FragmentFigures:
    """Sums over the running actors of one fragment of a job."""

    job: str
    job_id: int
    fragment: int
    actors: int
    rows: int
    cpu_seconds: float
    waiting_rows: int
    waiting_bytes: int


class BarrierLatencies(Protocol):
    """Counts and latencies of barriers, in milliseconds; see `BarrierFigures`."""

    @property
    def committed_barriers(self) -> int: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def median_ms(self) -> float: ...
    @property
    def p99_ms(self) -> float: ...
    @property
    def largest_ms(self) -> float: ...
    @property
    def last_steps_ms(self) -> Mapping[str, float]: ...


class ActorMetrics:
    """`fragments()`, `ready_actors()`, `barriers()` and `epochs()` are called at each collection, on any thread."""

    def __init__(
        self,
        fragments: Callable[[], Sequence[FragmentFigures]],
        ready_actors: Callable[[], int],
        barriers: Callable[[], BarrierLatencies],
        epochs: Callable[[], Sequence[EpochFigures]] = tuple,
    ) -> None:
        self._fragments = fragments
        self._epochs = epochs
        self._ready_actors = ready_actors
        self._barriers = barriers

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        yield from self._collect_fragments()
        yield from self._collect_barriers()
        yield from self._collect_epochs()

    def _collect_fragments(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        actors = GaugeMetricFamily("stream_fragment_actors", "Actors of a fragment", labels=LABELS)
        rows = CounterMetricFamily("stream_fragment_rows", "Changes emitted by a fragment", labels=LABELS)
        cpu = CounterMetricFamily("stream_fragment_cpu_seconds", "CPU time of a fragment", labels=LABELS)
        waiting = GaugeMetricFamily("stream_fragment_waiting_rows", "Rows in its input channels", labels=LABELS)
        size = GaugeMetricFamily("stream_fragment_waiting_bytes", "Bytes in its input channels", labels=LABELS)
        for each in self._fragments():
            labels = (each.job, str(each.job_id), str(each.fragment))
            actors.add_metric(labels, each.actors)
            rows.add_metric(labels, each.rows)
            cpu.add_metric(labels, each.cpu_seconds)
            waiting.add_metric(labels, each.waiting_rows)
            size.add_metric(labels, each.waiting_bytes)
        yield from (actors, rows, cpu, waiting, size)
        yield GaugeMetricFamily("stream_ready_actors", "Actors that wait for a thread", value=self._ready_actors())

    def _collect_barriers(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        figures = self._barriers()
        yield CounterMetricFamily("stream_barriers", "Committed barriers", value=figures.committed_barriers)
        yield GaugeMetricFamily("stream_barriers_in_flight", "Barriers not yet committed", value=figures.in_flight)
        latency = GaugeMetricFamily("stream_barrier_seconds", "Latency of the last barriers", labels=("quantile",))
        for quantile, value in (("0.5", figures.median_ms), ("0.99", figures.p99_ms), ("1", figures.largest_ms)):
            latency.add_metric((quantile,), value / 1_000)
        steps = GaugeMetricFamily("stream_barrier_step_seconds", "Steps of the last barrier", labels=("step",))
        for step, value in figures.last_steps_ms.items():
            steps.add_metric((step,), value / 1_000)
        yield from (latency, steps)

    def _collect_epochs(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        epochs = self._epochs()
        if not epochs:
            return
        last, engine = epochs[-1], (epochs[-1].engine,)
        for name, text, value in (
            ("seconds", "Duration of the last epoch", last.seconds),
            ("source_rows", "Rows of sources in the last epoch", last.source_rows),
        ):
            family = GaugeMetricFamily(f"stream_epoch_{name}", text, labels=("engine",))
            family.add_metric(engine, value)
            yield family
        for name, text in (
            ("seconds", "Duration of a stage of the last epoch"),
            ("tasks", "Its tasks"),
            ("shuffled_bytes", "Bytes that they sent to later stages"),
            ("skew", "CPU time of the task that took most, divided by the mean"),
        ):
            family = GaugeMetricFamily(f"stream_epoch_stage_{name}", text, labels=("stage",))
            for number, stage in enumerate(last.stages):
                family.add_metric((str(number),), getattr(stage, name))
            yield family
