"""`version`, `levels` and `stats`: what makes up a store, in different detail."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from hummock.base.table_rules import PrefixRule, tables_to_json
from hummock.cli.output import add_row, new_table, shown_bytes, shown_epoch, shown_key, shown_moment
from hummock.cli.store import OpenStore, store_command
from hummock.epoch import to_unix_ms
from hummock.meta.leases import read_leases
from hummock.meta.upload_registry import read_uploads
from hummock.meta.vacuum.vacuum import Vacuum, VacuumReport
from hummock.options import VacuumOptions
from hummock.sstable.info import SstableInfo
from hummock.version import HummockVersion, Level, Run


@click.command(short_help="Show the newest version, file by file.")
@store_command
def version(store: OpenStore) -> None:
    """The newest version: its epochs, and its files level by level."""
    _say_version(store)
    table = new_table("files, newest run first", "level", "run", "id", "name", ">rows", ">stale", ">deletes",
                      ">bytes", "tables", "first key", "last key", "newest row")
    for level in store.version.levels:
        for run in level.runs:
            for info in run.sstables:
                add_row(table, str(level.number), str(run.id), *_file_cells(info))
    store.output.table(table)
    store.output.emit(store.version.to_json())


@click.command(short_help="Show the tree's runs and the compact tasks under way.")
@store_command
def levels(store: OpenStore) -> None:
    """The shape of the tree: each level's runs, newest first."""
    _say_version(store)
    table = new_table("runs, newest first", "level", "run", ">files", ">rows", ">stale", ">deletes", ">bytes",
                      "first key", "last key", "oldest row", "newest row")
    for level in store.version.levels:
        for run in level.runs:
            infos = run.sstables
            add_row(table, str(level.number), str(run.id), len(infos), *_row_counts(infos),
                    shown_bytes(_stored_bytes(infos)), shown_key(infos[0].smallest), shown_key(infos[-1].largest),
                    *(shown_moment(to_unix_ms(epoch)) for epoch in _epochs(infos)))
    store.output.table(table)
    tasks = store.manager.running_tasks()
    if tasks:
        table = new_table("compact tasks under way", ">id", "kind", "node", ">into level", ">input",
                          ">rows read", ">of", "error of the last try")
        for row in tasks:
            add_row(table, row.task.id, row.task.kind.value, row.holder or "nobody", row.task.target_level,
                    shown_bytes(row.task.input_bytes), row.progress_rows, row.task.input_rows, row.error)
        store.output.table(table)
    store.output.emit({"version": store.version.id, "levels": [_level_record(level) for level in store.version.levels],
                       "tasks": [{"id": row.task.id, "kind": row.task.kind.value, "holder": row.holder,
                                  "target_level": row.task.target_level, "input_bytes": row.task.input_bytes,
                                  "input_rows": row.task.input_rows, "progress_rows": row.progress_rows,
                                  "error": row.error} for row in tasks]})


@click.command(short_help="Show sizes by level, table and need, and who reads and writes.")
@store_command
def stats(store: OpenStore) -> None:
    """Sizes by level, by table and by need, and who reads and writes."""
    _say_version(store)
    table = new_table("levels", "level", ">runs", ">files", ">rows", ">stale", ">deletes", ">stored", ">raw", ">ratio")
    for level in store.version.levels:
        infos = list(level.sstables)
        stored, raw = level.data_bytes, sum(info.uncompressed_bytes for info in infos)
        add_row(table, str(level.number), len(level.runs), len(infos), *_row_counts(infos), shown_bytes(stored),
                shown_bytes(raw), f"{raw / stored:.2f}" if stored else "-")
    store.output.table(table)
    files = _files_by_table(store.version)
    table = new_table("tables", "table", ">in files", ">prefix filter", "state")
    for table_id, count in files.items():
        rules = store.version.tables.get(table_id)
        add_row(table, str(table_id), count, _prefix_words(None if rules is None else rules.prefix),
                "dropped" if table_id in store.version.dropped_tables else "")
    store.output.table(table)
    _say_nodes(store)
    report = Vacuum(store.meta_store, store.object_store, options=VacuumOptions()).run(dry_run=True)
    say_report(store, report)
    store.output.emit({
        "version": store.version.id, "committed_epoch": store.version.max_committed_epoch,
        "safe_epoch": store.version.safe_epoch, "levels": [_level_record(level) for level in store.version.levels],
        "tables": {str(table_id): count for table_id, count in files.items()},
        "rules": tables_to_json(store.version.tables), "dropped_tables": sorted(store.version.dropped_tables),
        "leases": [{"node": lease.node, "expires_ms": lease.expires_ms, "min_version": lease.min_version,
                    "min_epoch": lease.min_epoch} for lease in read_leases(store.meta_store)],
        "uploads": {prefix: {"node": row.node, "expires_ms": row.expires_ms}
                    for prefix, row in read_uploads(store.meta_store).items()},
        "stored": report.to_json()})


