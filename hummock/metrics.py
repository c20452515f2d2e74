"""All metrics, declared in one place.

One `Metrics` belongs to one process or one test: it is passed to the modules that count, and registers itself with the
given registry, so two of them never collide unless they share one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from hummock.errors import HummockError, InvalidOption

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

SAMPLES_SCHEMA = pa.schema({"name": pa.string(), "labels": pa.map_(pa.string(), pa.string()), "value": pa.float64(),
                            "kind": pa.string(), "description": pa.string()})
SECONDS_BUCKETS = (.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30)


class Metrics:
    """Metrics of the object store and of the manager; see the text of each."""

    def __init__(self, registry: CollectorRegistry | None = None):
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram  # slow: it imports a web server

        self.registry = registry if registry is not None else CollectorRegistry()
        self._settling: list[Callable[[], None]] = []
        self.registry.register(_Settled(self._settling))    # first, so that it counts before the others are collected
        self.object_store_seconds = Histogram(
            "hummock_object_store_seconds", "Time of one object-store call, its retries included",
            ["operation"], buckets=SECONDS_BUCKETS, registry=self.registry)
        self.object_store_failures = Counter(
            "hummock_object_store_failures", "Tries of object-store calls that failed",
            ["operation", "error"], registry=self.registry)
        self.object_store_bytes = Counter(
            "hummock_object_store_bytes", "Bytes read and written", ["direction"], registry=self.registry)
        self.object_store_file_reads = Counter(
            "hummock_object_store_file_reads", "Reads of local files that no call of the store was made for",
            registry=self.registry)
        self.object_store_requests = Counter(
            "hummock_object_store_requests", "Requests sent to a remote store, repeated ones included",
            ["request"], registry=self.registry)
        self.object_store_request_bytes = Counter(
            "hummock_object_store_request_bytes", "Bytes of the bodies of requests and answers",
            ["request", "direction"], registry=self.registry)
        self.commit_seconds = Histogram(
            "hummock_commit_seconds", "Time from commit_epoch's call to its durable version",
            buckets=SECONDS_BUCKETS, registry=self.registry)
        self.transaction_retries = Counter(
            "hummock_meta_transaction_retries", "Meta transactions tried again, by reason", ["reason"],
            registry=self.registry)
        self.committed_epoch = Gauge(
            "hummock_committed_epoch", "The newest committed epoch", registry=self.registry)
        self.version_id = Gauge("hummock_version_id", "The newest version", registry=self.registry)
        self.version_files = Gauge(
            "hummock_version_files", "Files of the newest version", ["level"], registry=self.registry)
        self.subscriber_failures = Counter(
            "hummock_subscriber_failures", "Subscribers that were dropped because they raised",
            registry=self.registry)
        self._declare_vacuum()
        self._declare_compaction()
        self._declare_writing()

    def _declare_vacuum(self) -> None:
        from prometheus_client import Counter, Gauge, Histogram

        self.vacuum_seconds = Histogram(
            "hummock_vacuum_seconds", "Time of one run of vacuum", buckets=SECONDS_BUCKETS, registry=self.registry)
        self.vacuum_files = Counter(
            "hummock_vacuum_files", "Files removed, by stage", ["stage"], registry=self.registry)
        self.vacuum_removed_bytes = Counter(
            "hummock_vacuum_removed_bytes", "Bytes removed, by stage", ["stage"], registry=self.registry)
        self.vacuum_bytes = Gauge(
            "hummock_vacuum_bytes", "Bytes stored when vacuum last listed all objects, by need", ["need"],
            registry=self.registry)
        self.vacuum_failures = Counter(
            "hummock_vacuum_failures", "Rounds of vacuum that failed", ["error"], registry=self.registry)

    def _declare_compaction(self) -> None:
        from prometheus_client import Counter, Histogram

        self.compact_tasks = Counter(
            "hummock_compact_tasks", "Attempts at compact tasks by this process", ["kind", "outcome"],
            registry=self.registry)
        self.compact_seconds = Histogram(
            "hummock_compact_seconds", "Time of one attempt at a compact task", buckets=SECONDS_BUCKETS,
            registry=self.registry)
        self.compact_bytes = Counter(
            "hummock_compact_bytes", "Bytes read and written by compact tasks that were reported", ["direction"],
            registry=self.registry)
        self.compact_rows = Counter(
            "hummock_compact_rows", "Rows kept and dropped by compact tasks that were reported", ["fate"],
            registry=self.registry)

    def _declare_writing(self) -> None:
        from prometheus_client import Counter, Histogram

        self.writer_delay_seconds = Counter(
            "hummock_writer_delay_seconds", "Time for which writers were held back, by reason",
            ["reason"], registry=self.registry)
        self.upload_seconds = Histogram(
            "hummock_upload_seconds", "Time from a flush's or sync's start to its durable run",
            buckets=SECONDS_BUCKETS, registry=self.registry)
        self.upload_failures = Counter(
            "hummock_upload_failures", "Uploads that failed and wait to be tried again", ["error"],
            registry=self.registry)

    def watch(self, read: Callable[[], Any], counted: Collection[str] = ()) -> None:
        """Exports every number in the dataclass that `read` returns, as `hummock_store_<field>`.

        So values that change with every call cost nothing between scrapes. `counted`: the monotonic fields. Nothing is
        exported if `read` raises a `HummockError`, as after a close.
        """
        self.registry.register(_Watched(read, frozenset(counted)))

    def settle_by(self, count: Callable[[], None]) -> None:
        """Calls `count` before each scrape, to add what was counted elsewhere until then."""
        self._settling.append(count)

    def total(self, name: str, **labels: str) -> float:
        """The sum of all counters of a name with these labels, whatever their other labels."""
        return self.snapshot().total(f"{name}_total", **labels)

    def snapshot(self) -> MetricsSnapshot:
        """All samples as they are now, as a scrape reads them."""
        return MetricsSnapshot(
            MetricSample(sample.name, dict(sample.labels), float(sample.value), family.type, family.documentation)
            for family in self.registry.collect() for sample in family.samples if not sample.name.endswith("_created"))


@dataclass(frozen=True, slots=True)
class MetricSample:
    """One number: of a counter (its name ends with `_total`), a gauge, or a part of a histogram or summary."""

    name: str
    labels: Mapping[str, str]
    value: float
    kind: str
    description: str

    @property
    def key(self) -> str:
        """Name and labels, sorted, as Prometheus writes them: `hummock_version_files{level="0"}`."""
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(self.labels.items()))
        return f"{self.name}{{{labels}}}" if labels else self.name


class MetricsSnapshot(Mapping[str, float]):
    """Metrics at one moment: values by `MetricSample.key`.

        db.metrics["hummock_committed_epoch"]
        db.metrics.total("hummock_object_store_bytes_total", direction="read")
        db.metrics.to_arrow()
    """

    def __init__(self, samples: Iterator[MetricSample]):
        self.samples = tuple(samples)
        self._values = {sample.key: sample.value for sample in self.samples}

    def __getitem__(self, key: str) -> float:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<{len(self)} samples of {len({sample.name for sample in self.samples})} metrics>"

    def total(self, name: str, **labels: str) -> float:
        """The sum of the samples of a name with these labels, whatever their other labels."""
        return sum(sample.value for sample in self.samples
                   if sample.name == name and labels.items() <= sample.labels.items())

    def to_arrow(self) -> pa.Table:
        """One row per sample: name, labels, value, kind, description."""
        rows = [{"name": each.name, "labels": list(each.labels.items()), "value": each.value, "kind": each.kind,
                 "description": each.description} for each in self.samples]
        return pa.Table.from_pylist(rows, schema=SAMPLES_SCHEMA)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@dataclass(frozen=True, eq=False)
class _Settled:
    """Exports nothing itself; triggers the `settle_by` callbacks."""

    counts: list[Callable[[], None]]

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        for count in self.counts:
            count()
        return iter(())


@dataclass(frozen=True)
class _Watched:
    """Collector that reads its source at each scrape."""

    read: Callable[[], Any]
    counted: frozenset[str]

    def describe(self) -> Iterator[Metric]:
        """Empty, so that registration does not read the source."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        try:
            state = self.read()
        except HummockError:
            return
        for field in fields(state):
            value = getattr(state, field.name)
            if isinstance(value, int | float):
                kind = CounterMetricFamily if field.name in self.counted else GaugeMetricFamily
                yield kind(f"hummock_store_{field.name}", f"{type(state).__name__}.{field.name}", value)


@contextmanager
def serve_metrics(metrics: Metrics, port: int) -> Iterator[str]:
    """Serves on 127.0.0.1 only while the context lasts; yields the URL. Port 0: any free port."""
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(port, addr="127.0.0.1", registry=metrics.registry)
    except OSError as error:
        raise InvalidOption("metrics port", port, f"a port that can be listened on ({error.strerror})") from error
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
