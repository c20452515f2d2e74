"""Randomness that can be repeated; tables in each row format."""

import os
import random

import pytest

from relational.catalog.objects import RowFormat
from tests.relational import row_formats


@pytest.fixture
def rng() -> random.Random:
    """Seeded anew each run; the seed is printed, and HUMMOCK_TEST_SEED repeats one."""
    seed = int(os.environ.get("HUMMOCK_TEST_SEED", random.SystemRandom().randrange(2**32)))
    print(f"HUMMOCK_TEST_SEED={seed}")
    return random.Random(seed)


@pytest.fixture(params=list(RowFormat), ids=str)
def row_format(request):
    """What `formatted` gives to the tables of this test."""
    row_formats.choose(request.param)
    yield request.param
    row_formats.choose(RowFormat.ROW)
