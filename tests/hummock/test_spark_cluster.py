"""A cluster of executors in processes of their own: the command, its check of executors, and all files made there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hummock
from hummock.errors import SparkMissing
from hummock.key import user_key
from hummock.spark.session import require_spark

pytestmark = pytest.mark.spark
ROOT = Path(__file__).resolve().parents[2]
MASTER = "local-cluster[2,1,1024]"


def test_a_store_is_compacted_by_two_executors_as_the_command_says(tmp_path):
    try:
        require_spark(MASTER)
    except SparkMissing as error:
        pytest.skip(str(error))
    url, rows = f"file://{tmp_path}/store", {}
    with hummock.open(url, role="writer", compaction=False) as store:
        epochs = hummock.EpochGenerator(last=store.committed_epoch)
        for number in range(4):
            batch = {user_key(1, vnode, b"%05d" % key): b"%d" % number * 50
                     for vnode in range(2) for key in range(number, 4_000, 3)}
            epoch = epochs.next()
            store.ingest_batch(hummock.WriteBatch(sorted(batch.items())), epoch)
            store.commit(epoch)
            rows.update(batch)
    done = subprocess.run(
        [sys.executable, "-m", "hummock", "compact", url, "--spark", MASTER, "--large", "0", "--table", "1"],
        capture_output=True, text=True, cwd=tmp_path, timeout=200,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"})
    assert done.returncode == 0, done.stderr[-2_000:]
    assert re.search(r"on local-cluster\[2,1,1024\]: [12] executors answered", done.stdout), done.stdout
    assert re.search(r"^[1-9]\d* tasks done, 0 failed", done.stdout, re.MULTILINE), done.stdout
    with hummock.open(url) as store:
        assert list(store.scan(hummock.KeyRange.table(1), epoch)) == sorted(rows.items())
