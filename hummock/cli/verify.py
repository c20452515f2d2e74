"""`verify`: reads everything that makes up the store and reports every damage."""

from __future__ import annotations

import sys

import click

from hummock.cli.output import shown_bytes
from hummock.cli.store import FAILED, OpenStore, store_command
from hummock.object_store.base import sstable_name_of
from hummock.tools.repair import FileLoss, drop_files, plan_files
from hummock.tools.verify import Verified, verify_rows, verify_version


@click.command(short_help="Read everything and report each damage.")
@store_command
@click.option("--repair", is_flag=True, help="Say what a repair would do; --yes: and do it.")
@click.option("--yes", is_flag=True, help="Carry the repair out: what is damaged moves to quarantine/.")
@click.option("--threads", default=4, show_default=True, type=click.IntRange(1, 64), help="Files read at once.")
def verify(store: OpenStore, threads: int, repair: bool, yes: bool) -> None:
    """Reads every row of the meta store and every object of the newest version, and reports each damage.

    With --repair it names the rows that the store would go on without; with --yes as well it goes on without them. A
    damaged log in a bucket goes back to its last whole record, while nobody else has the store open.
    """
    if yes and not repair:
        raise click.UsageError("--yes carries a repair out: give --repair too")
    rows = list(verify_rows(store.meta_store))
    damaged = [found for found in rows if found.damages]
    for found in damaged:
        _say_damage(store, found)
    objects = size = 0
    total = sum(info.stored_bytes for info in store.version.sstables)
    with store.output.progress() as progress:
        bar = progress.add_task("reading", total=total)
        for found in verify_version(store.version, store.object_store, threads=threads, refresh=store.manager.refresh):
            objects += 1
            size += found.bytes_read
            progress.update(bar, advance=found.bytes_read)
            if found.damages:
                damaged.append(found)
                _say_damage(store, found)
    verdict = f"{len(damaged)} damaged" if damaged else "no damage"
    store.output.line(f"{objects:,} objects, {shown_bytes(size)} read, {len(rows):,} rows: {verdict}",
                      "red" if damaged else "green")
    losses = plan_files(store.version, damaged) if repair else []
    record = _repair(store, losses, yes)
    store.output.emit({"version": store.manager.version.id, "objects": objects, "bytes_read": size, "rows": len(rows),
                       "damaged": [{"path": found.path, "damages": list(found.damages)} for found in damaged],
                       **({"drops": [loss.describe() for loss in losses], "record": record} if repair else {})})
    is_whole = record is not None and all(sstable_name_of(found.path) is not None for found in damaged)
    if damaged and not is_whole:
        sys.exit(FAILED)


def _repair(store: OpenStore, losses: list[FileLoss], yes: bool) -> str | None:
    """Prints what would be lost, and removes it if `yes`: then returns the path of the record of it."""
    for loss in losses:
        store.output.line(f"{'drops' if yes else 'would drop'} {loss.describe()}", "yellow")
    if not losses:
        return None
    if not yes:
        store.output.line("nothing was changed: --yes carries it out")
        return None
    path = drop_files(losses, store.manager, store.object_store)
    store.output.line(f"version {store.manager.version.id} goes on without {len(losses)} files: {path}", "green")
    return path


def _say_damage(store: OpenStore, found: Verified) -> None:
    store.output.line(f"damaged {found.path}", "red")
    for damage in found.damages:
        store.output.line(f"        {damage}")
