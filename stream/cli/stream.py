"""The command `hummock stream`: keeps the jobs of a store running until it is interrupted, here or on Spark."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click
from rich.console import Console

from hummock.base.process import freeze_objects
from hummock.errors import HummockError
from relational.errors import RelationalError
from stream.cli.engine import engine_on
from stream.cli.sql import allow_user_functions_option, metrics_port_option
from stream.cli.terminal import new_console, print_error
from stream.errors import StreamError
from stream.session.connect import connect
from stream.session.session import Session

REPORT_SECONDS = 5.0


@click.command()
@click.option("--store", "url", required=True, help="URL of the store: file:///directory, s3://bucket/prefix, ...")
@click.option("--spark", "master", default="", help="Master of Spark: local[2], spark://host:7077, yarn; or "
              "'submitted' under spark-submit. By default this process keeps the views.")
@click.option("--meta", help="Location of the store's metadata, if not at the store.")
@click.option("--barrier-interval-ms", type=click.IntRange(min=10), default=1_000, show_default=True,
              help="Time between two epochs, unless more is waiting.")
@click.option("--seconds", type=click.FloatRange(min=0), help="End after so long.")
@click.option("--take-over", is_flag=True, help="End the process that keeps the store's jobs now, if there is one.")
@allow_user_functions_option
@metrics_port_option
@click.option("--advise", is_flag=True, help="Also say which engine the jobs should run on, and why.")
def stream(
    url: str,
    master: str,
    meta: str | None,
    barrier_interval_ms: int,
    seconds: float | None,
    take_over: bool,
    allow_user_functions: bool,
    metrics_port: int,
    advise: bool,
) -> None:
    """Keep the tables, views and sinks of a store running.

    It takes the writer role, unless another process has it, and goes on from the last committed epoch, whichever
    engine committed it. SIGINT and SIGTERM end it after a last commit.
    """
    console = new_console()
    freeze_objects()
    try:
        with engine_on(master, f"hummock stream {url}") as spark, connect(
            url, meta=meta, engine=spark, take_over=take_over, barrier_interval_ms=barrier_interval_ms,
            allow_user_functions=allow_user_functions, metrics_port=metrics_port,
        ) as session:
            console.print(f"keeping the jobs of {url} {f'on Spark at {master}' if master else 'in this process'}")
            if session.metrics_url is not None:
                console.print(f"metrics at {session.metrics_url}")
            with _until_signal() as ended:
                _report(session, console, ended, seconds, advise)
    except (HummockError, RelationalError, StreamError, OSError) as error:
        print_error(console, error)
        raise SystemExit(1) from None


@contextmanager
def _until_signal() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set inside the block."""
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _report(
    session: Session, console: Console, ended: threading.Event, seconds: float | None, advise: bool
) -> None:
    """Prints what has happened every REPORT_SECONDS until `ended` or `seconds` have passed; raises what ends the
    session."""
    begun = time.monotonic()
    rows, barriers, at = session.emitted_changes, session.figures.committed_barriers, begun
    while not ended.is_set() and (seconds is None or time.monotonic() - begun < seconds):
        left = REPORT_SECONDS if seconds is None else min(REPORT_SECONDS, begun + seconds - time.monotonic())
        ended.wait(max(left, 0))
        session.check_alive()
        figures, now = session.figures, time.monotonic()
        processed, elapsed = session.emitted_changes, now - at
        console.print(
            f"epoch {figures.committed_epoch}: {figures.committed_barriers - barriers} epochs in {elapsed:.0f} s, "
            f"{max(processed - rows, 0) / elapsed:,.0f} changes/s, median {figures.median_ms:.0f} ms, "
            f"p99 {figures.p99_ms:.0f} ms{_last_tasks(session)}", soft_wrap=True)
        if advise:
            console.print(f"engine {session.engine_choice()}", soft_wrap=True)
        rows, barriers, at = processed, figures.committed_barriers, now


def _last_tasks(session: Session) -> str:
    """The tasks of the last epoch on Spark, if any."""
    rows = [row for row in session.epochs().to_pylist() if row["engine"] == "spark" and row["tasks"]]
    last = [row for row in rows if row["epoch"] == rows[-1]["epoch"]]
    if not last:
        return ""
    tasks = " + ".join(str(row["tasks"]) for row in last)
    return f"; last on Spark: {last[0]['seconds']:.2f} s, {tasks} tasks, skew {max(row['skew'] for row in last):.1f}"
