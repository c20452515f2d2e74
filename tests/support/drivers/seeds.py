"""Reproducible randomness: one seed for a whole run of the tests.

HUMMOCK_TEST_SEED=<number>  repeats a run; without it each run draws one, which every failed test shows
HUMMOCK_TEST_VARY=1         combines constant seeds of tests with the seed of the run (`.ci/soak`)

A test uses `run_seed()` to vary in each run, and a constant otherwise.
"""

from __future__ import annotations

import os
import random
import zlib
from typing import Any

import numpy as np

SEED, VARY = "HUMMOCK_TEST_SEED", "HUMMOCK_TEST_VARY"
default_rng = np.random.default_rng


def run_seed() -> int:
    """The seed of this run, the same in all of its processes."""
    return int(os.environ.setdefault(SEED, str(random.SystemRandom().randrange(1 << 32))))


def repeated() -> str:
    """The environment variables that repeat this run, to put before its command."""
    return f"{SEED}={run_seed()}" + (f" {VARY}=1" if is_varied() else "")


def is_varied() -> bool:
    return os.environ.get(VARY) == "1"


class VariedRandom(random.Random):
    """`random.Random` with a seed combined with that of the run."""

    def __init__(self, seed: Any = None):
        super().__init__(seed if seed is None or seed == run_seed() else f"{run_seed()} {seed!r}")


def amount(few: int, many: int) -> int:
    """How much a test does: `few` by default, `many` where `.ci/soak` varies the seeds."""
    return many if is_varied() else few


def seeds(few: int, many: int) -> range:
    """The seeds of a random test, as many as `amount` says."""
    return range(amount(few, many))


def varied_rng(seed: Any = None) -> np.random.Generator:
    """`numpy.random.default_rng` with a seed combined with that of the run."""
    return default_rng(seed if seed is None or seed == run_seed() else [run_seed(), zlib.crc32(repr(seed).encode())])


def vary() -> None:
    """From here on, varies the numbers of each constant seed by run, if the environment requests it."""
    if is_varied():
        random.Random = VariedRandom    # type: ignore[misc]
        np.random.default_rng = varied_rng  # type: ignore[assignment]
