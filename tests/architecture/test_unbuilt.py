"""A source tree without compiled modules says how to build it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.layers import PACKAGES, ROOT


@pytest.mark.parametrize("statement", ["import hummock", "import relational", "from stream import connect"])
def test_an_unbuilt_tree_says_how_to_build_it(statement: str, tmp_path: Path) -> None:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", statement]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.stderr.splitlines()[-1] == (
        f"ImportError: hummock is not built: {tmp_path / 'hummock'} has no compiled modules for Python "
        f"{sys.version_info[0]}.{sys.version_info[1]}. Build them, with a C compiler: pip install -e {tmp_path}")
