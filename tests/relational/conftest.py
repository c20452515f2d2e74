"""Randomness that can be repeated."""

import os
import random

import pytest


@pytest.fixture
def rng() -> random.Random:
    """Seeded anew each run; the seed is printed, and HUMMOCK_TEST_SEED repeats one."""
    seed = int(os.environ.get("HUMMOCK_TEST_SEED", random.SystemRandom().randrange(2**32)))
    print(f"HUMMOCK_TEST_SEED={seed}")
    return random.Random(seed)
