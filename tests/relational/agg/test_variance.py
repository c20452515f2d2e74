"""Variances where sums of squares lose their digits: large values close to one another, and the ends of 64 bits."""

import math
import random
from fractions import Fraction

import pytest

from relational.agg import AggGroups, AggSpec
from relational.chunk.stream_chunk import Op, StreamChunk
from relational.types import DataType, Schema
from tests.support.drivers.seeds import run_seed

NEAR = 1 << 62


def variance(data_type, changes, kind="var_pop"):
    """Of values of one group, after these changes, which are flushed and stored one by one."""
    schema = Schema.of(v=str(data_type))
    spec, stored = AggSpec(kind, 0, data_type, DataType.DOUBLE), None
    for change in changes:
        groups = AggGroups([], [], [AggSpec("count", None, None, DataType.BIGINT), spec])
        ids = groups.open_global()
        if stored is not None:
            groups.load(ids, stored)
        chunk = StreamChunk.from_rows(schema, [change])
        groups.apply(chunk, groups.locate(chunk).ids)
        (flushed,) = groups.flush()
        stored = flushed.state or stored
    ((_, result),) = groups.results().rows()
    return result


@pytest.mark.parametrize("base", [0, NEAR, -NEAR, (1 << 63) - 10, -(1 << 63)])
def test_whole_numbers_are_exact_wherever_they_lie(base):
    values = [base + offset for offset in (0, 1, 3, 7, 9)]
    exact = sum((Fraction(value) - Fraction(sum(values), 5)) ** 2 for value in values) / 5
    assert variance(DataType.BIGINT, [(Op.INSERT, (value,)) for value in values]) == float(exact)
    changes = [(Op.INSERT, (value,)) for value in (*values, -(1 << 63), (1 << 63) - 1)]
    changes += [(Op.DELETE, (value,)) for value in (-(1 << 63), (1 << 63) - 1)]
    assert variance(DataType.BIGINT, changes) == float(exact)


@pytest.mark.parametrize("base", [0.0, 1e6, 1e12, -1e15])
def test_doubles_keep_twice_their_digits(base):
    """The squared deviations are exact within 1e-30 of the squares that came."""
    rng = random.Random(run_seed())
    values = [base + rng.randrange(64) / 4 for _ in range(50)]
    others = [rng.uniform(-1e12, 1e12) for _ in range(20)]
    mean = sum(map(Fraction, values)) / 50
    exact = float(sum((Fraction(value) - mean) ** 2 for value in values) / 49)
    changes = [(Op.INSERT, (value,)) for value in values]
    error = abs(variance(DataType.DOUBLE, changes, "var_samp") - exact)
    assert error <= 1e-30 * sum(value**2 for value in values) + 1e-14 * exact
    changes += [(Op.INSERT, (value,)) for value in others] + [(Op.DELETE, (value,)) for value in others]
    error = abs(variance(DataType.DOUBLE, changes, "var_samp") - exact)
    assert error <= 1e-30 * sum(value**2 for value in (*values, *others)) + 1e-14 * exact


def test_equal_values_do_not_vary():
    assert variance(DataType.DOUBLE, [(Op.INSERT, (0.1,))] * 7, "stddev_pop") == pytest.approx(0.0, abs=1e-16)
    assert variance(DataType.BIGINT, [(Op.INSERT, (NEAR + 1,))] * 7, "stddev_pop") == 0.0


def test_nan_and_infinities_make_it_nan_until_they_leave():
    one, two, inf, nan = (1.0,), (2.0,), (math.inf,), (math.nan,)
    assert math.isnan(variance(DataType.DOUBLE, [(Op.INSERT, one), (Op.INSERT, inf)]))
    assert math.isnan(variance(DataType.DOUBLE, [(Op.INSERT, nan)]))
    changes = [(Op.INSERT, one), (Op.INSERT, nan), (Op.INSERT, two), (Op.DELETE, nan)]
    assert variance(DataType.DOUBLE, changes) == 0.25


def test_squares_beyond_a_double_are_nan_until_no_value_is_left():
    changes = [(Op.INSERT, (1e200,)), (Op.INSERT, (1.0,))]
    assert math.isnan(variance(DataType.DOUBLE, changes))
    changes += [(Op.DELETE, (1e200,)), (Op.DELETE, (1.0,)), (Op.INSERT, (3.0,))]
    assert variance(DataType.DOUBLE, changes) == 0.0


def test_a_sample_of_one_has_none():
    assert variance(DataType.INT, [(Op.INSERT, (5,))], "var_samp") is None
    assert variance(DataType.INT, [(Op.INSERT, (5,))], "var_pop") == 0.0
