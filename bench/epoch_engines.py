"""Engines that keep one view over a directory of files, each in a process of its own, so that each has a JVM with its
own options: Hummock in its process, Hummock with tasks on Spark, and Spark's Structured Streaming.

An engine is given the files of an epoch and answers when it has committed all their rows: how many seconds that took,
and CPU seconds of its process and all below it. It has all files of an epoch at once, as one rename of a directory
for Structured Streaming, which would take two epochs otherwise; names are linked for Hummock. It does nothing while
another engine is asked: Structured Streaming looks for files every 10 ms, so its processes are stopped meanwhile.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import stream
from bench.standalone_spark import standalone
from bench.tree_cpu import measured, process_tree
from hummock.spark import spark_session

SETTINGS = {"spark.ui.enabled": "false"}
STREAMING_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass":
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}  # fmt: skip
MOST_SECONDS = 120  # for an epoch
START_SECONDS = 180

Files: TypeAlias = "list[tuple[Path, int]]"
"""Paths without their suffix, and the number of record batches of each."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """`query` over the source `table` of `columns`, kept in `directory`. `kind`: "in process", "local" (threads of the
    driver), "executors" (of a standalone cluster, `executors` of one core each) or "structured streaming". `cpus`: of
    each executor, the first also of the driver; empty: any."""

    kind: str
    table: str
    columns: str
    query: str
    directory: Path
    executors: int = 0
    cpus: tuple[int, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


class HummockEngine:
    """A session whose barriers come by `flush` and by what is read, so that an epoch lasts as long as its work."""

    def __init__(self, spec: EngineSpec) -> None:
        self._undo = ExitStack()
        self._feed = spec.directory / "feed"
        self._feed.mkdir()
        self._files = self._rows = 0
        self._asking = 0.0
        self._db = self._undo.enter_context(stream.connect(
            f"file://{spec.directory / 'store'}", create=True, engine=self._spark(spec), barrier_interval_ms=3_600_000,
            split_discovery_ms=1, epoch_rows=5_000_000, inbox_poll_ms=0, **spec.options))
        self._db.sql(f"CREATE SOURCE {spec.table} ({spec.columns}) WITH (connector = 'arrow', path = '{self._feed}')")
        self._db.sql(f"CREATE MATERIALIZED VIEW v AS {spec.query}")
        self._db.flush()

    def _spark(self, spec: EngineSpec) -> Any:
        if spec.kind == "in process":
            return None
        if spec.kind == "local":
            spark = spark_session("local[2]", settings=SETTINGS, carries_rows=False)
        else:
            spark = self._undo.enter_context(standalone(spec.executors, spec.cpus, spec.directory))
        self._undo.callback(spark.stop)
        return spark

    def add(self, files: Files) -> dict[str, str]:
        """Links the files into the directory of the source; split -> offset of its end."""
        ends = {}
        for path, groups in files:
            name = f"{self._files:06}.arrow"
            self._files += 1
            os.link(path.with_suffix(".arrow"), self._feed / name)
            ends[name] = f"{groups}:0"
        return ends

    def epoch(self, files: Files) -> tuple[float, float]:
        ends = self.add(files)
        time.sleep(0.005)  # longer than split_discovery_ms
        self._asking = 0.0
        seconds, cpu, _ = measured(lambda: self._committed(ends))
        return seconds, cpu - self._asking

    def _committed(self, ends: dict[str, str]) -> None:
        """Returns when all is read and committed. To ask takes CPU time that is not the engine's."""
        self._db.flush()
        until = time.monotonic() + MOST_SECONDS
        while not self._is_read(ends):
            time.sleep(0.002)
            if time.monotonic() > until:
                raise TimeoutError(f"not read to {ends}")

    def _is_read(self, ends: dict[str, str]) -> bool:
        began = time.thread_time()
        is_read = not ends or ends.items() <= self._db.source_offsets("v").items()
        self._asking += time.thread_time() - began
        return is_read

    def state(self) -> dict[str, Any]:
        (row,) = self._db.sql("SELECT count(*) AS groups FROM v").rows()
        return dict(row)

    def close(self) -> None:
        self._undo.close()


