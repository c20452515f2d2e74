"""Limits of file, function and line sizes, required docstrings, and a user for each `.pxd`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(path for package in ("hummock", "relational", "stream") for path in (ROOT / package).rglob("*.p*"))
SOURCES = [path for path in FILES if path.suffix in (".py", ".pyx", ".pxd") and path.read_text().strip()]
PYTHON = [path for path in SOURCES if path.suffix == ".py"]
MAX_FILE_LINES = 800
MAX_LINE = 120
MAX_FUNCTION_LINES = 60
FORBIDDEN_NAMES = {"utils", "util", "common", "helpers", "misc"}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_file_fits_and_says_what_it_is(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= MAX_FILE_LINES
    assert path.stem not in FORBIDDEN_NAMES
    assert text.lstrip().startswith(('"""', 'r"""', "# distutils")), "no module docstring"
    assert not [number for number, line in enumerate(text.splitlines(), 1) if len(line) > MAX_LINE]


@pytest.mark.parametrize("path", PYTHON, ids=name)
def test_functions_fit_on_a_screen(path: Path) -> None:
    functions = [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    long = [
        f"{node.name}: {node.end_lineno - node.lineno + 1}"
        for node in functions
        if node.end_lineno - node.lineno >= MAX_FUNCTION_LINES
    ]
    assert not long


def test_a_pxd_is_cimported_elsewhere() -> None:
    compiled = {path: path.read_text() for path in SOURCES if path.suffix in (".pyx", ".pxd")}

    def is_used(path: Path) -> bool:
        package, _, module = name(path.with_suffix("")).replace("/", ".").rpartition(".")
        cimport = re.compile(rf"from {re.escape(package)}(\.{module} cimport | cimport .*\b{module}\b)")
        return any(cimport.search(text) for each, text in compiled.items()
                   if each.with_suffix("") != path.with_suffix(""))

    assert not [name(path) for path in compiled if path.suffix == ".pxd" and not is_used(path)]


def test_compiled_code_indexes_from_the_end_by_pointers_alone() -> None:
    """With `wraparound=False`, `x[-1]` of an object is undefined: for an array of numpy it was an IndexError on Python
    3.13 and the last element on 3.11."""
    pointers = {"at[-1]", "quote[-1]"}
    compiled = "\n".join(path.read_text() for path in SOURCES if path.suffix == ".pyx")
    assert set(re.findall(r"\w+\[-\d+\]", compiled)) <= pointers
