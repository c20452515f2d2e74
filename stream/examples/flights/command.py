"""`hummock flights`: a traffic desk's views over every flight that left New York in 2013.

The year is processed at full speed, with a durable checkpoint each second. All data is stored in one directory. A run
that is killed at any moment and started again continues from the last committed epoch: the offset of the source and the
state of every view are committed together, so the result is the same.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from relational.errors import RelationalError
from relational.relation import Relation
from stream.cli.engine import engine_on
from stream.cli.sql import metrics_port_option
from stream.cli.terminal import print_error, print_rows
from stream.errors import StreamError
from stream.examples.flights.connector import SPLIT, FlightsReader
from stream.examples.flights.views import ORDER, TABLE, VIEWS, create_table, create_view
from stream.options import StreamOptions
from stream.session.connect import connect
from stream.session.session import Session

POLL_SECONDS = 0.02
SHOWN_ROWS = 12


@dataclass(frozen=True, slots=True)
class Sample:
    """The committed progress of the run at one moment."""

    changes: int
    seconds: float
    epoch: int
    checkpoints: int
    barrier_ms: float


@click.command()
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), default="flights-data", show_default=True)
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
    console = Console()
    if resume and not data.exists():
        raise click.UsageError(f"there is no run in {data} to resume; leave out --resume to begin one")
    options: dict[str, Any] = {"barrier_interval_ms": barrier_interval_ms, "checkpoint_rows": checkpoint_rows or 0,
                               "metrics_port": metrics_port}
    try:
        total = FlightsReader(rows).total_changes
        with engine_on(spark, "hummock flights") as engine, connect(
            f"file://{data.resolve()}", create=True,
                chunk_rows=chunk_rows, sources_paused=True, engine=engine, **options
        ) as session:
            prepare(session, rows)
            run(session, console, total)
            show(session, console)
    except KeyboardInterrupt:
        console.print(f"stopped; the same command continues from the last committed epoch in {data}")
        raise SystemExit(130) from None
    except (RelationalError, StreamError, OSError) as error:
        print_error(console, error)
        raise SystemExit(1) from error


def prepare(session: Session, rows: int | None) -> None:
    """Create the table and the views unless they exist. ClickException if the existing run has another length."""
    wanted = create_table(rows)
    if TABLE not in session.names():
        session.sql(wanted)
    elif session.table(TABLE).table.definition != wanted:
        raise click.ClickException("the run in this directory has another --rows; choose another --data or remove it")
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


def run(session: Session, console: Console, total: int) -> None:
    """Show the progress: a bar on a terminal, otherwise a line whenever an epoch is committed."""
    begun = committed_changes(session)
    if begun:
        console.print(f"continuing after change {begun:,} of {total:,}")
    last = Sample(begun, 0.0, 0, 0, 0.0)
    session.resume()
    progress = Progress(
        TextColumn("flights"), BarColumn(), TextColumn("{task.fields[text]}"), TimeElapsedColumn(), console=console
    )
    with progress:
        bar = progress.add_task("", total=total, text="", completed=begun)
        for sample in samples(session, total):
            text = describe(sample, begun, total)
            progress.update(bar, completed=sample.changes, text=text)
            if sample.epoch != last.epoch and not console.is_terminal:
                console.print(text, soft_wrap=True)
            last = sample
    console.print(summary(session, last, begun), soft_wrap=True)


def describe(sample: Sample, begun: int, total: int) -> str:
    rate = (sample.changes - begun) / sample.seconds if sample.seconds else 0.0
    barrier = f"barrier {sample.barrier_ms:.0f} ms, epoch {sample.epoch}"
    return f"{sample.changes:,} of {total:,} changes, {rate:,.0f}/s, {barrier}"


def summary(session: Session, last: Sample, begun: int) -> str:
    figures, changes = session.figures, last.changes - begun
    rate = changes / last.seconds if last.seconds else 0.0
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        f"{changes:,} changes in {last.seconds:.2f} s: {rate:,.0f} changes/s; {last.checkpoints} checkpoints, "
        f"barrier latency median {figures.median_ms:.0f} ms, p99 {figures.p99_ms:.0f} ms, "
        f"{figures.passing_p99_ms:.0f} of it passing; "
        f"peak memory {memory_mb:,.0f} MB"
    )


def show(session: Session, console: Console) -> None:
    """Print the first rows of every view, in the order of ORDER."""
    for name in VIEWS:
        rows = session.sql(f"SELECT * FROM {name} ORDER BY {ORDER[name]}")
        assert isinstance(rows, Relation)
        print_rows(console, rows.to_arrow(), f"\n{name}", SHOWN_ROWS)
