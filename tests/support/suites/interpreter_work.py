"""What a piece of work costs the interpreter: objects made, lines of Python run, takings of the GIL.

The hot path's must not grow with the rows of a chunk. Calls alone do not show it: one call can make an object for each
row. Not seen is a float, tuple, list or dict that the interpreter's own C code takes from a free list and drops at once
(`sum(map(float, rows))`). Linux and a C compiler are needed; without them the tests that count are skipped.
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
PER_ROW = 0.01      # what may grow with rows: blocks, batches and slabs of thousands of them


@cache
def counter() -> ctypes.PyDLL:
    """The compiled counter, which does not give up the GIL while it is called."""
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
    """The counter, with its hooks in each compiled module that is loaded by now."""
    if not can_compile():
        pytest.skip("objects and takings of the GIL are counted on Linux, with a C compiler and Python's headers")
    found = counter()
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if name.split(".")[0] in PACKAGES and path is not None and path.endswith(".so"):
            found.watch(path.encode())
    return found


def work_of(work: Callable[[], Any]) -> int:
    """Objects that `work` makes in this thread, and lines of Python that it runs there."""
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
    """A list that holds, after the block, how many objects were made within it, on whichever thread."""
    found = watched()
    counted = [0]
    found.arm(True)
    try:
        yield counted
    finally:
        counted[0] = found.disarm()


def assert_no_work_per_row(few: int, many: int, extra_rows: int, per_row: float = PER_ROW) -> None:
    """`many` is the work of `extra_rows` rows more than `few` is."""
    assert many - few <= per_row * extra_rows, f"{few} objects and lines, {many} with {extra_rows} rows more"


@contextmanager
def gil_takings() -> Iterator[list[int]]:
    """A list that holds, after the block, how often compiled modules took the GIL within it, on whichever thread."""
    found = watched()
    counted = [0]
    before = found.takings()
    yield counted
    counted[0] = found.takings() - before
