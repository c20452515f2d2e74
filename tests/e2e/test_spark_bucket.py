"""Spark load, backfill, reads and compaction on a store in a bucket, with executors in separate processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hummock.errors import SparkMissing
from hummock.spark.session import require_spark
from tests.support.drivers.spark_bucket import MASTER

pytestmark = [pytest.mark.spark, pytest.mark.s3, pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parents[2]


def test_load_backfill_reads_and_compaction_on_a_bucket(s3_url: str) -> None:
    try:
        require_spark(MASTER)
    except SparkMissing as error:
        pytest.skip(str(error))
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.drivers.spark_bucket", s3_url], capture_output=True, text=True, cwd=ROOT,
        timeout=400, env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1",
                          "PYSPARK_PYTHON": sys.executable})
    assert "all is well" in done.stdout, done.stdout[-2_000:] + done.stderr[:6_000]
