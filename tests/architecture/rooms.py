"""The house's import table as data: which room may import which, and where foreign packages may stand."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("hummock", "relational", "stream")

BASE_MODULES = [
    "errors",
    "options",
    "metrics",
    "epoch",
    "record",
    "table_rules",
    "coding",
    "arrow_c",
    "arrow_columns",
    "huge_pages",
    "byte_buffer",
    "pthread",
    "slabs",
    "allocator",
    "process",
    "forked",
    "thread_name",
    "binary_column",
    "value",
    "key",
    "write_batch",
    "codec",
    "checksum",
    "content_hash",
    "lz4_partial",
]
STORE_MODULES = [
    "scan", "memory_store", "read_view", "point_read", "cold_probes", "likely_probes", "single_get", "many_gets",
    "read_ranges", "read_changes", "change_parts", "view_reads", "snapshot_store", "run_cursor", "local_version",
    "storage", "write_path", "writer_gate", "stats", "task_store",
]  # fmt: skip

# Room of each module that is not simply its folder; the longest name that a module begins with decides.
ROOM_OF = {
    "hummock.tools.repair": "hummock.tools.verify",
    **{f"hummock.{module}": "hummock.base" for module in BASE_MODULES},
    **{f"hummock.{module}": "hummock.store" for module in STORE_MODULES},
    "hummock.sstable.info": "hummock.sstable.info",
    "hummock.loaded_files": "hummock.sstable.info",
    "hummock.compaction.task": "hummock.compaction.task",
    "hummock.meta.store.base": "hummock.meta.store.base",
    "hummock.state_store": "hummock.state_store",
    "hummock.meta.notification": "hummock.meta.store.base",
    "hummock.meta.uploads": "hummock.meta.uploads",
    **{f"stream.{module}": "stream.session.session"
       for module in ("job_status", "runner", "snapshot", "statements", "table", "rows", "bulk_load")},
    "stream.playground": "stream.node",
    "stream.node": "stream.node",
    "stream.examples.flights.command": "stream.cli.main",
    "stream.cli.backfill": "stream.cli.main",
    "stream.examples.flights.views": "stream.cli.main",
    "stream.cli.terminal": "stream.cli.main",
    "stream.__main__": "stream.cli.main",
}

# Errors and options of a package are open to all its rooms and to the floors above, and a room may import itself.
OPEN = {
    "hummock": set(),
    "relational": {"relational.errors"},
    "stream": {"stream.errors", "stream.options", "relational.errors"},
}

EVERY_ROOM = (
    "base object_store state_store iterator sstable sstable.info shared_buffer version compaction meta_client "
    "meta meta.store meta.uploads store compactor throttle spark"
)

MAY_IMPORT: dict[str, str] = {
    "hummock.base": "",
    "hummock.object_store": "base",
    "hummock.iterator": "base",
    "hummock.sstable": "base iterator object_store sstable.info state_store",
    "hummock.sstable.info": "base",
    "hummock.state_store": "base sstable.info",
    "hummock.shared_buffer": "base iterator sstable sstable.info compaction meta_client object_store",
    "hummock.version": "base sstable.info",
    "hummock.compaction": "base iterator sstable sstable.info compaction.task version object_store spark",
    "hummock.compaction.task": "base sstable.info version",
    "hummock.spark": "base object_store sstable",
    "hummock.meta_client": "base version compaction.task sstable.info",
    "hummock.meta": "base version compaction compaction.task meta_client object_store sstable.info meta.store",
    "hummock.meta.store.base": "base",
    "hummock.meta.uploads": "base meta_client object_store",
    "hummock.store": (
        "base state_store iterator sstable shared_buffer version throttle meta_client meta.uploads object_store "
        "compaction sstable.info"
    ),
    "hummock.store.throttle": "base version",
    "hummock.compactor": "base compaction compaction.task sstable object_store meta_client version",
    "hummock.maintenance": "base meta meta.store compactor object_store version",
    "hummock.opening": EVERY_ROOM + " maintenance",
    "hummock.tools.verify": "base object_store sstable sstable.info version meta meta.store meta_client",
    "hummock": EVERY_ROOM + " opening maintenance",
    "hummock.cli": EVERY_ROOM + " compaction.task opening verify",
    "hummock.__main__": "base cli",
    "relational.errors": "",
    "relational.types": "",
    "relational.chunk": "types hummock.base",
    "relational.encoding": "types chunk hummock.base",
    "relational.expr": "types chunk",
    "relational.catalog": "types hummock.base hummock.meta.store.base",
    "relational.state": "types chunk encoding expr hummock.base",
    "relational.table": "types chunk encoding catalog hummock.base hummock.store hummock.state_store state",
    "relational.plan": "types expr catalog hummock.base",
    "relational.spark": (
        "types chunk catalog table errors expr plan sql hummock.base hummock.iterator hummock.compaction "
        "hummock.object_store hummock.sstable hummock.sstable.info hummock.shared_buffer hummock.spark hummock.store "
        "hummock.version hummock.meta hummock.meta.store.base"
    ),
    "relational.sql": "types expr catalog plan",
    "relational.batch": (
        "types chunk encoding expr catalog plan state table hummock.base hummock.store hummock.state_store"
    ),
    "relational.relation": "types expr plan catalog",
    "relational": "types chunk encoding expr catalog state table plan sql batch relation errors",
    "stream.errors": "relational.errors",
    "stream.options": "hummock.base",
    "stream.message": "relational.types relational.chunk relational.expr relational.catalog hummock.base",
    "stream.exchange": "message relational.chunk hummock.base",
    "stream.error_counts": (
        "plan relational.types relational.chunk relational.expr relational.catalog relational.table hummock.base "
        "hummock.state_store"
    ),
    "stream.connector": (
        "relational.types relational.chunk relational.catalog relational.table hummock.object_store"
    ),
    "stream.executor": (
        "message exchange connector error_counts relational.types relational.chunk relational.expr "
        "relational.state relational.table relational.encoding relational.catalog hummock.base "
        "hummock.store hummock.state_store"
    ),
    "stream.backfill": (
        "executor message relational.table relational.chunk relational.types relational.catalog "
        "hummock.base hummock.store hummock.state_store exchange"
    ),
    "stream.plan": "relational.types relational.plan relational.expr relational.catalog",
    "stream.protocol": "message plan hummock.base",
    "stream.runtime.actor": "message exchange executor control",
    "stream.worker": (
        "actor control plan executor backfill exchange connector message error_counts hummock.base hummock.store "
        "hummock.state_store relational.expr relational.table relational.catalog"
    ),
    "stream.meta": (
        "control plan connector message relational.types relational.catalog relational.plan hummock.base hummock.meta "
        "hummock.meta.store.base hummock.version hummock.meta_client hummock.sstable.info"
    ),
    "stream.spark": (
        "node plan executor worker message exchange error_counts relational.types relational.chunk relational.expr "
        "relational.catalog relational.table relational.spark hummock hummock.base hummock.object_store "
        "hummock.sstable.info hummock.state_store hummock.store hummock.spark hummock.version"
    ),
    "stream.node": (
        "meta worker exchange plan control message error_counts hummock hummock.base hummock.meta hummock.meta.store.base "
        "hummock.store hummock.state_store hummock.maintenance hummock.meta_client hummock.object_store "
        "hummock.version relational.catalog"
    ),
    "stream.session.session": (
        "node spark plan meta control message error_counts relational.spark hummock.spark hummock.version "
        "hummock.sstable.info relational.expr relational.types relational.sql "
        "relational.plan relational.relation relational.batch relational.catalog relational.chunk "
        "relational.table hummock.base hummock.store hummock.state_store relational"
    ),
    "stream.cli.main": (
        "session spark node meta message connector hummock hummock.__main__ hummock.base hummock.spark "
        "relational.types relational stream relational.relation"
    ),
    "stream": "session connector relational relational.expr relational.types",
}

COMMANDS = ("hummock.cli", "stream.cli.main", "stream.cli.terminal", "stream.examples.flights.command", "stream.cli.backfill")

# Foreign packages and the only modules that may import them (numpy and pyarrow are free).
FOREIGN: dict[str, tuple[str, ...]] = {
    "prometheus_client": ("hummock.metrics", "stream.error_counts"),
    "boto3": ("hummock.object_store.s3_client",),
    "botocore": ("hummock.object_store.s3_client",),
    "urllib3": ("hummock.object_store.http",),
    "opendal": ("hummock.object_store.opendal",),
    "pybloom_live": ("hummock.sstable.filter.policy",),
    "pyspark": ("hummock.spark", "hummock.compaction.spark", "relational.spark", "stream.spark"),
    "sqlite3": ("hummock.meta.store.sqlite",),
    "psycopg": ("hummock.meta.store.postgres",),
    "lz4": ("hummock.base.codec",),
    "zstandard": ("hummock.base.codec",),
    "sqlglot": ("relational.sql",),
    "rich": COMMANDS,
    "click": COMMANDS,
    "pandas": ("relational.relation",),
    "polars": ("relational.relation",),
}
FREE = {"numpy", "pyarrow", "cython", "libc", "cpython", "posix"}


@dataclass(frozen=True, slots=True)
class Import:
    importer: str  # dotted module
    imported: str  # dotted module
    where: str  # file:line


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    """The room that a module of the three packages belongs to."""
    parts = module.split(".")
    for size in range(len(parts), 0, -1):
        name = ".".join(parts[:size])
        if name in ROOM_OF:
            return ROOM_OF[name]
        if name in MAY_IMPORT and (size > 1 or len(parts) == 1):
            return name
    return ".".join(parts[:2])


def python_imports(path: Path, text: str) -> Iterator[Import]:
    importer = module_of(path)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(importer, alias.name, f"{path.relative_to(ROOT)}:{node.lineno}")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                target = full if is_module(full) else str(node.module)
                yield Import(importer, target, f"{path.relative_to(ROOT)}:{node.lineno}")


CYTHON_IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import\s+([\w, ()]+)|c?import\s+([\w.]+))", re.MULTILINE)


def cython_imports(path: Path, text: str) -> Iterator[Import]:
    for match in CYTHON_IMPORT.finditer(text):
        module = match[1] or match[3]
        if module.split(".")[0] == "__future__":
            continue
        line = text.count("\n", 0, match.start()) + 1
        yield Import(module_of(path), module, f"{path.relative_to(ROOT)}:{line}")


def is_module(name: str) -> bool:
    base = ROOT.joinpath(*name.split("."))
    return base.is_dir() or any(base.with_suffix(suffix).exists() for suffix in (".py", ".pyx", ".pxd"))


def all_imports() -> list[Import]:
    found: list[Import] = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*")):
            if path.suffix == ".py":
                found += python_imports(path, path.read_text())
            elif path.suffix in (".pyx", ".pxd"):
                found += cython_imports(path, path.read_text())
    return found


def allowed(room: str) -> set[str]:
    package = room.split(".")[0]
    names = MAY_IMPORT[room].split()
    full = {name if name.split(".")[0] in PACKAGES else f"{package}.{name}" for name in names}
    is_open = any(room in rooms for rooms in OPEN.values()) or room == "stream.options"
    return full | (set() if is_open else OPEN[package]) | {room}


def verdict(item: Import) -> str | None:
    """Why an import is forbidden, or None."""
    top = item.imported.split(".")[0]
    if top in PACKAGES:
        room, target = room_of(item.importer), room_of(item.imported)
        if room not in MAY_IMPORT:
            return f"{item.where}: {item.importer} stands in no room of the table"
        if target not in allowed(room):
            return f"{item.where}: {room} may not import {target} ({item.imported})"
        return None
    homes = FOREIGN.get(top)
    if homes is not None and not any(item.importer == home or item.importer.startswith(home + ".") for home in homes):
        return f"{item.where}: only {', '.join(homes)} may import {top}"
    return None
