"""`compact`: a compactor in a process of its own, beside the writer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import click

from hummock.base.key import MAX_TABLE_ID, KeyRange
from hummock.cli.output import shown_bytes
from hummock.cli.store import OpenStore, interrupted, port_option, served, store_command
from hummock.compaction.spark import SparkTasks
from hummock.compaction.task import CompactTask
from hummock.compactor import CompactionWatch, Compactor
from hummock.errors import Corruption
from hummock.meta.hummock_manager import HummockManager
from hummock.options import MIB, CompactionOptions
from hummock.spark import check_executors, slots, spark_session

DEFAULTS = CompactionOptions()
LOOK_SECONDS = 1.0
SPARK_TASK_BYTES, SPARK_TASK_FILES = 64 << 30, 4_096    # limits of a task that this process picks, if it has Spark
RANGE_MEMORY = 256                  # MiB of a Spark worker for one range


class Hex(click.ParamType):
    """Bytes written in hexadecimal digits."""

    name = "hex"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> bytes:
        try:
            return bytes.fromhex(value)
        except ValueError:
            self.fail(f"{value!r} is not in hexadecimal digits", parameter, context)


@click.command(short_help="Merge files: all that is due, or named tables and ranges.")
@store_command
@click.option("--once/--follow", default=True, show_default=True, help="Until nothing is left to do, or for ever.")
@click.option("--table", "tables", multiple=True, type=click.IntRange(0, MAX_TABLE_ID),
              help="Merge all of this table into the last level; may be repeated.")
@click.option("--range", "ranges", multiple=True, nargs=2, type=Hex(), metavar="START END",
              help="Merge the user keys from START to before END, in hex; may be repeated.")
@click.option("--tasks", default=2, show_default=True, type=click.IntRange(1, 64), help="Tasks at a time.")
@click.option("--threads", default=DEFAULTS.threads, show_default=True, type=click.IntRange(1, 64),
              help="Threads of each task.")
@click.option("--memory", default=DEFAULTS.memory_bytes // MIB, show_default=True, type=click.IntRange(16, 1 << 20),
              help="MiB of all tasks together.")
@click.option("--spark", "master", metavar="MASTER",
              help='Do large tasks on Spark there; under spark-submit: "submitted".')
@click.option("--large", default=DEFAULTS.large_task_bytes // MIB, show_default=True, type=click.IntRange(0, 1 << 30),
              help="MiB of input from which on a task is done on Spark.")
@click.option("--range-memory", default=RANGE_MEMORY, show_default=True, type=click.IntRange(16, 1 << 20),
              help="MiB of a worker on Spark, for the range that it does.")
@port_option
def compact(store: OpenStore, once: bool, tables: tuple[int, ...], ranges: tuple[tuple[bytes, bytes], ...], tasks: int,
            threads: int, memory: int, master: str | None, large: int, range_memory: int,
            metrics_port: int | None) -> None:
    """Merges files as the tree's shape asks for, or those of the tables and key ranges that are named."""
    wanted = [*map(KeyRange.table, tables), *(KeyRange(start, end) for start, end in ranges)]
    if any(key_range.is_empty for key_range in wanted):
        raise click.UsageError("a range ends after it starts")
    options = CompactionOptions(threads=threads, memory_bytes=memory * MIB)
    if master is not None:
        options = replace(options, large_task_bytes=max(1, large * MIB), task_bytes=SPARK_TASK_BYTES,
                          task_files=SPARK_TASK_FILES)
    with (interrupted() as is_interrupted, served(store.metrics, store.output, metrics_port),
          _on_spark(store, master, range_memory * MIB, options) as on_spark,
          closing(HummockManager(store.meta_store, store.object_store, compaction=options,
                                 metrics=store.metrics)) as manager, store.output.progress() as progress):
        bars: dict[int, Any] = {}

        def show(task: CompactTask, rows: int) -> None:
            if task.id not in bars:
                bars[task.id] = progress.add_task(f"task {task.id}: {task.kind.value}", total=task.input_bytes)
            progress.update(bars[task.id], completed=task.input_bytes * rows // max(1, task.input_rows))

        compactor = Compactor(manager, store.object_store, options, tasks_at_once=tasks, metrics=store.metrics,
                              on_progress=show, large=on_spark)
        with compactor.watch(KeyRange()) as watch:
            for key_range in wanted:
                manager.compact_range(key_range)
            with compactor:
                damage = _work(compactor, watch, once, is_interrupted)
    failure = damage or compactor.error
    _say_work(store, manager.version.id, emits=failure is None)
    if failure is not None:
        raise failure


def _work(compactor: Compactor, watch: CompactionWatch, once: bool,
          is_interrupted: Callable[[], bool]) -> Corruption | None:
    """Returns when nothing is left to do, if `once`, with the damage because of which something is; or after an
    interrupt.
    """
    while not is_interrupted():
        if not once:
            time.sleep(LOOK_SECONDS)
            continue
        try:
            if compactor.wait_idle(LOOK_SECONDS, watch):
                return None
        except Corruption as damage:
            return damage
    compactor.close(drain=False)
    return None


@contextmanager
def _on_spark(store: OpenStore, master: str | None, memory_bytes: int,
              options: CompactionOptions) -> Iterator[SparkTasks | None]:
    """Executes large tasks meanwhile, on executors that passed the check."""
    if master is None:
        yield None
        return
    spark = spark_session(master, name="hummock compact", carries_rows=False)
    try:
        executors = check_executors(spark, store.object_store.url)
        store.output.line(f"Spark {spark.version} on {master}: {executors} executors answered, {slots(spark)} slots")
        yield SparkTasks(spark, store.object_store, memory_bytes=memory_bytes, limit_ms=options.task_stall_ms)
    finally:
        spark.stop()


def _say_work(store: OpenStore, version_id: int, *, emits: bool) -> None:
    """Prints what this process did, from its own counters; `emits`: in JSON too, where an error would be another
    document.
    """
    count = store.metrics.total
    done, failed = count("hummock_compact_tasks", outcome="done"), count("hummock_compact_tasks", outcome="failed")
    read, written = (count("hummock_compact_bytes", direction=way) for way in ("read", "written"))
    kept, dropped = (count("hummock_compact_rows", fate=fate) for fate in ("kept", "dropped"))
    store.output.line(f"{done:,.0f} tasks done, {failed:,.0f} failed; {shown_bytes(read)} read, "
                      f"{shown_bytes(written)} written; {kept:,.0f} rows kept, {dropped:,.0f} dropped")
    if emits:
        store.output.emit({"done": done, "failed": failed, "bytes_read": read, "bytes_written": written,
                           "rows_kept": kept, "rows_dropped": dropped, "version": version_id})
