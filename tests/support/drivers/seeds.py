"""Randomness that can be repeated: one seed for a whole run of the tests.

HUMMOCK_TEST_SEED=<number>  repeats a run; without it each run draws one, which every failed test shows
HUMMOCK_TEST_VARY=1         a generator that a test seeds by a constant takes the seed of the run as well (`.ci/soak`)

A test takes `run_seed()` where it is to see something new in each run, and a constant where it is not.
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
    """What repeats this run, to be written before its command."""
    return f"{SEED}={run_seed()}" + (f" {VARY}=1" if is_varied() else "")


def is_varied() -> bool:
    return os.environ.get(VARY) == "1"


class VariedRandom(random.Random):
    """`random.Random`, whose seed is joined by that of the run."""

    def __init__(self, seed: Any = None):
        super().__init__(seed if seed is None or seed == run_seed() else f"{run_seed()} {seed!r}")


def varied_rng(seed: Any = None) -> np.random.Generator:
    """`numpy.random.default_rng`, as `VariedRandom`."""
    return default_rng(seed if seed is None or seed == run_seed() else [run_seed(), zlib.crc32(repr(seed).encode())])


def vary() -> None:
    """From here on seeds mean other numbers in each run, where the environment asks for it."""
    if is_varied():
        random.Random = VariedRandom    # type: ignore[misc]
        np.random.default_rng = varied_rng  # type: ignore[assignment]
