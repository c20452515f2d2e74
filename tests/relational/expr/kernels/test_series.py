"""generate_series and range against Python's range, and against DuckDB where the step has months."""

import random
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import duckdb
import pytest

from relational.errors import EvaluationError
from relational.expr.eval import evaluate_constant
from relational.expr.expression import Call, Literal
from relational.types import DataType
from relational.types.interval import Interval
from tests.support.drivers.seeds import run_seed

FUNCTIONS = ("generate_series", "range")
WHOLE = ("int", "bigint", "numeric(18, 2)", "numeric(38, 4)")


def series(name, data_type, first, last, step):
    """The values of a series of `data_type`; its step is an interval if that is of moments."""
    own = DataType.parse(data_type)
    by = DataType.INTERVAL if isinstance(step, Interval) else own
    args = Literal(first, own), Literal(last, own), Literal(step, by)
    return evaluate_constant(Call(name, args, DataType.list_of(own)))


def expected(name, first, last, step):
    """In whole units of the last digit."""
    return list(range(first, last if name == "range" else last + (1 if step > 0 else -1), step))


def decimal(unscaled, scale):
    return Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale))


@pytest.mark.parametrize("data_type", WHOLE)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_series_of_numbers_is_that_of_python(name, data_type):
    rng = random.Random(run_seed())
    scale = DataType.parse(data_type).scale
    digits = {"int": 9, "bigint": 18, "numeric(18, 2)": 18, "numeric(38, 4)": 37}[data_type]
    for _ in range(60):
        first = rng.randrange(-(10**digits) + 500, 10**digits - 500)
        last = first + rng.choice([0, 0, 1, -1, rng.randrange(-400, 400)])
        step = rng.choice([1, -1, 7, -7, rng.randrange(1, 90), -rng.randrange(1, 90)])
        wanted = expected(name, first, last, step)
        given = [first, last, step]
        if scale is not None:
            given, wanted = ([decimal(each, scale) for each in values] for values in (given, wanted))
        assert series(name, data_type, *given) == wanted


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_ends_of_bigint_do_not_wrap(name):
    least, most = -(1 << 63), (1 << 63) - 1
    assert series(name, "bigint", least, most, most) == [least, -1, most - 1]
    assert series(name, "bigint", most, least, least) == expected(name, most, least, least)
    assert series(name, "bigint", most, most, 1) == ([] if name == "range" else [most])


@pytest.mark.parametrize("step", ["1 month", "-1 month", "36 hours", "1 month 10 days", "-2 months -1 day"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_series_of_moments_is_that_of_duckdb(name, step):
    texts = {"1 month": Interval(1), "-1 month": Interval(-1), "36 hours": Interval(0, 0, 36 * 3_600_000_000),
             "1 month 10 days": Interval(1, 10), "-2 months -1 day": Interval(-2, -1)}
    moments = [datetime(2024, 1, 15), datetime(2024, 7, 15), datetime(2024, 3, 15), datetime(2024, 1, 15)]
    for first, last in pairwise(moments):
        query = f"SELECT {name}(?::TIMESTAMP, ?::TIMESTAMP, INTERVAL '{step}')"
        wanted = duckdb.execute(query, [first, last]).fetchall()[0][0]
        assert series(name, "timestamp", first, last, texts[step]) == wanted


def test_an_open_series_of_moments_ends_before_its_last():
    first = datetime(2024, 1, 31, 12)
    assert series("range", "timestamp", first, first, Interval(1)) == []
    assert series("range", "timestamp", first, first + timedelta(1), Interval(0, 1)) == [first]
    assert series("generate_series", "timestamp", first, first + timedelta(1), Interval(0, 1))[-1].day == 1


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("data_type", "bounds", "step"), [
    ("int", (1, 2), 0), ("numeric(38, 4)", (Decimal(10) ** 30, Decimal(10) ** 31), Decimal(0)),
    ("timestamp", (datetime(2024, 1, 1), datetime(2024, 1, 2)), Interval()),
])  # fmt: skip
def test_a_step_of_nothing_is_an_error(name, data_type, bounds, step):
    with pytest.raises(EvaluationError, match="the step of a series is 0"):
        series(name, data_type, *bounds, step)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_long_series_is_an_error(name):
    with pytest.raises(EvaluationError, match="a series has more than 16777216 rows"):
        series(name, "bigint", 0, 1 << 40, 1)
    with pytest.raises(EvaluationError, match="a series has more than 16777216 rows"):
        series(name, "numeric(38, 4)", Decimal(10) ** 30, Decimal(10) ** 31, Decimal(1))
