"""No Python call stands inside a loop of a compiled room.

Cython annotates each source line with the Python C-API calls that it makes (`cython -a`, the yellow lines).
Here every line of every `for` and `while` body of every `.pyx` must be white. Two things are let through: a line
that raises (the loop ends there), with the `with gil` around it, and the functions named in COURTESY, which exist
to turn Python objects into columns or back, or which do a fixed amount of work for each column, block or file.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import pytest
from Cython.Build import cythonize

ROOT = Path(__file__).resolve().parents[2]
ROOMS = sorted(path for package in ("hummock", "relational") for path in (ROOT / package).rglob("*.pyx"))
COURTESY_FILE = Path(__file__).with_name("courtesy.txt")
LINE = re.compile(r'<pre class="cython line score-(\d+)"[^>]*>[^<]*<span class="">(\d+)</span>')
FUNCTION = re.compile(r"^(\s*)(?:async\s+)?(?:def|cp?def)\s[^=]*?(\w+)\s*\(")
LOOP = re.compile(r"^(\s*)(?:for|while)\b.*:\s*(?:#.*)?$")
LETS_THROUGH = re.compile(r"^\s*(?:raise\b|with gil\b)")


def courtesy() -> dict[str, str]:
    """`room.function` -> why it may touch Python objects in a loop."""
    lines = [line for line in COURTESY_FILE.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split(maxsplit=1) for line in lines)


DIRECTIVES = {"boundscheck": False, "wraparound": False, "initializedcheck": False, "cdivision": True}


@pytest.fixture(scope="module")
def annotations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with one annotated page for each room."""
    folder = tmp_path_factory.mktemp("annotations")
    sources = [str(room.relative_to(ROOT)) for room in ROOMS]
    arguments = {"annotate": True, "nthreads": os.cpu_count() or 1, "build_dir": str(folder), "force": True}
    with contextlib.chdir(ROOT):
        cythonize(sources, language_level=3, compiler_directives=DIRECTIVES, quiet=True, **arguments)
    return folder


def scores(room: Path, folder: Path) -> dict[int, int]:
    """The annotation score of each line of `room` that has one."""
    html = (folder / room.relative_to(ROOT)).with_suffix(".html").read_text()
    return {int(line): int(score) for score, line in LINE.findall(html)}


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def loop_lines(lines: list[str]) -> list[tuple[int, str]]:
    """(line number, function) of each line inside a loop, lines that raise left out."""
    found: list[tuple[int, str]] = []
    function, loops, through = "", [], -1
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        here = indent(line)
        while loops and here <= loops[-1]:
            loops.pop()
        if through >= 0 and here <= through:
            through = -1
        if match := FUNCTION.match(line):
            function, loops, through = match[2], [], -1
        if loops and through < 0:
            if LETS_THROUGH.match(line):
                through = here
            else:
                found.append((number, function))
        if LOOP.match(line):
            loops.append(here)
    return found


@pytest.mark.parametrize("room", ROOMS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_python_call_in_a_loop(room: Path, annotations: Path) -> None:
    score_of = scores(room, annotations)
    lines = room.read_text().splitlines()
    assert score_of, "cython -a scored no line"
    excused = courtesy()
    module = ".".join(room.relative_to(ROOT).with_suffix("").parts)
    yellow = [
        f"{module}.{function}:{number} (score {score_of[number]}): {lines[number - 1].strip()}"
        for number, function in loop_lines(lines)
        if score_of.get(number, 0) > 0 and f"{module}.{function}" not in excused
    ]
    assert not yellow, "\n".join(yellow)


def test_a_yellow_line_is_found() -> None:
    lines = [
        "def f(list items):",
        "    total = 0",
        "    for item in items:",
        "        total += item",
        "    return total",
    ]
    assert loop_lines(lines) == [(4, "f")]


def test_courtesies_are_still_there() -> None:
    text = {".".join(room.relative_to(ROOT).with_suffix("").parts): room.read_text() for room in ROOMS}
    gone = [
        name
        for name in courtesy()
        if not re.search(rf"\b{name.rsplit('.', 1)[1]}\(", text.get(name.rsplit(".", 1)[0], ""))
    ]
    assert not gone
