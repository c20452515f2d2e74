"""Rounds of bulk loads and backfills with random faults, in parts that together cover every end."""

from __future__ import annotations

import random

from tests.support.drivers.bulk_chaos import (
    BACKFILL_STAGES,
    DRIVER_FAULTS,
    EXECUTOR_FAULTS,
    LOAD_STAGES,
    WORKER_FAULTS,
    marks_of,
)
from tests.support.worlds.bulk_world import BACKFILL_TURNS, LOAD_TURNS, BulkWorld

PARTS, ROUNDS = 7, 4
ENDS_EARLY = ("before the job", "killed by a task", "slept, and its files are gone")    # some tasks never start


def run_rounds(world: BulkWorld, what: str, part: int, *, with_executors: bool = False) -> None:
    """Runs part `part` of PARTS of the rounds of loads or backfills; all parts together cover every end."""
    turns = LOAD_TURNS if what == "load" else BACKFILL_TURNS
    for number in range(part * ROUNDS, (part + 1) * ROUNDS):
        turn = turns[number % len(turns)]
        faults = plan_of_round(world.rng, what, turn, with_executors=with_executors)
        print(what, number, turn, faults, flush=True)
        (world.load_round if what == "load" else world.backfill_round)(turn, faults)
        if turn not in ENDS_EARLY:
            killers = {task for task, fault in faults.items() if fault in EXECUTOR_FAULTS}
            assert killers <= marks_of(world.url), "no executor was killed"


def plan_of_round(rng: random.Random, what: str, turn: str, *, with_executors: bool = False) -> dict[str, str]:
    """Faults of the tasks in a round whose driver ends by `turn`."""
    stages = LOAD_STAGES if what == "load" else BACKFILL_STAGES
    tasks = [f"{stage} {index}" for stage in stages for index in range(3)]
    certain = [task for task in tasks if not task.endswith("2")]      # tasks of every job
    faults = {task: rng.choice(WORKER_FAULTS) for task in tasks if rng.random() < .25}
    if with_executors:
        faults[rng.choice(certain)] = rng.choice(EXECUTOR_FAULTS)
    if turn == "killed by a task":
        faults[rng.choice(certain)] = rng.choice(DRIVER_FAULTS)
    return faults