class StructuredStreaming:
    """The same query over Parquet files, in update mode, with its state in RocksDB; its answer goes nowhere. An epoch
    ends when the log of commits has it."""

    def __init__(self, spec: EngineSpec) -> None:
        self._feed, self._ready = spec.directory / "feed", spec.directory / "ready"
        self._feed.mkdir()
        self._ready.mkdir()
        self._epochs = 0
        settings = SETTINGS | STREAMING_SETTINGS | dict(spec.options)
        self._spark = spark_session("local[2]", settings=settings, carries_rows=True)
        read = self._spark.readStream.schema(spec.columns.replace("TIMESTAMP", "TIMESTAMP_NTZ"))
        read.parquet(f"{self._feed}/*").createOrReplaceTempView(spec.table)
        write = self._spark.sql(spec.query).writeStream.format("noop").outputMode("update")
        checkpoint = spec.directory / "checkpoint"
        self._commits = checkpoint / "commits"
        self._query = write.trigger(processingTime="0 seconds").option("checkpointLocation", str(checkpoint)).start()

    def epoch(self, files: Files) -> tuple[float, float]:
        folder = self._ready / f"{self._epochs:06}"
        folder.mkdir()
        for path, _ in files:
            os.link(path.with_suffix(".parquet"), folder / path.with_suffix(".parquet").name)
        commit = self._commits / str(self._epochs)
        self._epochs += 1

        def work() -> None:
            folder.rename(self._feed / folder.name)
            until = time.monotonic() + MOST_SECONDS
            while not commit.exists():
                time.sleep(0.002)
                if not self._query.isActive or time.monotonic() > until:
                    raise TimeoutError(f"not committed: {self._query.exception()}")

        seconds, cpu, _ = measured(work)
        return seconds, cpu

    def state(self) -> dict[str, Any]:
        self._query.processAllAvailable()
        (state,) = self._query.lastProgress.stateOperators
        assert self._query.lastProgress.batchId == self._epochs - 1, "an epoch's files were read in two batches"
        return {"groups": state.numRowsTotal}

    def close(self) -> None:
        self._query.stop()
        self._spark.stop()


class EngineProcess:
    """An engine in a process of its own, seen from the bench."""

    def __init__(self, spec: EngineSpec) -> None:
        spec.directory.mkdir(parents=True)
        self._is_restless = spec.kind == "structured streaming"
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, spec))
        self._process.start()
        other.close()
        if not self._pipe.poll(START_SECONDS):
            raise TimeoutError(f"{spec.kind} did not begin")
        self._answer()
        self._rest(True)

    def epoch(self, files: Files) -> tuple[float, float]:
        """Seconds, and CPU seconds, until all rows of `files` are committed."""
        return self.ask("epoch", files)

    def ask(self, name: str, *given: Any) -> Any:
        self._rest(False)
        self._pipe.send((name, given))
        answer = self._answer()
        self._rest(True)
        return answer

    def close(self) -> None:
        self._rest(False)
        try:
            self._pipe.send(("close", ()))
            self._process.join(30)
        finally:
            self._process.kill()
            self._process.join()

    def _answer(self) -> Any:
        answer = self._pipe.recv()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _rest(self, is_resting: bool) -> None:
        if self._is_restless:
            for process in process_tree(self._process.pid or 0):
                with suppress(ProcessLookupError):  # one of the short commands that Hadoop runs
                    os.kill(process, signal.SIGSTOP if is_resting else signal.SIGCONT)
            time.sleep(0 if is_resting else 0.1)


def _serve(pipe: Any, spec: EngineSpec) -> None:
    """The loop of an engine's process."""
    try:
        if spec.cpus:
            os.sched_setaffinity(0, {spec.cpus[0]})
        engine = (StructuredStreaming if spec.kind == "structured streaming" else HummockEngine)(spec)
        pipe.send(None)
        name = ""
        while name != "close":
            name, given = pipe.recv()
            answer = getattr(engine, name)(*given)
            if name != "close":
                pipe.send(answer)
    except EOFError:  # the bench has ended without a word
        engine.close()
    except Exception as error:
        pipe.send(RuntimeError(f"{spec.kind}: {type(error).__name__}: {error}"))
