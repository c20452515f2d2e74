"""`sst-dump`: one file, block by block, or a list of all files, stored or inline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hummock.cli.output import add_row, new_table, shown_bytes, shown_moment
from hummock.cli.store import OpenStore, store_command
from hummock.epoch import to_unix_ms
from hummock.object_store.base import SSTABLE_PREFIX, sstable_data_path, sstable_meta_path, sstable_name_of
from hummock.sstable.inline import objects_of, with_inline
from hummock.tools.dump import describe, export_entries


class _Unwritable(click.ClickException):
    """The command names a file for its results that cannot be written: the store is not to blame."""

    exit_code = click.UsageError.exit_code


@click.command("sst-dump", short_help="List the files, or show one block by block.")
@store_command
@click.argument("name", required=False)
@click.option("--entries", default=20, show_default=True, type=click.IntRange(0), help="Entries to show.")
@click.option("--arrow", "arrow_path", type=click.Path(dir_okay=False, writable=True), metavar="FILE",
              help="Write all entries to this Arrow IPC file: key, epoch, value (null: a delete).")
def sst_dump(store: OpenStore, name: str | None, entries: int, arrow_path: str | None) -> None:
    """The file whose name has NAME in it, block by block; without NAME, all files that are stored or inline."""
    objects = with_inline(store.object_store, store.version.sstables)
    inline = (item for info in store.version.sstables for item in objects_of(info))
    sizes = {**{found.path: found.size_bytes for found in store.object_store.list(SSTABLE_PREFIX)},
             **{path: len(data) for path, data in inline}}
    names = sorted({part for path in sizes if (part := sstable_name_of(path)) is not None})
    if name is None:
        if arrow_path is not None:
            raise click.UsageError("--arrow exports one file: give its NAME")
        _show_files(store, names, sizes)
        return
    matching = [candidate for candidate in names if name in candidate]
    if len(matching) != 1:
        raise click.UsageError(f"{len(matching)} files have {name!r} in their name")
    meta = objects.get(sstable_meta_path(matching[0]))
    data = objects.get(sstable_data_path(matching[0]))
    lines = []
    for line in describe(meta, matching[0], data, entries):
        store.output.line(line)
        lines.append(line)
    if arrow_path is not None:
        try:
            rows = export_entries(objects, meta, matching[0], Path(arrow_path))
        except OSError as error:
            raise _Unwritable(f"{arrow_path} cannot be written: {error.strerror or error}") from None
        store.output.line(f"{rows:,} entries written to {arrow_path}")
    store.output.emit({"name": matching[0], "lines": lines})


def _show_files(store: OpenStore, names: list[str], sizes: dict[str, int]) -> None:
    """Prints every file, and what the version records of it."""
    known = {info.name: info for info in store.version.sstables}
    table = new_table("files", "name", "where", ">.data", ">.meta", ">rows", "tables", "newest row")
    records: list[dict[str, Any]] = []
    for name in names:
        info = known.get(name)
        stored = [sizes.get(path) for path in (sstable_data_path(name), sstable_meta_path(name))]
        facts = ("", "", "in no version") if info is None else (
            info.rows, ", ".join(map(str, info.table_ids)), shown_moment(to_unix_ms(info.newest_epoch)))
        where = "version" if info is not None and info.inline_data else "objects"
        add_row(table, name, where, *("missing" if size is None else shown_bytes(size) for size in stored), *facts)
        records.append({"name": name, "where": where, "data_bytes": stored[0], "meta_bytes": stored[1],
                        "info": None if info is None else info.to_json()})
    store.output.table(table)
    store.output.emit({"files": records})
