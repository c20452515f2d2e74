"""Layering: every import of the three packages is in the table of `layers.py`, and the table has no cycle."""

from __future__ import annotations

import sys
from graphlib import TopologicalSorter

import pytest

from tests.architecture.layers import (
    FOREIGN,
    FREE,
    MAY_IMPORT,
    ROOT,
    Import,
    all_imports,
    allowed,
    component_of,
    python_imports,
    verdict,
)


def test_every_import_is_in_the_table() -> None:
    forbidden = [why for item in all_imports() if (why := verdict(item))]
    assert not forbidden, "\n".join(forbidden)


def test_foreign_packages_are_known() -> None:
    known = set(FOREIGN) | FREE | set(sys.stdlib_module_names) | {"hummock", "relational", "stream", "Cython"}
    importers = {item.imported.split(".")[0]: item.where for item in all_imports()}
    assert not {name: where for name, where in importers.items() if name not in known}


def test_the_table_has_no_cycle() -> None:
    graph = {component: {component_of(name) for name in allowed(component)} - {component} for component in MAY_IMPORT}
    order = list(TopologicalSorter(graph).static_order())
    assert order.index("hummock.base") < order.index("relational.table") < order.index("stream.session")


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("hummock.store.storage", "relational.types"),
        ("relational.table.state_table", "stream.message"),
        ("hummock.iterator.merge", "hummock.sstable.block"),
        ("hummock.sstable.builder", "hummock.version"),
        ("stream.meta.barrier_manager", "stream.worker.compute_node"),
        ("stream.executor.filter", "hummock.sstable.block"),
        ("relational.plan.logical", "sqlglot"),
        ("hummock.store.storage", "boto3"),
    ],
)
def test_a_forbidden_import_breaks(importer: str, imported: str) -> None:
    assert verdict(Import(importer, imported, "tried:1"))


def test_a_forbidden_import_is_seen_in_a_file() -> None:
    path = ROOT / "hummock" / "store" / "storage.py"
    items = list(python_imports(path, "from relational.types import Schema\n"))
    assert [verdict(item) is not None for item in items] == [True]


def test_stream_has_no_compiled_code() -> None:
    assert not list((ROOT / "stream").rglob("*.pyx"))
