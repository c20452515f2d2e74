"""The rule by which an engine is chosen: cases, and that a store does not go back and forth."""

import pytest

import stream
from stream.engine_choice import PROCESS, SPARK, EngineFigures, choose_engine

GB = 1 << 30
CASES = [
    # engine, busy cores of 8, state in multiples of memory -> choice
    (PROCESS, 0.1, 0.0, PROCESS),
    (PROCESS, 5.5, 0.1, PROCESS),
    (PROCESS, 5.7, 0.1, SPARK),
    (PROCESS, 0.1, 3.9, PROCESS),
    (PROCESS, 0.1, 4.1, SPARK),
    (SPARK, 5.0, 0.1, SPARK),
    (SPARK, 2.0, 0.1, PROCESS),
    (SPARK, 2.0, 2.1, SPARK),
    (SPARK, 2.5, 0.1, SPARK),
]


@pytest.mark.parametrize(("engine", "busy", "state", "choice"), CASES)
def test_the_rule(engine, busy, state, choice):
    found = choose_engine(EngineFigures(engine, busy, 8, int(state * 16 * GB), 16 * GB))
    assert (found.engine == choice and f"{busy:.1f} of 8 cores" in found.reason) or "memory" in found.reason


def test_a_choice_is_kept_where_it_was_made():
    for busy in range(90):
        for state in range(60):
            for engine in (PROCESS, SPARK):
                figures = EngineFigures(engine, busy / 10, 8, state * GB, 10 * GB)
                chosen = choose_engine(figures).engine
                again = choose_engine(EngineFigures(chosen, busy / 10, 8, state * GB, 10 * GB)).engine
                assert again == chosen


def test_an_idle_session_stays_where_it_is():
    with stream.connect("memory://") as db:
        db.sql("CREATE TABLE t (k BIGINT PRIMARY KEY)")
        assert db.engine_choice(seconds=0.01).engine == PROCESS and not db.epochs().num_rows
