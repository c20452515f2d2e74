"""The documentation: its API reference has every public name, and it builds without a warning."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OTHER_PATHS = {"stream.functions": "relational.expr.fluent", "hummock.open": "hummock.opening.open_storage"}


@pytest.mark.parametrize("package", ["hummock", "relational", "stream"])
def test_the_reference_has_every_public_name(package: str) -> None:
    pages = "\n".join(path.read_text() for path in (ROOT / "docs" / "api").glob("*.md"))
    module = importlib.import_module(package)
    elsewhere = set() if package == "stream" else set(importlib.import_module("stream").__all__)
    names = [f"{package}.{name}" for name in module.__all__ if name not in elsewhere]
    assert not [name for name in names if not re.search(rf"{re.escape(OTHER_PATHS.get(name, name))}\b", pages)]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mkdocs") is None, reason="needs the extra docs")
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    subprocess.run(command, cwd=ROOT, check=True)
    assert "create_materialized_view" in (tmp_path / "site" / "docs" / "api" / "stream" / "index.html").read_text()
