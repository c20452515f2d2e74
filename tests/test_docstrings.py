"""Every public name says what it is, and the examples of docstrings run and give what their comments state."""

from __future__ import annotations

import ast
import builtins
import datetime
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hummock
import stream
from stream import col, lit
from stream import functions as f
from tests.support.stated_values import Stating, check

PACKAGES = ("hummock", "relational", "stream")
EXAMPLE = re.compile(r"\n\n((?: {4}.*\n|\n)+)")
CONTRACTS = (hummock.StateStore, stream.Connector, stream.SinkTarget)
"""Where methods that implementations have say what they do."""


def public() -> Iterator[tuple[str, Any]]:
    """Each name, with its methods or functions."""
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            yield f"{package}.{name}", value
            if inspect.isclass(value) or inspect.ismodule(value):
                yield from ((f"{package}.{name}.{each}", part) for each, part in parts_of(value))


def parts_of(owner: Any) -> Iterator[tuple[str, Any]]:
    for name in dir(owner):
        part = inspect.getattr_static(owner, name)
        if name.startswith("_") or not (callable(part) or isinstance(part, property | classmethod | staticmethod)):
            continue
        if not inspect.ismodule(owner) or getattr(part, "__module__", "") == owner.__name__:
            yield name, part


PUBLIC = dict(public())


def docstring_of(name: str) -> str:
    value, last = PUBLIC[name], name.rpartition(".")[2]
    owner = PUBLIC.get(name.rpartition(".")[0])
    found = [value, *(vars(each).get(last) for each in (*inspect.getmro(owner), *CONTRACTS))] if inspect.isclass(
        owner) else [value]
    return next((inspect.cleandoc(each.__doc__) for each in found if getattr(each, "__doc__", None)), "")


def test_every_public_name_says_what_it_is() -> None:
    assert not [name for name in PUBLIC if not docstring_of(name)]


def names_of_examples(db: stream.Session | None, orders: stream.Table | None) -> dict[str, Any]:
    return {"check": check, "stream": stream, "hummock": hummock, "pa": pa, "col": col, "lit": lit, "f": f,
            "datetime": datetime, "Decimal": Decimal, "db": db, "orders": orders}


def lay_out() -> None:
    """The files, the store and its backup that examples name, in the working directory."""
    Path("people.csv").write_text("name;zip\nAda;01234\n")
    Path("bids").mkdir()
    pq.write_table(pa.table({"id": [1, 2], "price": [50, 150]}), "bids/1.parquet")
    with stream.connect("shop", create=True) as shop:
        shop.sql("CREATE TABLE orders (id INT PRIMARY KEY)")
    stream.backup("shop", "shop-backups")


def uses_known_names(example: str) -> bool:
    """Others are illustrations: they need a frame of Spark, a second table, a bucket."""
    nodes = list(ast.walk(ast.parse(example)))
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)} | vars(builtins).keys()
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    return used <= bound | names_of_examples(None, None).keys()


EXAMPLES = {
    example: name
    for name in PUBLIC
    for example in map(textwrap.dedent, EXAMPLE.findall(f"{docstring_of(name)}\n"))
    if "(" in example and uses_known_names(example)
}


@pytest.mark.parametrize("example", [pytest.param(each, id=name) for each, name in EXAMPLES.items()])
def test_an_example_runs_and_gives_what_its_comments_state(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if any(name in example for name in ("shop", "people", "bids")):
        lay_out()
    with stream.connect("memory://") as db:
        orders = db.create_table("orders", {"id": "int", "region": "varchar", "amount": "int"}, primary_key="id")
        orders.insert([(1, "EUROPE", 30), (2, "ASIA", 5), (3, "EUROPE", 12)])
        db.flush()
        names = names_of_examples(db, orders)
        exec(compile(Stating(example).visit(ast.parse(example)), "example", "exec"), names)
        for value in names.values():
            if isinstance(value, stream.ReaderSession) and value is not db:
                value.close()
