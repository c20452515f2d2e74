"""`python -m hummock`: looks at the files of a store without a cluster, and changes nothing.

Exit status 0: all is well; 1: damage was found, or the store cannot be read; 2: the command was misused.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import click
from rich.console import Console
from rich.table import Table

from hummock.epoch import SPILL_MASK, to_unix_ms
from hummock.errors import HummockError
from hummock.meta import open_meta_store
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.pins import read_leases
from hummock.meta.store import MetaStore
from hummock.object_store import open_object_store
from hummock.object_store.base import (
    SSTABLE_PREFIX,
    ObjectStore,
    sstable_data_path,
    sstable_meta_path,
    sstable_name_of,
)
from hummock.sstable.dump import describe
from hummock.sstable.info import SstableInfo
from hummock.table_rules import PrefixRule
from hummock.verify import unreferenced, verify_version
from hummock.version import HummockVersion

PIPE_COLUMNS = 240          # width of tables that no terminal limits
USER_KEY_HEADER = 6         # table id u32 | vnode u16
SHOWN_KEY_BYTES = 16
UNBROKEN = ("name", "id", "run", "newest row")      # columns that are copied from the screen
DAMAGED = 1


@dataclass(frozen=True, slots=True)
class OpenStore:
    """A store opened to be looked at."""

    meta_store: MetaStore
    object_store: ObjectStore
    version: HummockVersion


@click.group()
def main() -> None:
    """Looks at the files of a Hummock store. URL is file:///directory."""


@main.command()
@click.argument("url")
def version(url: str) -> None:
    """The newest version: its epochs, and its files level by level."""
    console = _console()
    with _opened(console, url) as store:
        _print_version(console, store.version)
        table = _table("files, newest run first", "level", "run", "id", "name", ">rows", ">stale", ">deletes",
                       ">bytes", "tables", "first key", "last key", "newest row")
        for level in store.version.levels:
            for run in level.runs:
                for info in run.sstables:
                    table.add_row(str(level.number), str(run.id), *_file_cells(info))
        console.print(table)


@main.command("sst-dump")
@click.argument("url")
@click.argument("name", required=False)
@click.option("--entries", default=20, show_default=True, type=click.IntRange(0), help="Entries to show.")
def sst_dump(url: str, name: str | None, entries: int) -> None:
    """The file whose NAME begins like this, block by block; without NAME, all files that are stored."""
    console = _console()
    with _opened(console, url) as store:
        sizes = {found.path: found.size_bytes for found in store.object_store.list(SSTABLE_PREFIX)}
        names = sorted({part for path in sizes if (part := sstable_name_of(path)) is not None})
        if name is None:
            _print_files(console, store.version, names, sizes)
            return
        matching = [candidate for candidate in names if candidate.startswith(name)]
        if len(matching) != 1:
            raise click.UsageError(f"{len(matching)} files have a name that begins with {name!r}")
        meta_path, data_path = sstable_meta_path(matching[0]), sstable_data_path(matching[0])
        meta, data = store.object_store.get(meta_path), store.object_store.get(data_path)
        for line in describe(meta, matching[0], data, entries):
            console.print(line, highlight=False, markup=False, soft_wrap=True)


@main.command()
@click.argument("url")
def verify(url: str) -> None:
    """Reads every object of the newest version and reports each damage."""
    console = _console()
    with _opened(console, url) as store:
        objects = damaged = size = 0
        for found in verify_version(store.version, store.object_store):
            objects += 1
            size += found.bytes_read
            damaged += bool(found.damages)
            for damage in found.damages:
                console.print(f"[red]damaged[/red] {found.path}", highlight=False)
                console.print(f"        {damage}", highlight=False, markup=False)
        verdict = f"[red]{damaged} damaged[/red]" if damaged else "[green]no damage[/green]"
        console.print(f"{objects:,} objects, {_bytes(size)} read: {verdict}", highlight=False)
    if damaged:
        sys.exit(DAMAGED)


@main.command()
@click.argument("url")
def stats(url: str) -> None:
    """Sizes by level and by table, what is pinned, and what no version names."""
    console = _console()
    with _opened(console, url) as store:
        _print_version(console, store.version)
        _print_levels(console, store.version)
        _print_tables(console, store.version)
        _print_leases(console, store.meta_store)
        strays = [size for _, size in unreferenced(store.version, store.object_store)]
        console.print(f"objects that no version names: {len(strays):,}, {_bytes(sum(strays))}",
                      highlight=False)


def _print_version(console: Console, version: HummockVersion) -> None:
    files = sum(1 for _ in version.sstables)
    size = sum(info.data_bytes + info.meta_bytes for info in version.sstables)
    console.print(f"version {version.id:,}: {files:,} files, {_bytes(size)}", highlight=False)
    console.print(f"committed epoch {_epoch(version.max_committed_epoch)}", highlight=False)
    beginning = _epoch(version.safe_epoch) if version.safe_epoch else "the beginning"
    console.print(f"readable from   {beginning}", highlight=False)
    if version.dropped_tables:
        dropped = ", ".join(map(str, sorted(version.dropped_tables)))
        console.print(f"dropped tables  {dropped}", highlight=False)


