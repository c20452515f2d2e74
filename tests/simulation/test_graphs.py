"""Random graphs under deaths, recoveries and rescales: see `graph_rounds`. A failure prints its seed and its steps.

    HUMMOCK_GRAPH_SEEDS=300 HUMMOCK_TEST_SEED=1 python -m pytest -m slow tests/simulation/test_graphs.py
"""

from __future__ import annotations

import os
import random

import pytest

from tests.simulation.graph_rounds import Graph
from tests.support.drivers.seeds import run_seed

STEPS = 60
SEEDS, MANY_SEEDS = 4, int(os.environ.get("HUMMOCK_GRAPH_SEEDS", "300"))


def run(seed: int) -> Graph:
    graph = Graph(random.Random(seed))
    try:
        graph.run(STEPS)
    except BaseException:
        print(f"seed {seed}", *graph.log, sep="\n  ")
        raise
    return graph


@pytest.mark.parametrize("number", range(SEEDS))
def test_views_equal_their_queries_whatever_happens(number):
    run(run_seed() + number)


@pytest.mark.slow
def test_many_seeds():
    graphs = [run(run_seed() + number) for number in range(MANY_SEEDS)]
    views, deaths = sum(each.created for each in graphs), sum(each.deaths for each in graphs)
    print(f"{len(graphs)} graphs, {views} views, {deaths} deaths")
    assert deaths > len(graphs)
