"""Where memory is refused, what was there stays as it was, and what was made for nothing is freed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.reliability.children import COMPILER, ROOT, can_compile
from tests.reliability.failed_allocations import WORK
from tests.support.drivers.seeds import run_seed
from tests.support.suites.process_memory import has_gnu_malloc

SOURCE = ROOT / "tests/reliability/failed_allocations.c"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The allocator that fails, to be preloaded."""
    if not can_compile() or not has_gnu_malloc():
        pytest.skip("needs Linux, a C compiler and the GNU allocator")
    path = tmp_path_factory.mktemp("library") / "failed_allocations.so"
    subprocess.run([COMPILER, "-O1", "-shared", "-fPIC", "-o", str(path), str(SOURCE), "-ldl"], check=True)
    return path


@pytest.mark.parametrize("work", WORK)
def test_each_allocation_may_fail(work, library):
    ended = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.reliability.failed_allocations", work, str(run_seed())],
        cwd=ROOT, env={**os.environ, "LD_PRELOAD": str(library)}, text=True, capture_output=True)
    assert ended.returncode == 0, ended.stderr[-4_000:]
    assert int(ended.stdout) > 0, "no allocation has failed"
