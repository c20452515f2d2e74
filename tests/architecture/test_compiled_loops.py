"""No loop of a compiled module makes a Python call.

Cython annotates each source line with the Python C-API calls that it makes (`cython -a`, the yellow lines).
Every line of every `for` and `while` body of every `.pyx` must be white, inside a `with gil` block too. Exempt is what
leaves the loop: a line that raises, and a `with gil` block that only raises. Any other yellow line needs an entry in
object_lines.txt, under its function, with how often it runs; no function is exempt as a whole.
"""

from __future__ import annotations

import contextlib
import os
import re
import runpy
import sys
from pathlib import Path

import pytest
from Cython.Build import cythonize
from Cython.Build.Dependencies import create_dependency_tree

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(path for package in ("hummock", "relational") for path in (ROOT / package).rglob("*.pyx"))
EXEMPTIONS_FILE = Path(__file__).with_name("object_lines.txt")
LINE = re.compile(r'<pre class="cython line score-(\d+)"[^>]*>[^<]*<span class="">(\d+)</span>')
FUNCTION = re.compile(r"^(\s*)(?:async\s+)?(?:def|cp?def)\s[^=]*?(\w+)\s*\(")
LOOP = re.compile(r"^(\s*)(?:for|while)\b.*:\s*(?:#.*)?$")
RAISES = re.compile(r"^\s*raise\b")
WITH_GIL = re.compile(r"^\s*with gil\s*:")
BUILT = ROOT / "build/cython"       # annotated pages of a build without bounds checks


def code(line: str) -> str:
    """The line without its comment."""
    return line.split("  #")[0].strip()


def exemptions() -> dict[str, set[str]]:
    """`module.function` -> its lines that may touch Python objects in a loop; the file gives the reason for each."""
    found: dict[str, set[str]] = {}
    name = ""
    for line in EXEMPTIONS_FILE.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith(" "):
            found[name].add(code(line))
        else:
            name, _ = line.split(maxsplit=1)
            found[name] = set()
    return found


def annotated(folder: Path) -> dict[Path, Path]:
    """The annotated page of each module: that of the build if it is newer than all the module's dependencies in this
    project, else one made in `folder`.
    """
    tree = create_dependency_tree(quiet=True)
    pages = {}
    with contextlib.chdir(ROOT):
        for module in MODULES:
            source = module.relative_to(ROOT)
            page = (BUILT / source).with_suffix(".html")
            ours = [Path(name) for name in tree.all_dependencies(str(source)) if Path(name).exists()]
            changed = max(path.stat().st_mtime for path in ours if not path.is_relative_to(sys.prefix))
            if page.exists() and page.stat().st_mtime > changed:
                pages[module] = page
        missing = [str(module.relative_to(ROOT)) for module in MODULES if module not in pages]
        if missing:
            cythonize(missing, compiler_directives=release_directives(), quiet=True, annotate=True, force=True,
                      nthreads=os.cpu_count() or 1, build_dir=str(folder))
    return {module: pages.get(module, (folder / module.relative_to(ROOT)).with_suffix(".html")) for module in MODULES}


