"""The import table as data: which component may import which, and which modules may import third-party packages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("hummock", "relational", "stream")

# A component is a package with its subpackages, or a module that MAY_IMPORT names.

# A component may import itself and the errors and options of its own package and of the packages below.
OPEN = {
    "hummock": {"hummock.errors", "hummock.epoch", "hummock.options"},
    "relational": {"relational.errors", "hummock.errors", "hummock.epoch", "hummock.options"},
    "stream": {
        "stream.errors", "stream.options", "relational.errors", "hummock.errors", "hummock.epoch", "hummock.options",
    },
}  # fmt: skip
WITHOUT_OPEN = {"hummock.errors", "hummock.epoch", "hummock.options", "relational.errors", "stream.errors"}

MAY_IMPORT: dict[str, str] = {
    "hummock.errors": "",
    "hummock.epoch": "errors",
    "hummock.options": "errors",
    "hummock.metrics": "",
    "hummock.base": "",
    "hummock.columnar": "base",
    "hummock.object_store": "base metrics",
    "hummock.iterator": "base columnar",
    "hummock.sstable": "base columnar iterator object_store",
    "hummock.version": "base sstable",
    "hummock.state_store": "base columnar sstable",
    "hummock.loaded_files": "base sstable",
    "hummock.spark": "base columnar object_store sstable",
    "hummock.pipeline": "base columnar iterator object_store sstable",
    "hummock.compaction": "base columnar iterator object_store pipeline spark sstable version",
    "hummock.meta_client": "base compaction loaded_files sstable version",
    "hummock.shared_buffer": "base columnar iterator loaded_files object_store pipeline sstable",
    "hummock.read": "base columnar iterator object_store shared_buffer sstable state_store version",
    "hummock.meta": "base compaction loaded_files meta_client metrics object_store sstable version",
    "hummock.store": (
        "base columnar iterator loaded_files meta.upload_registry meta_client metrics object_store pipeline read "
        "shared_buffer sstable state_store version"
    ),
    "hummock.compactor": "base compaction meta_client metrics object_store version",
    "hummock.maintenance": "base compactor meta object_store version",
    "hummock.opening": "base maintenance meta metrics object_store state_store store",
    "hummock.tools": "base iterator loaded_files meta meta_client object_store sstable version",
    "hummock.backup": "base meta meta_client object_store sstable store.pinned_version tools version",
    "hummock.doctor": "backup meta object_store sstable tools version",
    "hummock.cli": "base compaction compactor meta metrics object_store spark sstable tools version opening",
    "hummock": "base columnar meta opening state_store store",
    "hummock.__main__": "base cli",
    "relational.errors": "",
    "relational.types": "",
    "relational.memory_budget": "",
    "relational.memory_use": "",
    "relational.chunk": "types hummock.base hummock.columnar",
    "relational.udf": "types chunk",
    "relational.encoding": "types chunk hummock.base hummock.columnar",
    "relational.hash": "chunk encoding memory_budget hummock.base hummock.columnar",
    "relational.expr": "types chunk udf hummock.base",
    "relational.catalog": "types udf hummock.base hummock.metrics hummock.meta.store hummock.meta.notification",
    "relational.agg": "types chunk encoding hash memory_budget memory_use udf hummock.base hummock.columnar",
    "relational.join": "types chunk encoding hash memory_budget memory_use hummock.base hummock.columnar",
    "relational.order": "types chunk encoding hash expr agg hummock.base hummock.columnar",
    "relational.table": (
        "types chunk encoding catalog hash hummock.base hummock.columnar hummock.read hummock.state_store"
    ),
    "relational.plan": "types expr catalog udf hummock.base",
    "relational.sql": "types expr catalog plan udf",
    "relational.display": "types expr",
    "relational.result": "display hummock.base",
    "relational.relation": "types expr plan catalog batch result",
    "relational.batch": (
        "types chunk encoding hash expr catalog plan agg join order table memory_budget hummock.base hummock.columnar "
        "hummock.state_store"
    ),
    "relational.inbox": "hummock.base hummock.meta hummock.object_store",
    "relational.spark": (
        "types chunk catalog table expr plan sql inbox hummock.base hummock.columnar hummock.compaction "
        "hummock.iterator hummock.loaded_files hummock.meta hummock.object_store hummock.pipeline "
        "hummock.shared_buffer hummock.spark hummock.sstable hummock.store hummock.version"
    ),
    "relational": "types expr relation result hummock",
    "stream.errors": "relational.errors",
    "stream.options": "hummock.base",
    "stream.message": "relational.types relational.chunk relational.expr relational.catalog hummock.meta.store",
    "stream.runtime": "message relational.types relational.chunk hummock.base",
    "stream.plan": (
        "relational.types relational.plan relational.expr relational.agg relational.catalog relational.udf hummock.base"
    ),
    "stream.actor_metrics": "epoch_figures",
    "stream.epoch_figures": "",
    "stream.engine_choice": "",
    "stream.job_profile": "plan",
    "stream.job_memory": "relational.memory_use",
    "stream.protocol": (
        "message plan actor_metrics job_memory job_profile relational.types relational.catalog relational.chunk"
    ),
    "stream.error_counts": (
        "plan relational.types relational.chunk relational.expr relational.catalog relational.table "
        "hummock.state_store"
    ),
    "stream.connector": (
        "relational.types relational.chunk relational.expr relational.catalog relational.table hummock.base "
        "hummock.object_store hummock.state_store"
    ),
    "stream.executor": (
        "message runtime connector error_counts relational.types relational.chunk relational.expr "
        "relational.agg relational.join relational.order relational.table relational.encoding relational.catalog "
        "relational.memory_budget relational.memory_use"
    ),
    "stream.runtime.actor": "message runtime executor protocol hummock.base",
    "stream.worker": (
        "runtime runtime.actor protocol plan executor connector message error_counts actor_metrics job_profile "
        "epoch_figures job_memory relational.memory_budget relational.memory_use hummock.base "
        "hummock.meta.store hummock.state_store relational.agg relational.expr relational.table relational.catalog"
    ),
    "stream.meta": (
        "protocol plan connector message relational.types relational.catalog relational.plan relational.chunk "
        "relational.table relational.udf "
        "hummock.base hummock.meta hummock.meta_client hummock.loaded_files"
    ),
    "stream.sink_delivery": "connector relational.catalog hummock.base hummock.state_store",
    "stream.playground": (
        "meta worker runtime protocol connector error_counts actor_metrics job_memory job_profile sink_delivery "
        "hummock.base hummock.meta "
        "hummock.store hummock.maintenance hummock.meta_client hummock.metrics hummock.object_store relational.catalog "
        "relational.batch relational.memory_budget relational.table"
    ),
    "stream.spark": (
        "playground plan protocol connector executor worker runtime message error_counts actor_metrics job_profile "
        "epoch_figures job_memory relational.types relational.chunk relational.expr relational.agg relational.plan "
        "relational.catalog relational.memory_budget relational.table relational.spark hummock.base "
        "hummock.loaded_files hummock.object_store "
        "hummock.sstable hummock.state_store hummock.store hummock.spark hummock.version"
    ),
    "stream.serving": (
        "options playground connector hummock.base hummock.meta hummock.metrics hummock.object_store hummock.store "
        "relational.batch relational.catalog"
    ),
    "stream.session": (
        "playground connector serving spark meta worker engine_choice epoch_figures plan message error_counts "
        "job_memory job_profile sink_delivery "
        "relational.spark hummock.spark hummock.version hummock.loaded_files hummock.meta hummock.metrics "
        "hummock.object_store relational.inbox relational.expr relational.types relational.sql "
        "relational.plan relational.relation relational.batch relational.catalog relational.chunk relational.display "
        "relational.result "
        "relational.table relational.udf hummock.base"
    ),
    "stream.examples": (
        "session connector cli relational.chunk relational.display relational.expr relational.types hummock.base"
    ),
    "stream.notebook": "session hummock.base hummock.object_store relational.relation relational.result relational.sql",
    "stream.store_checks": (
        "plan session hummock.base hummock.doctor hummock.meta hummock.object_store relational.catalog "
        "relational.inbox"
    ),
    "stream.operations": (
        "store_checks hummock.backup hummock.doctor hummock.meta hummock.metrics hummock.object_store relational.inbox"
    ),
    "stream.cli": (
        "session spark operations hummock.backup hummock.base hummock.cli hummock.doctor hummock.metrics hummock.spark "
        "relational.relation relational.result relational.catalog relational.display relational.expr relational.sql "
        "relational.types"
    ),
    "stream.__main__": "cli",
    "stream": "session connector notebook operations relational.expr relational.inbox relational.types",
}

COMMANDS = ("hummock.cli", "stream.cli", "stream.examples.flights.command", "stream.examples.flights.demo",
            "stream.examples.flights.screen")

# Third-party packages and the only modules that may import them (numpy and pyarrow are unrestricted).
FOREIGN: dict[str, tuple[str, ...]] = {
    "prometheus_client": ("hummock.metrics", "stream.error_counts", "stream.actor_metrics"),
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
    "prompt_toolkit": ("stream.cli.shell.editor",),
    "pygments": ("stream.cli.shell.editor",),
    "IPython": ("stream.notebook",),
    "pandas": ("relational.result",),
    "polars": ("relational.result",),
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


def component_of(module: str) -> str:
    """The component that a module of the three packages belongs to."""
    parts = module.split(".")
    for size in range(len(parts), 0, -1):
        name = ".".join(parts[:size])
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


def allowed(component: str) -> set[str]:
    """The components, and single modules of others, that a component may import."""
    package = component.split(".")[0]
    full = {
        name if name.split(".")[0] in PACKAGES and name != package else f"{package}.{name}"
        for name in MAY_IMPORT[component].split()
    }
    return full | (set() if component in WITHOUT_OPEN else OPEN[package]) | {component}


def verdict(item: Import) -> str | None:
    """Why an import is forbidden, or None."""
    top = item.imported.split(".")[0]
    if top in PACKAGES:
        component, target = component_of(item.importer), component_of(item.imported)
        if component not in MAY_IMPORT:
            return f"{item.where}: {item.importer} belongs to no component of the table"
        if not any(name == target or (name.startswith(f"{target}.") and item.imported.startswith(name))
                   for name in allowed(component)):
            return f"{item.where}: {component} may not import {target} ({item.imported})"
        return None
    importers = FOREIGN.get(top)
    if importers is not None and not any(item.importer == name or item.importer.startswith(name + ".")
                                         for name in importers):
        return f"{item.where}: only {', '.join(importers)} may import {top}"
    return None
