"""AT TIME ZONE of columns with a constant zone, against `zoneinfo` value by value."""

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from relational.chunk import DataChunk
from relational.errors import EvaluationError
from relational.expr.eval import evaluate
from relational.expr.expression import Call, InputRef, Literal
from relational.expr.kernels import calendar
from relational.types import DataType, Schema
from tests.support.drivers.seeds import run_seed

ZONES = ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Africa/Casablanca", "UTC",
         "Pacific/Apia", "America/St_Johns"]


def at_zone(zone, source):
    target = DataType.TIMESTAMP if source is DataType.TIMESTAMPTZ else DataType.TIMESTAMPTZ
    return Call("timezone", (Literal(zone, DataType.VARCHAR), InputRef(0, source)), target)


def moments(rng, first, count):
    """Random ones, and the hours around each change of the clocks of Berlin and New York in 2020."""
    for day in (datetime(2020, 3, 29), datetime(2020, 10, 25), datetime(2020, 3, 8), datetime(2020, 11, 1)):
        yield from (day + timedelta(minutes=15 * step) for step in range(-8, 32))
    for _ in range(2_000):
        seconds = rng.randrange(count * 365 * 86_400)
        yield datetime(first, 1, 1) + timedelta(seconds=seconds, microseconds=rng.randrange(9))


@pytest.mark.parametrize("years", [(1890, 300), (1971, 64)], ids=["all", "columnar"])
@pytest.mark.parametrize("zone", ZONES)
def test_a_column_agrees_with_its_values(zone, years):
    every = list(moments(random.Random(f"{run_seed()} {zone}"), *years))
    plain = DataChunk.from_rows(Schema.of(at="timestamp"), [(None,), *((each,) for each in every)])
    found = evaluate(at_zone(zone, DataType.TIMESTAMP), plain, strict=True).to_pylist()
    assert found == [None, *(calendar.to_utc(zone, each) for each in every)]
    utc = [each.replace(tzinfo=UTC) for each in every]
    aware = DataChunk.from_rows(Schema.of(at="timestamptz"), [(None,), *((each,) for each in utc)])
    found = evaluate(at_zone(zone, DataType.TIMESTAMPTZ), aware, strict=True).to_pylist()
    assert found == [None, *(calendar.from_utc(zone, each) for each in utc)]


@pytest.mark.parametrize(("moment", "zone"), [(datetime.min, "Asia/Tokyo"), (datetime.max, "America/New_York")])
def test_a_moment_beyond_the_years_fails(moment, zone):
    chunk = DataChunk.from_rows(Schema.of(at="timestamp"), [(moment,)])
    with pytest.raises(EvaluationError, match="out of range"):
        evaluate(at_zone(zone, DataType.TIMESTAMP), chunk, strict=True)
    assert pa.types.is_timestamp(evaluate(at_zone(zone, DataType.TIMESTAMP), chunk).array.type)
