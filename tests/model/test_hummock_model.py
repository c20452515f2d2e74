"""Random programs: a Hummock store answers as MemoryStateStore does, step by step, whatever its sizes.

A failing program names its seed and the number of its failing call:
`HUMMOCK_MODEL_SEED=<seed> pytest tests/model/test_hummock_model.py -k one` runs it again.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.model.hummock_world import STEPS, World

PROGRAMS = 60
SLOW_PROGRAMS = 2_000
PROGRAMS_PER_TEST = 10
OPERATIONS = 100


def run_program(seed: int) -> World:
    rng = random.Random(seed)
    world = World(rng)
    done: list[str] = []
    try:
        for step in rng.choices(list(STEPS), list(STEPS.values()), k=OPERATIONS):
            done.append(step.__name__)
            step(world)
        world.read_all()
        return world
    except BaseException as error:
        error.add_note(f"HUMMOCK_MODEL_SEED={seed}, call {len(done)}: {' '.join(done)}")
        error.add_note(f"{world.options}, {world.shape}")
        raise
    finally:
        world.close()


@pytest.mark.parametrize("first", range(0, PROGRAMS, PROGRAMS_PER_TEST))
def test_random_programs(first):
    for seed in range(first, first + PROGRAMS_PER_TEST):
        run_program(seed)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("first", range(PROGRAMS, SLOW_PROGRAMS, 97))
def test_many_random_programs(first):
    for seed in range(first, min(first + 97, SLOW_PROGRAMS)):
        run_program(seed)


@pytest.mark.skipif("HUMMOCK_MODEL_SEED" not in os.environ, reason="names the seed of one program to run")
def test_one_program():
    run_program(int(os.environ["HUMMOCK_MODEL_SEED"]))
