"""`compact`: a compactor as a process of its own, beside whoever writes."""

from __future__ import annotations

from typing import Any

import click

from hummock.cli.output import shown_bytes
from hummock.cli.store import OpenStore, interrupted, port_option, served, store_command
from hummock.compaction.task import CompactTask
from hummock.compactor import Compactor
from hummock.key import MAX_TABLE_ID, KeyRange
from hummock.options import MIB, CompactionOptions

DEFAULTS = CompactionOptions()
LOOK_SECONDS = 1.0


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
@port_option
def compact(store: OpenStore, once: bool, tables: tuple[int, ...], ranges: tuple[tuple[bytes, bytes], ...], tasks: int,
            threads: int, memory: int, metrics_port: int | None) -> None:
    """Merges files as the tree's shape asks for, or those of the tables and key ranges that are named."""
    wanted = [*map(KeyRange.table, tables), *(KeyRange(start, end) for start, end in ranges)]
    if any(key_range.is_empty for key_range in wanted):
        raise click.UsageError("a range ends after it starts")
    options = CompactionOptions(threads=threads, memory_bytes=memory * MIB)
    for key_range in wanted:
        store.manager.compact_range(key_range)
    with (interrupted() as is_interrupted, served(store, metrics_port),
          store.output.progress() as progress):
        bars: dict[int, Any] = {}

        def show(task: CompactTask, rows: int) -> None:
            if task.id not in bars:
                bars[task.id] = progress.add_task(f"task {task.id}: {task.kind.value}", total=task.input_bytes)
            progress.update(bars[task.id], completed=task.input_bytes * rows // max(1, task.input_rows))

        compactor = Compactor(store.manager, store.object_store, options, tasks_at_once=tasks, metrics=store.metrics,
                              on_progress=show)
        with compactor:
            while not compactor.wait_idle(LOOK_SECONDS) or not once:
                if is_interrupted():
                    compactor.close(drain=False)
                    break
    _say_work(store)
    if compactor.error is not None:
        raise compactor.error


def _say_work(store: OpenStore) -> None:
    """What this process did, from its own counters."""
    count = store.metrics.total
    done, failed = count("hummock_compact_tasks", outcome="done"), count("hummock_compact_tasks", outcome="failed")
    read, written = (count("hummock_compact_bytes", direction=way) for way in ("read", "written"))
    kept, dropped = (count("hummock_compact_rows", fate=fate) for fate in ("kept", "dropped"))
    store.output.line(f"{done:,.0f} tasks done, {failed:,.0f} failed; {shown_bytes(read)} read, "
                      f"{shown_bytes(written)} written; {kept:,.0f} rows kept, {dropped:,.0f} dropped")
    store.output.emit({"done": done, "failed": failed, "bytes_read": read, "bytes_written": written,
                       "rows_kept": kept, "rows_dropped": dropped, "version": store.version.id})
