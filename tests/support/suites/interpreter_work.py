"""Measures the interpreter's work for a call: objects created, lines of Python run, GIL acquisitions.

The work of the hot path must not grow with the rows of a chunk. Counting calls is not enough: one call can create an
object per row. Not counted is a float, tuple, list or dict that the interpreter's own C code allocates from a free list
and frees at once (`sum(map(float, rows))`). Requires Linux and a C compiler; without them these tests are skipped.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.reliability.children import COMPILER, can_compile

SOURCE = Path(__file__).with_suffix(".c")
PACKAGES = ("hummock", "relational")
PER_ROW = 0.01      # allowed growth per row: blocks, batches and slabs of thousands of rows


@cache
def counter() -> ctypes.PyDLL:
    """The compiled counter, whose calls do not release the GIL."""
    with tempfile.TemporaryDirectory() as directory:
        library = f"{directory}/interpreter_work.so"
        headers = {sysconfig.get_paths()[name] for name in ("include", "platinclude")}
        included = [f"-I{each}" for each in headers]
        subprocess.run([COMPILER, "-O1", "-fno-plt", "-shared", "-fPIC", *included, "-o", library, str(SOURCE)],
                       check=True, capture_output=True)
        found = ctypes.PyDLL(library)
    found.disarm.restype = found.takings.restype = ctypes.c_longlong
    found.watch.argtypes = [ctypes.c_char_p]
    return found


def watched() -> ctypes.PyDLL:
    """The counter, with hooks in each compiled module loaded so far."""
    if not can_compile():
        pytest.skip("objects and GIL acquisitions are counted on Linux, with a C compiler and Python's headers")
    found = counter()
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if name.split(".")[0] in PACKAGES and path is not None and path.endswith(".so"):
            found.watch(path.encode())
    return found


def work_of(work: Callable[[], Any]) -> int:
    """Objects that `work` creates in this thread, plus lines of Python that it runs there."""
    found, lines = watched(), 0

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    found.arm(False)
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
        objects = found.disarm()
    return objects + lines


@contextmanager
def objects_made() -> Iterator[list[int]]:
    """A list with one element, set after the block: the number of objects created in it, on all threads."""
    found = watched()
    counted = [0]
    found.arm(True)
    try:
        yield counted
    finally:
        counted[0] = found.disarm()


def assert_no_work_per_row(few: int, many: int, extra_rows: int, per_row: float = PER_ROW) -> None:
    """Asserts that `many`, the work for `extra_rows` more rows, exceeds `few` by at most `per_row` for each."""
    assert many - few <= per_row * extra_rows, f"{few} objects and lines, {many} with {extra_rows} rows more"


@contextmanager
def gil_takings() -> Iterator[list[int]]:
    """A list with one element, set after the block: GIL acquisitions by compiled modules in it, on all threads."""
    found = watched()
    counted = [0]
    before = found.takings()
    yield counted
    counted[0] = found.takings() - before