def say_report(store: OpenStore, report: VacuumReport) -> None:
    """Prints what vacuum found, as a table."""
    table = new_table("stored files by need", "need", ">files", ">bytes")
    for word, files, size_bytes in report.rows():
        add_row(table, word, files, shown_bytes(size_bytes))
    store.output.table(table)
    if report.foreign_objects:
        store.output.line(f"objects that are no part of any file: {report.foreign_objects:,}")


def _say_version(store: OpenStore) -> None:
    version, line = store.version, store.output.line
    files = list(version.sstables)
    line(f"version {version.id:,}: {len(files):,} files, {shown_bytes(_stored_bytes(files))}")
    line(f"committed epoch {shown_epoch(version.max_committed_epoch)}")
    line(f"readable from   {shown_epoch(version.safe_epoch) if version.safe_epoch else 'the beginning'}")
    if version.dropped_tables:
        line(f"dropped tables  {', '.join(map(str, sorted(version.dropped_tables)))}")


def _say_nodes(store: OpenStore) -> None:
    """Prints the readers with their oldest version and epoch, and the writer."""
    table = new_table("leases", "node", "expires", ">from version", "from epoch")
    for lease in read_leases(store.meta_store):
        add_row(table, lease.node, shown_moment(lease.expires_ms), lease.min_version, shown_epoch(lease.min_epoch))
    store.output.table(table)
    table = new_table("uploads", "node", "expires", "names that begin with")
    for prefix, upload in read_uploads(store.meta_store).items():
        add_row(table, upload.node, shown_moment(upload.expires_ms), prefix)
    store.output.table(table)


def _level_record(level: Level) -> dict[str, Any]:
    return {"level": level.number, "data_bytes": level.data_bytes, "runs": [_run_record(run) for run in level.runs]}


def _run_record(run: Run) -> dict[str, Any]:
    rows, stale, tombstones = _row_counts(run.sstables)
    oldest, newest = _epochs(run.sstables)
    return {"run": run.id, "files": len(run.sstables), "rows": rows, "stale_rows": stale, "tombstones": tombstones,
            "stored_bytes": _stored_bytes(run.sstables), "smallest": run.sstables[0].smallest.hex(),
            "largest": run.sstables[-1].largest.hex(), "min_epoch": oldest, "max_epoch": newest}


def _row_counts(infos: list[SstableInfo] | tuple[SstableInfo, ...]) -> tuple[int, int, int]:
    """Numbers of rows, stale rows and deletes."""
    return (sum(info.rows for info in infos), sum(info.stale_rows for info in infos),
            sum(info.tombstones for info in infos))


def _stored_bytes(infos: list[SstableInfo] | tuple[SstableInfo, ...]) -> int:
    return sum(info.stored_bytes for info in infos)


def _epochs(infos: tuple[SstableInfo, ...]) -> tuple[int, int]:
    return (min(info.global_epoch or info.min_epoch for info in infos),
            max(info.newest_epoch for info in infos))


def _files_by_table(version: HummockVersion) -> dict[int, int]:
    files: Counter[int] = Counter()
    for info in version.sstables:
        files.update(info.table_ids)
    return dict(sorted(files.items()))


def _prefix_words(rule: PrefixRule | None) -> str:
    if rule is None:
        return "-"
    return f"{rule.fixed_bytes} bytes" if rule.fixed_bytes else f"{len(rule.columns)} columns"


def _file_cells(info: SstableInfo) -> tuple[str | int, ...]:
    return (str(info.id), info.name, info.rows, info.stale_rows, info.tombstones, shown_bytes(info.data_bytes),
            ", ".join(map(str, info.table_ids)), shown_key(info.smallest), shown_key(info.largest),
            shown_moment(to_unix_ms(info.newest_epoch)))
