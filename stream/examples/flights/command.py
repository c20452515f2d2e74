"""`hummock flights`: a traffic desk's views over every flight that left New York in 2013.

The year is processed at full speed, with a durable checkpoint four times a second. All data is stored in one directory.
A run that is killed at any moment and started again continues from the last committed epoch: the offset of the source
and the state of every view are committed together, so the result is the same.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from hummock.base.process import peak_memory_bytes
from hummock.errors import HummockError
from relational.errors import RelationalError
from stream.cli.engine import engine_on
from stream.cli.sql import metrics_port_option
from stream.cli.terminal import new_console, print_error
from stream.errors import StreamError
from stream.examples.flights.connector import SPLIT, FlightsReader
from stream.examples.flights.screen import plain_lines, read_blocks, screen
from stream.examples.flights.views import TABLE, VIEWS, create_table, create_view
from stream.options import StreamOptions
from stream.session.connect import connect
from stream.session.session import Session

POLL_SECONDS = 0.02
METADATA = "meta.sqlite"
"""How the names of files begin that every store on a disk has."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The committed progress of the run at one moment."""

    changes: int
    seconds: float
    epoch: int
    checkpoints: int
    barrier_ms: float

    def rate(self, begun: int) -> float:
        """Changes per second of the run that found `begun` changes."""
        return (self.changes - begun) / self.seconds if self.seconds else 0.0

    def left(self, begun: int, total: int) -> str:
        """The time that the rest takes at this rate, as minutes and seconds."""
        rate = self.rate(begun)
        if not rate:
            return "-:--"
        minutes, seconds = divmod(ceil((total - self.changes) / rate), 60)
        return f"{minutes}:{seconds:02}"


@click.command()
@click.option("--data", type=click.Path(path_type=Path), default="flights-data", show_default=True)
@click.option("--rows", type=click.IntRange(min=1), help="End after this many changes; the whole year by default.")
@click.option("--resume", is_flag=True, help="Only continue a run that is there; do not begin one.")
@click.option("--barrier-interval-ms", type=click.IntRange(min=10), default=250, show_default=True)
@click.option("--checkpoint-rows", type=click.IntRange(min=1), help="Also checkpoint each time so many rows were read.")
@click.option("--chunk-rows", type=click.IntRange(min=2), default=StreamOptions().chunk_rows, show_default=True)
@click.option("--spark", metavar="MASTER", default="", help="Keep the views by tasks on Spark: local[2], spark://…")
@metrics_port_option
def flights(
    data: Path, rows: int | None, resume: bool, barrier_interval_ms: int, checkpoint_rows: int | None, chunk_rows: int,
    spark: str, metrics_port: int,
) -> None:
    """Keep five views over a year of flights, from about a million changes.

    A run that was killed continues when the same command is started again, with or without Spark. Remove the directory
    to begin anew.
    """
    console = new_console()
    check_directory(data)
    if resume and not data.exists():
        raise click.ClickException(f"there is no run in {data} to resume; leave out --resume to begin one")
    options: dict[str, Any] = {"barrier_interval_ms": barrier_interval_ms, "checkpoint_rows": checkpoint_rows or 0,
                               "metrics_port": metrics_port}
    try:
        total = FlightsReader(rows).total_changes
        with engine_on(spark, "hummock flights") as engine, connect(
            data, create=True, chunk_rows=chunk_rows, sources_paused=True, engine=engine, **options
        ) as session:
            prepare(session, rows)
            run(session, console, total, data)
            show(session, console, data)
    except KeyboardInterrupt:
        console.print(f"stopped; the same command goes on from the last committed epoch in {data}", soft_wrap=True)
        raise SystemExit(130) from None
    except (HummockError, RelationalError, StreamError, OSError) as error:
        print_error(console, error)
        raise SystemExit(1) from None


def check_directory(data: Path) -> None:
    """ClickException, a line, unless `data` is new, empty or has a store."""
    try:
        names = sorted(path.name for path in data.iterdir()) if data.exists() else []
    except NotADirectoryError:
        raise click.ClickException(f"{data} is a file; --data names a directory") from None
    except OSError as error:
        raise click.ClickException(f"{data} cannot be read: {error.strerror}") from None
    if names and not any(name.startswith(METADATA) for name in names):
        raise click.ClickException(f"{data} has other files, such as {names[0]}; --data names a new directory")


