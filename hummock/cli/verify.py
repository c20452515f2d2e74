"""`verify`: reads everything that makes up the store and reports each damage."""

from __future__ import annotations

import sys

import click

from hummock.cli.output import shown_bytes
from hummock.cli.store import FAILED, OpenStore, store_command
from hummock.verify import Verified, verify_rows, verify_version


@click.command(short_help="Read everything and report each damage.")
@store_command
@click.option("--threads", default=4, show_default=True, type=click.IntRange(1, 64), help="Files read at once.")
def verify(store: OpenStore, threads: int) -> None:
    """Reads every row of the meta store and every object of the newest version, and reports each damage."""
    rows = list(verify_rows(store.meta_store))
    damaged = [found for found in rows if found.damages]
    for found in damaged:
        _say_damage(store, found)
    objects = size = 0
    total = sum(info.data_bytes + info.meta_bytes for info in store.version.sstables)
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
    store.output.emit({"version": store.version.id, "objects": objects, "bytes_read": size, "rows": len(rows),
                       "damaged": [{"path": found.path, "damages": list(found.damages)} for found in damaged]})
    if damaged:
        sys.exit(FAILED)


def _say_damage(store: OpenStore, found: Verified) -> None:
    store.output.line(f"damaged {found.path}", "red")
    for damage in found.damages:
        store.output.line(f"        {damage}")
