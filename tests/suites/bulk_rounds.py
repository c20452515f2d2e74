"""Rounds of bulk loads and bulk backfills, in parts that end in every way together; what goes wrong is drawn."""

from __future__ import annotations

import random

from tests.suites.bulk_chaos import (
    BACKFILL_STAGES,
    DRIVER_FAULTS,
    EXECUTOR_FAULTS,
    LOAD_STAGES,
    WORKER_FAULTS,
)
from tests.suites.bulk_world import BACKFILL_TURNS, LOAD_TURNS, BulkWorld

PARTS, ROUNDS = 7, 4


def run_rounds(world: BulkWorld, what: str, part: int, *, with_executors: bool = False) -> None:
    """Rounds of loads, or of backfills, that end in one of PARTS equal parts of all ways."""
    turns = LOAD_TURNS if what == "load" else BACKFILL_TURNS
    for number in range(part * ROUNDS, (part + 1) * ROUNDS):
        turn = turns[number % len(turns)]
        faults = plan_of_round(world.rng, what, turn, with_executors=with_executors)
        print(what, number, turn, faults, flush=True)
        (world.load_round if what == "load" else world.backfill_round)(turn, faults)


def plan_of_round(rng: random.Random, what: str, turn: str, *, with_executors: bool = False) -> dict[str, str]:
    """The faults of tasks in a round in which the driver ends by `turn`."""
    stages = LOAD_STAGES if what == "load" else BACKFILL_STAGES
    tasks = [f"{stage} {place}" for stage in stages for place in range(3)]
    faults = {task: rng.choice(WORKER_FAULTS) for task in tasks if rng.random() < .25}
    if with_executors:
        faults[rng.choice(tasks)] = rng.choice(EXECUTOR_FAULTS)
    if turn == "killed by a task":
        faults[rng.choice([task for task in tasks if not task.endswith("2")])] = rng.choice(DRIVER_FAULTS)
    return faults
