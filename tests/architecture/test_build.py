"""The debug switch of the build reaches the generated code; a wheel has no more than what runs."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.layers import PACKAGES, ROOT


def test_a_debug_build_takes_no_code_over_that_was_generated_without_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    builds = []
    for switch in ("0", "1"):
        monkeypatch.setenv("HUMMOCK_CYTHON_DEBUG", switch)
        builds.append(runpy.run_path(str(ROOT / "setup.py")))
    plain, debug = builds
    assert not plain["DIRECTIVES"]["boundscheck"] and debug["DIRECTIVES"]["boundscheck"]
    assert plain["GENERATED"] != debug["GENERATED"]


def test_a_wheel_has_modules_documents_and_types_but_no_sources_of_extensions(tmp_path: Path) -> None:
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in tmp_path.iterdir()} == set(PACKAGES)
    assert {path.suffix for path in files} == {".py", ".md", ".typed"}
    assert all((tmp_path / package / "py.typed").exists() for package in PACKAGES)
    modules = {path.relative_to(tmp_path) for path in files if path.suffix == ".py"}
    assert modules == {path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
