"""Random programs: a Hummock store returns what MemoryStateStore returns, step by step, with any sizes.

A failing program prints its seed, its length and the number of its failing call:
`HUMMOCK_MODEL_SEED=<seed>,<operations> pytest tests/model/test_hummock_model.py -k one` runs it again. The timing of
flush and reader threads is not seeded, so a failure may take several runs to reproduce.
"""

from __future__ import annotations

import os
import random
from contextlib import ExitStack

import pytest

from tests.model.hummock_world import STEPS, World
from tests.support.drivers.quick_files import quick_directory
from tests.support.drivers.seeds import amount

PROGRAMS, OPERATIONS = amount(100, 250), (16, 60, 16, 16, 16)
SLOW_PROGRAMS, SLOW_OPERATIONS = 2_000, 100
PARTS, SLOW_PARTS = 10, 20
ON_DISK = 5             # one program in so many stores its objects as files
SEED = os.environ.get("HUMMOCK_MODEL_SEED")


def run_program(seed: int, operations: int, kind: type[World] = World, on_disk: bool = False) -> None:
    rng = random.Random(seed)
    done: list[str] = []
    with ExitStack() as opened:
        directory = opened.enter_context(quick_directory()) if on_disk or seed % ON_DISK == 0 else None
        world = kind(rng, directory)
        try:
            for step in rng.choices(list(STEPS), list(STEPS.values()), k=operations):
                done.append(step.__name__)
                step(world)
            world.read_all()
        except BaseException as error:
            error.add_note(f"HUMMOCK_MODEL_SEED={seed},{operations} call {len(done)}: {' '.join(done)}")
            error.add_note(f"{world.options}, {world.shape}")
            raise
        finally:
            world.close()


@pytest.mark.parametrize("part", range(PARTS))
def test_random_programs(part):
    for seed in range(part, PROGRAMS, PARTS):
        run_program(seed, OPERATIONS[seed // PARTS % len(OPERATIONS)])


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("part", range(SLOW_PARTS))
def test_many_long_random_programs(part):
    for seed in range(1_000 + part, 1_000 + SLOW_PROGRAMS, SLOW_PARTS):
        run_program(seed, SLOW_OPERATIONS)


@pytest.mark.skipif(SEED is None, reason="names one program to run")
def test_one_program():
    seed, operations = map(int, str(SEED).split(","))
    run_program(seed, operations)
