"""Queries of Nexmark, and views over a table and over views, kept by Spark, against DuckDB at every fifth epoch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.drivers import nexmark_epochs
from tests.support.drivers.seeds import run_seed

pytestmark = pytest.mark.spark
ROOT = Path(__file__).resolve().parents[2]
LONG = pytest.param(60, marks=[pytest.mark.slow, pytest.mark.timeout(900)])


@pytest.mark.parametrize("epochs", [pytest.param(5, marks=pytest.mark.slow), LONG])
def test_views_kept_by_threads_of_the_driver_equal_duckdb(spark, tmp_path, epochs):
    nexmark_epochs.run(spark, tmp_path, run_seed(), epochs)


@pytest.mark.parametrize("epochs", [pytest.param(10, marks=pytest.mark.slow), LONG])
def test_views_kept_by_two_executors_equal_duckdb(spark, tmp_path, epochs):
    """On a standalone cluster on this machine, of a process for each executor."""
    command = [sys.executable, "-m", nexmark_epochs.__name__, "local-cluster[2,1,1024]", str(tmp_path), str(run_seed()),
               str(epochs)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=280 + 10 * epochs,
                          env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"})
    assert "all views are equal" in done.stdout, done.stdout + done.stderr[-3_000:]