def _print_levels(console: Console, version: HummockVersion) -> None:
    table = _table("levels", "level", ">runs", ">files", ">rows", ">stale", ">deletes", ">stored", ">raw",
                   ">ratio")
    for level in version.levels:
        infos = list(level.sstables)
        stored, raw = level.data_bytes, sum(info.uncompressed_bytes for info in infos)
        counts = (len(level.runs), len(infos), sum(info.rows for info in infos),
                  sum(info.stale_rows for info in infos), sum(info.tombstones for info in infos))
        table.add_row(str(level.number), *(f"{count:,}" for count in counts), _bytes(stored), _bytes(raw),
                      f"{raw / stored:.2f}" if stored else "-")
    console.print(table)


def _print_files(console: Console, version: HummockVersion, names: list[str], sizes: dict[str, int]) -> None:
    """Every stored file, and what the version knows of it."""
    known = {info.name: info for info in version.sstables}
    table = _table("stored files", "name", ">.data", ">.meta", ">rows", "tables", "newest row")
    for name in names:
        info = known.get(name)
        facts = ("", "", "in no version") if info is None else (
            f"{info.rows:,}", ", ".join(map(str, info.table_ids)), _moment(to_unix_ms(info.max_epoch)))
        stored = (sizes.get(path) for path in (sstable_data_path(name), sstable_meta_path(name)))
        table.add_row(name, *("missing" if size is None else _bytes(size) for size in stored), *facts)
    console.print(table)


def _print_tables(console: Console, version: HummockVersion) -> None:
    files: Counter[int] = Counter()
    for info in version.sstables:
        files.update(info.table_ids)
    table = _table("tables", "table", ">in files", ">prefix filter", "state")
    for table_id, count in sorted(files.items()):
        rules = version.tables.get(table_id)
        prefix = None if rules is None else rules.prefix
        table.add_row(str(table_id), f"{count:,}", _prefix_words(prefix),
                      "dropped" if table_id in version.dropped_tables else "")
    console.print(table)


def _prefix_words(rule: PrefixRule | None) -> str:
    if rule is None:
        return "-"
    return f"{rule.fixed_bytes} bytes" if rule.fixed_bytes else f"{len(rule.columns)} columns"


def _print_leases(console: Console, meta_store: MetaStore) -> None:
    leases = read_leases(meta_store)
    if leases:
        table = _table("leases", "node", "expires", ">from version", "from epoch")
        for lease in leases:
            table.add_row(lease.node, _moment(lease.expires_ms), f"{lease.min_version:,}",
                          _epoch(lease.min_epoch))
        console.print(table)


@contextmanager
def _opened(console: Console, url: str) -> Iterator[OpenStore]:
    """The store at `url`; what it cannot do is printed, and ends the process with status 1."""
    try:
        object_store, meta_store = open_object_store(url), open_meta_store(url, create=False)
        try:
            yield OpenStore(meta_store, object_store, HummockManager(meta_store, object_store).version)
        finally:
            meta_store.close()
            object_store.close()
    except HummockError as error:
        console.print(f"[red]{type(error).__name__}[/red]: ", end="", highlight=False)
        console.print(str(error), highlight=False, markup=False)
        sys.exit(DAMAGED)


def _file_cells(info: SstableInfo) -> tuple[str, ...]:
    return (str(info.id), info.name, f"{info.rows:,}", f"{info.stale_rows:,}", f"{info.tombstones:,}",
            _bytes(info.data_bytes), ", ".join(map(str, info.table_ids)), _key(info.smallest),
            _key(info.largest), _moment(to_unix_ms(info.max_epoch)))


def _table(title: str, *columns: str) -> Table:
    """A table; a column whose name begins with > is flush right."""
    table = Table(title=title, title_justify="left", show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left",
                         overflow="fold", no_wrap=column in UNBROKEN)
    return table


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS)


def _key(key: bytes) -> str:
    """`table/vnode/` and the rest in hex, cut."""
    if len(key) < USER_KEY_HEADER:
        return key.hex()
    table_id, vnode = int.from_bytes(key[:4], "big"), int.from_bytes(key[4:6], "big")
    rest = key[USER_KEY_HEADER:]
    cut = "..." if len(rest) > SHOWN_KEY_BYTES else ""
    return f"{table_id}/{vnode}/{rest[:SHOWN_KEY_BYTES].hex()}{cut}"


def _epoch(epoch: int) -> str:
    """The moment of an epoch and its number; the offset of a flush behind a plus sign."""
    if epoch == 0:
        return "never"
    offset = epoch & SPILL_MASK
    return f"{_moment(to_unix_ms(epoch))}{f'+{offset}' if offset else ''} ({epoch})"


def _moment(unix_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(unix_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{unix_ms} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{unix_ms % 1000:03d}"


def _bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


if __name__ == "__main__":
    main()
