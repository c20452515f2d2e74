"""Random programs: state tables return what a plain dict returns, across commits, restarts and moves of vnodes.

A failing program prints its seed, its length and its steps: `HUMMOCK_TABLE_SEED=<seed>,<steps> pytest
tests/model/test_state_table_model.py -k one` runs it again.
"""

import os
import random

import pytest

from relational.chunk import Op, StreamChunk
from tests.model.table_reads import STEPS, World

PROGRAMS, STEPS_EACH, PARTS = 40, 20, 2
SLOW_PROGRAMS, SLOW_STEPS, SLOW_PARTS = 2_000, 40, 20
SEED = os.environ.get("HUMMOCK_TABLE_SEED")


def run_program(seed: int, steps: int) -> None:
    done: list[str] = []
    world = World(seed)
    try:
        for step in random.Random(seed).choices(list(STEPS), list(STEPS.values()), k=steps):
            done.append(step.__name__)
            step(world)
        for step in (World.read_scan, World.commit, World.read_under, World.read_on):
            done.append(step.__name__)
            step(world)
    except Exception as error:
        error.add_note(f"HUMMOCK_TABLE_SEED={seed},{steps}: {' '.join(done)}; {world!r}")
        raise
    finally:
        world.close()


@pytest.mark.skipif(SEED is None, reason="runs the program of HUMMOCK_TABLE_SEED")
def test_one_program():
    seed, steps = map(int, str(SEED).split(","))
    run_program(seed, steps)


@pytest.mark.parametrize("part", range(PARTS))
def test_programs(part):
    for seed in range(part, PROGRAMS, PARTS):
        run_program(seed, STEPS_EACH)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(SLOW_PARTS))
def test_two_thousand_programs(part):
    for seed in range(part, SLOW_PROGRAMS, SLOW_PARTS):
        run_program(seed + PROGRAMS, SLOW_STEPS)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))])
def test_many_rows(seed):
    """More rows than a merge buffers of a range, in one vnode and in sixteen."""
    rng, world = random.Random(seed), World(seed)
    for _ in range(3):
        fresh = {(rng.randrange(3), "k", rng.randrange(100_000)) for _ in range(3_000)} - world.rows.keys()
        for instance, table in enumerate(world.tables):
            own = [(Op.INSERT, (*pk, "v", None)) for pk in fresh if world.owner_of(pk) == instance]
            table.write_chunk(StreamChunk.from_rows(world.schema, own))
            world.follow(own)
        world.rows.update(dict.fromkeys(fresh, ("v", None)))
        world.read_scan()
        world.commit()
    for instance, table in enumerate(world.tables):
        if world.prefix_of(instance, 0) is None:
            continue
        expected = world.ordered(world.of(instance))
        assert list(table.scan()) == expected
        assert list(table.scan(reverse=True, limit=2_000)) == expected[::-1][:2_000]
    world.close()
