"""Randomness that can be repeated; tables in each row format."""

import random

import pytest

from relational.catalog.objects import RowFormat
from tests.relational import row_formats
from tests.support.drivers.seeds import run_seed


@pytest.fixture
def rng() -> random.Random:
    """Seeded anew each run."""
    return random.Random(run_seed())


@pytest.fixture(params=list(RowFormat), ids=str)
def row_format(request):
    """What `formatted` gives to the tables of this test."""
    row_formats.choose(request.param)
    yield request.param
    row_formats.choose(RowFormat.ROW)