def release_directives() -> dict[str, bool | int]:
    """The directives of setup.py without debug checks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("HUMMOCK_CYTHON_DEBUG", raising=False)
        return runpy.run_path(str(ROOT / "setup.py"))["DIRECTIVES"]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Path]:
    return annotated(tmp_path_factory.mktemp("annotations"))


def scores(page: Path) -> dict[int, int]:
    """The annotation score of each line that has one."""
    return {int(line): int(score) for score, line in LINE.findall(page.read_text())}


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def block_of(lines: list[str], number: int) -> list[str]:
    """The lines of the block that line `number` (from 1) opens."""
    opened, block = indent(lines[number - 1]), []
    for line in lines[number:]:
        if line.strip() and indent(line) <= opened:
            break
        if line.strip() and not line.lstrip().startswith("#"):
            block.append(line)
    return block


def only_raises(lines: list[str], number: int) -> bool:
    """Whether the `with gil` block that line `number` opens is a `raise` and nothing else."""
    block = block_of(lines, number)
    return bool(block) and RAISES.match(block[0]) is not None and not any(
        indent(line) <= indent(block[0]) for line in block[1:] if line.strip() not in (")", "]", "}"))


def loop_lines(lines: list[str]) -> list[tuple[int, str]]:
    """(line number, function) of each line inside a loop, except lines that leave it by raising."""
    found: list[tuple[int, str]] = []
    function, loops, through = "", [], -1
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        here = indent(line)
        while loops and here <= loops[-1]:
            loops.pop()
        if through >= 0 and here <= through and line.strip() not in (")", "]", "}"):
            through = -1
        if match := FUNCTION.match(line):
            function, loops, through = match[2], [], -1
        if loops and through < 0:
            if RAISES.match(line) or (WITH_GIL.match(line) and only_raises(lines, number)):
                through = here
            else:
                found.append((number, function))
        if LOOP.match(line):
            loops.append(here)
    return found


def yellow_lines(module: str, lines: list[str], score_of: dict[int, int]) -> list[tuple[str, int, str]]:
    """(`module.function`, line number, line) of each line in a loop that makes a Python call."""
    return [(f"{module}.{function}", number, code(lines[number - 1]))
            for number, function in loop_lines(lines) if score_of.get(number, 0) > 0]


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_python_call_in_a_loop(module: Path, pages: dict[Path, Path]) -> None:
    score_of, known = scores(pages[module]), exemptions()
    assert score_of, "cython -a scored no line"
    found = yellow_lines(module_of(module), module.read_text().splitlines(), score_of)
    bad = [f"{function}:{number} (score {score_of[number]}): {line}" for function, number, line in found
           if line not in known.get(function, ())]
    assert not bad, "\n".join(bad)
    exempt = {function: lines for function, lines in known.items() if function.rpartition(".")[0] == module_of(module)}
    seen = {(function, line) for function, _, line in found}
    unused = [f"{function}: {line}" for function, lines in exempt.items() for line in lines or ("nothing",)
              if (function, line) not in seen]
    assert not unused, "entries of object_lines.txt that match no line:\n" + "\n".join(unused)


def test_exemptions_name_existing_modules() -> None:
    assert {name.rpartition(".")[0] for name in exemptions()} <= set(map(module_of, MODULES))


HOLDS = ["cdef int f(list items) except -1:", "    for at in range(9):", "        with gil:", "            work(at)"]
FAILS = ["cdef int f() except -1 nogil:", "    while True:", "        if g() < 0:", "            with gil:",
         "                raise Bad(", "                    1", "                )", "        total += h()"]
LATE = [*FAILS[:4], "                work()", "                raise Bad(1)"]


def test_a_yellow_line_is_found_within_a_block_that_takes_the_gil_too() -> None:
    assert loop_lines(["def f(list items):", "    for item in items:", "        total += item"]) == [(3, "f")]
    assert loop_lines(HOLDS) == [(3, "f"), (4, "f")]
    assert loop_lines(FAILS) == [(3, "f"), (8, "f")]
    assert loop_lines(LATE) == [(3, "f"), (4, "f"), (5, "f")]


def test_a_python_call_that_is_planted_in_a_loop_is_found(tmp_path: Path) -> None:
    """Scores by Cython itself, inside a `with gil` block as well."""
    source = tmp_path / "planted.pyx"
    source.write_text("cdef int f(double* values, Py_ssize_t rows, list out) except -1 nogil:\n"
                      "    cdef Py_ssize_t row\n    for row in range(rows):\n        values[row] += 1\n"
                      "        with gil:\n            out.append(values[row])\n    return 0\n")
    with contextlib.chdir(tmp_path):
        cythonize([source.name], compiler_directives=release_directives(), quiet=True, annotate=True, force=True)
    found = yellow_lines("planted", source.read_text().splitlines(), scores(source.with_suffix(".html")))
    assert [number for _, number, _ in found] == [5, 6]
