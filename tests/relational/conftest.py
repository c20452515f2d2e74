"""Seeded random generators, and tables in each row format."""

import random

import pytest

from relational.catalog.objects import RowFormat
from tests.relational import row_formats
from tests.support.drivers.seeds import run_seed


@pytest.fixture
def rng() -> random.Random:
    """Seeded with the seed of the run."""
    return random.Random(run_seed())


@pytest.fixture(params=list(RowFormat), ids=str)
def row_format(request):
    """The row format that `formatted` sets in this test."""
    row_formats.choose(request.param)
    yield request.param
    row_formats.choose(RowFormat.ROW)
