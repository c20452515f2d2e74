"""Random graphs under deaths, recoveries, rescales, failing jobs and hanging sinks: see `graph_rounds`. A failure
prints its seed and its steps.

    HUMMOCK_GRAPH_SEEDS=300 HUMMOCK_TEST_SEED=1 python -m pytest -m slow tests/simulation/test_graphs.py
"""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest

from tests.simulation.graph_rounds import Graph
from tests.simulation.graph_steps import steps_of
from tests.support.drivers.seeds import amount, run_seed

STEPS = amount(50, 70)
SEEDS, MANY_SEEDS = amount(1, 2), int(os.environ.get("HUMMOCK_GRAPH_SEEDS", "300"))
pytestmark = pytest.mark.timeout(300 + 30 * MANY_SEEDS)


def run(seed: int, tasks_share: float = 0.0) -> Graph:
    graph = Graph(seed, tasks_share=tasks_share)
    try:
        graph.run(STEPS)
    except BaseException:
        print(f"seed {seed}", *graph.log, sep="\n  ")
        raise
    return graph


def test_a_seed_has_the_same_steps_again():
    first, again, other = (steps_of(random.Random(seed), STEPS) for seed in (7, 7, 8))
    assert first == again != other


@pytest.mark.parametrize("number", range(SEEDS))
def test_jobs_equal_their_queries_whatever_happens(number):
    run(run_seed() + number)


@pytest.mark.parametrize("number", range(SEEDS))
def test_processes_whose_actors_are_tasks_leave_the_same(number):
    assert run(run_seed() + number, 0.7).counts["tasks"]


@pytest.mark.slow
@pytest.mark.parametrize("tasks_share", [0.0, 0.7])
def test_many_seeds(tasks_share):
    counts = sum((run(run_seed() + number, tasks_share).counts for number in range(MANY_SEEDS)), Counter())
    print(f"{MANY_SEEDS} graphs:", *(f"{number} {what}" for what, number in sorted(counts.items())), sep="\n  ")
    assert counts["deaths"] > MANY_SEEDS
    wanted = ("views", "sinks", "broken jobs", "resumed", "resumed, skipping", "cancelled", "hangs", "connectors lost",
              "late rows", "tables that closed windows", "splits ended", "expired rows", "keys used again",
              "rows ignored", "earlier epochs", "shorter ttl")
    assert not [what for what in wanted if not counts[what]] or MANY_SEEDS < 100
