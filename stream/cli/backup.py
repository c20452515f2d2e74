"""The commands `hummock backup` and `hummock restore`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import wraps
from typing import Any

import click

from hummock.backup.copy import THREADS, Copied, Progress
from hummock.backup.format import BackupInfo
from hummock.cli.output import Output, shown_bytes, shown_epoch
from hummock.cli.store import port_option, served
from hummock.errors import HummockError
from hummock.metrics import Metrics
from stream import operations

FAILED = 1
meta_option = click.option("--meta", metavar="URL", help="Where the metadata is, if not where the store is.")


def copying(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of a command that copies a store; it gets an `Output` and `Metrics`, which are served meanwhile,
    and its errors are one line."""

    @click.option("--threads", default=THREADS, show_default=True, type=click.IntRange(1, 64),
                  help="Files copied at once.")
    @port_option
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
    @wraps(function)
    def command(as_json: bool, metrics_port: int | None, **options: Any) -> None:
        output, metrics = Output(as_json), Metrics()
        try:
            with served(metrics, output, metrics_port):
                function(output, metrics, **options)
        except HummockError as error:
            output.error(error)
            raise SystemExit(FAILED) from None

    return command


@click.command()
@click.argument("store")
@click.argument("target")
@click.option("--epoch", type=click.IntRange(0), help="What was committed up to it has to be in the backup: wait for "
              "it.")
@meta_option
@copying
def backup(output: Output, metrics: Metrics, store: str, target: str, epoch: int | None, meta: str | None,
           threads: int) -> None:
    """Copy the newest committed epoch of STORE to TARGET, beside its writer.

    Both are paths or URLs. TARGET keeps any number of backups of one store; each copies the files that are not there
    yet. A backup that ended early is not there, and the next one goes on from what it copied.
    """
    with _shown(output) as progress:
        report = operations.backup(store, target, meta=meta, epoch=epoch, threads=threads, progress=progress,
                                   metrics=metrics)
    for path in report.damaged:
        output.line(f"damaged: {path}, an older backup in {target}", "yellow")
    _say(output, f"backed up {store} to {target}", report.info, report.copied, list(report.damaged))


@click.command()
@click.argument("source")
@click.argument("store")
@click.option("--epoch", type=click.IntRange(0), help="Of the backup; by default the newest one.")
@meta_option
@copying
def restore(output: Output, metrics: Metrics, source: str, store: str, epoch: int | None, meta: str | None,
            threads: int) -> None:
    """Make a new STORE from a backup in SOURCE.

    Nothing is overwritten. Each file is checked. The same command continues one that ended early.
    """
    with _shown(output) as progress:
        report = operations.restore(source, store, meta=meta, epoch=epoch, threads=threads, progress=progress,
                                   metrics=metrics)
    _say(output, f"restored {store} from {source}", report.info, report.copied, [])


@contextmanager
def _shown(output: Output) -> Iterator[Progress]:
    """Shows how much is there, in a terminal."""
    with output.progress() as shown:
        bar = shown.add_task("copying", total=None)
        yield lambda size, total: shown.update(bar, advance=size, total=total)


def _say(output: Output, what: str, info: BackupInfo, copied: Copied, damaged: list[str]) -> None:
    output.line(f"{what}: epoch {shown_epoch(info.epoch)}, {info.files:,} files of {shown_bytes(info.stored_bytes)}; "
                f"copied {copied.files:,} files of {shown_bytes(copied.bytes)}")
    output.emit({**asdict(info), "copied": asdict(copied), "damaged": damaged})
