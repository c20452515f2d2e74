"""Compaction on a Spark cluster of separate processes: the command, its executor check, and the rows afterwards."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hummock
import hummock.__main__
from hummock.base.key import user_key
from hummock.errors import SparkMissing
from hummock.spark.session import C1_ONLY, SERIAL_GC, require_spark

pytestmark = pytest.mark.spark
ROOT = Path(__file__).resolve().parents[3]
MASTER = "local-cluster[2,1,1024]"


SUBMIT = Path(sys.executable).parent / "spark-submit"


@pytest.fixture
def filled(tmp_path):
    """The URL of a store whose table 1 is due for compaction, its last epoch, and its rows."""
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
    return url, epoch, sorted(rows.items())


def run_compaction(filled, folder, *command):
    """Runs a command that compacts a store on Spark, checks that the rows are unchanged, and returns its output."""
    try:
        require_spark(MASTER)
    except SparkMissing as error:
        pytest.skip(str(error))
    url, epoch, rows = filled
    environment = {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable,
                   "SPARK_SUBMIT_OPTS": f"{C1_ONLY} {SERIAL_GC}"}      # Spark's own daemon of workers
    done = subprocess.run([*command, "--large", "0", "--table", "1"], capture_output=True, text=True, cwd=folder,
                          timeout=200, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr[-2_000:]
    assert re.search(r"^[1-9]\d* tasks done, 0 failed", done.stdout, re.MULTILINE), done.stdout
    with hummock.open(url) as store:
        assert list(store.scan(hummock.KeyRange.table(1), epoch)) == rows
    return done.stdout


def test_a_store_is_compacted_by_two_executors_as_the_command_says(filled, tmp_path):
    output = run_compaction(filled, tmp_path, sys.executable, "-m", "stream", "compact", "--spark", MASTER,
                            "--store", filled[0], "--meta", f"sqlite://{tmp_path}/store/meta.sqlite", "--once")
    assert re.search(r"on local-cluster\[2,1,1024\]: [12] executors answered", output), output


@pytest.mark.skipif(not SUBMIT.exists(), reason="pyspark's spark-submit is not beside this Python")
@pytest.mark.slow
def test_a_store_is_compacted_with_the_settings_of_spark_submit(filled, tmp_path):
    output = run_compaction(filled, tmp_path, str(SUBMIT), "--master", "local[2]", hummock.__main__.__file__, "compact",
                            filled[0], "--spark", "submitted")
    assert "on submitted: 1 executors answered, 2 slots" in output


@pytest.mark.slow
def test_specs_run_where_those_before_them_ran(tmp_path):
    """Two executors of two tasks: each spec comes back to the executor, and to the worker, that it names."""
    script = tmp_path / "near.py"
    script.write_text(NEAR)
    environment = {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, timeout=200,
                          env={**os.environ, **environment})
    assert "near: True" in done.stdout, done.stdout + done.stderr[-2_000:]


NEAR = f"""
from hummock.spark import run_specs, spark_session

spark = spark_session({MASTER!r}, settings={{"spark.ui.enabled": "false"}}, carries_rows=False)

def found(work, near=()):
    return [each.decode() for each in run_specs(spark, [b""] * 2, "tests.support.drivers.spark_work:" + work,
                                                name=work, pool="own", near=near)]

while len(set(executors := found("slow_executor"))) < 2:
    pass                                # one of them is not there yet
workers = found("process", executors)
asked = [(executors[::turn], workers[::turn]) for turn in (1, -1, -1, 1, -1)]
print("near:", all(found("executor", near) == near and found("process", near) == pids for near, pids in asked))
"""
