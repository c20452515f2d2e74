"""Times plus constant intervals, and date_bin by constants: what the kernels of columns compute for the same values."""

import numpy as np
import pyarrow as pa
import pytest

from relational.errors import EvaluationError
from relational.expr.eval_context import EvalContext
from relational.expr.kernels.temporal import END_OF_MOMENTS, FIRST_MOMENT, bin_moments, shift
from relational.types import DataType
from tests.support.drivers.seeds import seeds

DAY = 86_400_000_000
LENGTHS = [(0, 0, 0), (0, 0, 10_000_000_000), (0, 0, -1), (0, 3, 999), (0, -40, 1_000), (0, 2**31 - 1, 0), (14, 0, 0),
           (0, 3_000_000, 0),            (0, -(2**31), -(2**62)), (-1, 31, 5_000)]


def moments(rng, rows):
    found = rng.integers(FIRST_MOMENT, END_OF_MOMENTS, rows)
    near = rng.integers(-5 * DAY, 5 * DAY, rows)
    ends = np.where(rng.random(rows) < 0.5, FIRST_MOMENT, END_OF_MOMENTS) + near
    found = np.where(rng.random(rows) < 0.5, found, ends)
    found = np.clip(np.where(rng.random(rows) < 0.3, near, found), FIRST_MOMENT, END_OF_MOMENTS - 1)
    array = pa.array(found, mask=rng.random(rows) < 0.2).cast(pa.timestamp("us"))
    return array.slice(3)


def evaluated(rows, run):
    """The values, and which rows have none although an argument is NULL in none of them."""
    lost = []

    class Context(EvalContext):
        def fail(self, rows, reason):
            lost.append((rows.copy(), reason))

    found = run(Context((), rows, strict=False))
    found.validate(full=True)
    return found.to_pylist(), [(np.flatnonzero(rows).tolist(), reason) for rows, reason in lost if rows.any()]


@pytest.mark.parametrize("parts", LENGTHS, ids=str)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("seed", seeds(2, 20))
def test_a_constant_interval_moves_times_as_a_column_of_it(parts, sign, seed):
    moment = moments(np.random.default_rng(seed), 500)
    interval = pa.scalar(pa.MonthDayNano(parts), pa.month_day_nano_interval())
    column = pa.repeat(interval, len(moment))
    by_constant, by_column = (
        evaluated(len(moment), lambda context, by=by: shift(context, moment, by, sign, DataType.TIMESTAMP))
        for by in (interval, column))
    assert by_constant == by_column


@pytest.mark.parametrize("parts", LENGTHS, ids=str)
@pytest.mark.parametrize("seed", seeds(2, 20))
def test_bins_of_a_constant_stride_are_those_of_a_column(parts, seed):
    rng = np.random.default_rng(seed)
    moment = moments(rng, 500)
    stride = pa.scalar(pa.MonthDayNano(parts), pa.month_day_nano_interval())
    origin = pa.scalar(int(rng.integers(-DAY, DAY)), pa.timestamp("us"))
    columns = [pa.repeat(stride, len(moment)), moment, pa.repeat(origin, len(moment))]
    by_constant, by_column = (
        evaluated(len(moment), lambda context, args=args: bin_moments(context, args, DataType.TIMESTAMP))
        for args in ([stride, moment, origin], columns))
    assert by_constant == by_column


def test_a_time_that_leaves_the_years_1_to_9999_is_an_error():
    last = pa.array([END_OF_MOMENTS - 1], pa.timestamp("us"))
    second = pa.scalar(pa.MonthDayNano((0, 0, 1_000_000_000)), pa.month_day_nano_interval())
    with pytest.raises(EvaluationError, match="out of range"):
        shift(EvalContext((), 1, strict=True), last, second, 1, DataType.TIMESTAMP)
