"""Speculation runs a slow task again on another host beside the first attempt: exactly one of them counts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900),
              pytest.mark.skipif(sys.platform != "linux", reason="needs several loopback addresses")]
ROOT = Path(__file__).resolve().parents[2]
SEED = 20_262


@pytest.mark.parametrize("what", ["load", "backfill", "compaction"])
def test_speculation_does_tasks_twice(tmp_path, what):
    command = [sys.executable, "-m", "tests.support.drivers.spark_overtaken", what, str(tmp_path), str(SEED)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=800,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    print(done.stdout)
    assert "all is well" in done.stdout, done.stdout[-2_000:] + done.stderr[-4_000:]
