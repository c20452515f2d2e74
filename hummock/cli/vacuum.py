"""`vacuum`: removes the files that nothing needs, once or continuously."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from hummock.cli.look import say_report
from hummock.cli.store import Duration, OpenStore, interrupted, port_option, served, store_command
from hummock.meta.vacuum.loop import VacuumLoop
from hummock.meta.vacuum.vacuum import Vacuum, VacuumReport
from hummock.options import VacuumOptions

DEFAULTS = VacuumOptions()
LOOK_SECONDS = .2
WHOLE = 1 << 62         # objects per run: no limit


@click.command(short_help="Remove files that no version, reader or upload needs.")
@store_command
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--grace", type=Duration(), default=DEFAULTS.grace_ms, show_default="1h",
              help="Leave alone what is in no version, unregistered, and younger than that.")
@click.option("--follow", is_flag=True, help="Go on until interrupted.")
@click.option("--interval", type=Duration(), default=DEFAULTS.interval_ms, show_default="30s",
              help="With --follow: between two looks at the obsolete list.")
@click.option("--listing", type=Duration(), default=DEFAULTS.listing_ms, show_default="1h",
              help="With --follow: between two listings of all objects.")
@port_option
def vacuum(store: OpenStore, dry_run: bool, grace: int, follow: bool, interval: int, listing: int,
           metrics_port: int | None) -> None:
    """Removes files that no version, reader or upload needs."""
    if follow and dry_run:
        raise click.UsageError("--follow and --dry-run exclude each other")
    options = VacuumOptions(grace_ms=grace, interval_ms=max(1, interval), listing_ms=max(1, listing),
                            objects_per_run=DEFAULTS.objects_per_run if follow else WHOLE)
    work = Vacuum(store.meta_store, store.object_store, options=options, metrics=store.metrics)
    if follow:
        with interrupted() as is_interrupted, served(store.metrics, store.output, metrics_port):
            report = _once(store, work, dry_run, is_interrupted)
            report = _follow(store, VacuumLoop(work), is_interrupted) or report
    else:
        with served(store.metrics, store.output, metrics_port):
            report = _once(store, work, dry_run)
    store.output.emit(report.to_json())


def _once(store: OpenStore, work: Vacuum, dry_run: bool,
          is_interrupted: Callable[[], bool] = lambda: False) -> VacuumReport:
    with store.output.progress() as progress:
        bar = progress.add_task("sorting files by need", total=None)

        def watch(report: VacuumReport) -> bool:
            progress.update(bar, completed=sum(found.bytes for found in report.found.values()))
            return not is_interrupted()

        report = work.run(dry_run=dry_run, watch=watch)
    say_report(store, report)
    return report


def _follow(store: OpenStore, loop: VacuumLoop, is_interrupted: Callable[[], bool]) -> VacuumReport | None:
    """Runs rounds until SIGINT or SIGTERM; the report of the latest listing."""
    reported = None
    with loop.start():
        while not is_interrupted():
            if loop.error is not None and loop.error is not reported:
                store.output.error(loop.error)
            reported = loop.error
            time.sleep(LOOK_SECONDS)
    return loop.report