def prepare(session: Session, rows: int | None) -> None:
    """Create the table and the views unless they exist. ClickException if the existing run has another length."""
    wanted, known = create_table(rows), session.names()
    if TABLE in known:
        if session.table(TABLE).table.definition != wanted:
            raise click.ClickException("the run in this directory has another --rows; choose another --data")
    elif known:
        raise click.ClickException(f"the store there is not of flights: it has {known[0]}; choose another --data")
    else:
        session.sql(wanted)
    for name in VIEWS:
        session.sql(create_view(name))


def committed_changes(session: Session) -> int:
    """Changes of the source that the last committed epoch contains."""
    return int(session.source_offsets(TABLE).get(SPLIT, "0"))


def samples(session: Session, total: int) -> Iterator[Sample]:
    """A sample each POLL_SECONDS until all changes are committed; raises the error if the session ends before that."""
    started = time.monotonic()
    changes, epoch = 0, -1
    while True:
        session.check_alive()
        figures = session.figures
        if figures.committed_epoch != epoch:
            changes, epoch = committed_changes(session), figures.committed_epoch
        seconds = time.monotonic() - started
        yield Sample(changes, seconds, figures.committed_epoch, figures.committed_barriers, figures.last_ms)
        if changes >= total:
            return
        time.sleep(POLL_SECONDS)


def run(session: Session, console: Console, total: int, data: Path) -> None:
    """Process what is left of the changes and show the progress: a bar on a terminal, otherwise a line whenever an
    epoch is committed."""
    begun = committed_changes(session)
    if begun >= total:
        found = f"{data} has all {total:,} changes already; remove it to begin anew"
        console.print(found, soft_wrap=True, highlight=False)
        return
    if begun:
        found = f"{data} has {begun:,} of {total:,} changes ({begun / total:.0%}); going on after them"
        console.print(found, soft_wrap=True, highlight=False)
    session.resume()
    if console.is_terminal:
        run_with_bar(session, console, begun, total)
    else:
        run_with_lines(session, console, begun, total)


def run_with_bar(session: Session, console: Console, begun: int, total: int) -> None:
    last = Sample(begun, 0.0, 0, 0, 0.0)
    columns = (BarColumn(bar_width=None), TaskProgressColumn(), TextColumn("{task.fields[text]}"))
    with Progress(*columns, console=console, expand=True) as progress:
        bar = progress.add_task("", total=total, text="", completed=begun)
        for last in samples(session, total):
            text = f"{last.changes:,} changes, {last.rate(begun):,.0f}/s, {last.left(begun, total)} left"
            progress.update(bar, completed=last.changes, text=text)
        done = f"{last.changes - begun:,} changes in {last.seconds:.1f} s, {last.rate(begun):,.0f}/s"
        progress.update(bar, text=f"{done}, barrier p99 {session.figures.p99_ms:.0f} ms")


def run_with_lines(session: Session, console: Console, begun: int, total: int) -> None:
    last = Sample(begun, 0.0, 0, 0, 0.0)
    for sample in samples(session, total):
        if sample.epoch != last.epoch:
            console.print(describe(sample, begun, total), soft_wrap=True)
        last = sample
    console.print(summary(session, last, begun), soft_wrap=True)


def describe(sample: Sample, begun: int, total: int) -> str:
    return (
        f"{sample.changes / total:.0%}: {sample.changes:,} of {total:,} changes, {sample.rate(begun):,.0f}/s, "
        f"{sample.left(begun, total)} left, barrier {sample.barrier_ms:.0f} ms, epoch {sample.epoch}"
    )


def summary(session: Session, last: Sample, begun: int) -> str:
    figures = session.figures
    memory_mb = peak_memory_bytes() / (1 << 20)
    return (
        f"{last.changes - begun:,} changes in {last.seconds:.2f} s: {last.rate(begun):,.0f} changes/s; "
        f"{last.checkpoints} checkpoints, barrier latency median {figures.median_ms:.0f} ms, "
        f"p99 {figures.p99_ms:.0f} ms, {figures.passing_p99_ms:.0f} of it passing; peak memory {memory_mb:,.0f} MB"
    )


def show(session: Session, console: Console, data: Path) -> None:
    """Print the first rows of every view, and what to try next."""
    with session.at() as snapshot:
        blocks = read_blocks(snapshot)
    if not console.is_terminal:
        console.print("\n".join(plain_lines(blocks)), soft_wrap=True, markup=False, highlight=False)
        return
    for line in screen(blocks, console.width):
        console.print(line, soft_wrap=True)
    console.print(f"next: hummock sql {shlex.quote(str(data))} -c 'SELECT * FROM late' · hummock demo",
                  soft_wrap=True, markup=False, highlight=False)
