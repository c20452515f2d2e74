"""The command `hummock doctor`."""

from __future__ import annotations

import click

from hummock.cli.output import Output, shown_bytes, shown_epoch
from hummock.cli.store import Duration
from hummock.doctor.finding import HOUR_MS, DoctorReport, Severity
from hummock.errors import HummockError
from stream import operations

FAILED = 1
STYLES = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: ""}


@click.command()
@click.argument("url")
@click.option("--meta", metavar="URL", help="Where the metadata is, if not where the store is.")
@click.option("--deep", is_flag=True, help="Read and verify every file; by default their sizes are compared.")
@click.option("--threads", default=4, show_default=True, type=click.IntRange(1, 64), help="Files read at once.")
@click.option("--grace", type=Duration(), default=HOUR_MS, show_default="1h",
              help="Younger files that are in no version may be of a writer.")
@click.option("--old", type=Duration(), default=HOUR_MS, show_default="1h",
              help="What keeps old epochs for longer is a finding.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def doctor(url: str, meta: str | None, deep: bool, threads: int, grace: int, old: int, as_json: bool) -> None:
    """Say what is wrong with the store at URL, or will be, and what helps.

    It reads beside the processes that use the store, and changes nothing. URL may also be a directory of backups. Exit
    status 0: nothing has to be done; 1: something has, or there is no store.
    """
    output = Output(as_json)
    try:
        report = operations.doctor(url, meta=meta, is_deep=deep, threads=threads, grace_ms=grace, old_ms=old)
    except HummockError as error:
        output.error(error)
        raise SystemExit(FAILED) from None
    _say(output, report)
    output.emit(report.to_json())
    if not report.is_healthy:
        raise SystemExit(FAILED)


def _say(output: Output, report: DoctorReport) -> None:
    about = report.about
    if "store" in about:
        output.line(f"{about['store']}: version {about['version']:,}, {about['files']:,} files, "
                    f"{shown_bytes(about['bytes'])}, committed {shown_epoch(about['committed_epoch'])}; "
                    f"{about['writer'] or 'nobody'} writes it")
    elif "backups" in about:
        output.line(f"{about['backups']}: {about['finished']:,} finished backups")
    for found in report.findings:
        output.line(f"{found.severity:<8} {found.check}: {found.what}", STYLES[found.severity])
        if found.remedy:
            output.line(f"         -> {found.remedy}")
    if not report.findings:
        output.line("nothing is wrong", "green")
