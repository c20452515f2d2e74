"""What is at the top of the tree: nothing that a test or a compiler left there."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {".ci", "bench", "docs", "examples", "hummock", "relational", "stream", "tests"}
FILES = {".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "MANIFEST.in", "README.md", "mkdocs.yml",
         "pyproject.toml", "setup.py"}


def test_every_name_at_the_top_of_the_tree_is_known():
    if not (ROOT / ".git").exists():
        pytest.skip("not in a clone")
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, text=True, check=True).stdout.split("\0")
    assert {name.split("/")[0] for name in listed if name} <= FOLDERS | FILES
