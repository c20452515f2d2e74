"""FrameStates against recomputed frames: any ranges of rows, wide numbers, NaN and infinities, states that go on."""

import math
import random
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from relational.agg import AggSpec
from relational.agg.frames import FrameStates
from relational.agg.groups import kernel_of
from relational.chunk import Column
from relational.errors import EvaluationError
from relational.types import DataType

ROWS = 60
MOST = Decimal(f"{'9' * 36}.99")
VALUES = {
    "bigint": [None, *range(-5, 6), 2**62, -(2**63)],
    "numeric(38, 2)": [None, Decimal("1.25"), Decimal("-0.01"), MOST, MOST.copy_negate()],
    "double precision": [None, 0.5, -2.25, 1e16, 1.0, -1e16],
    "boolean": [None, True, False],
}  # fmt: skip
KINDS = {
    "bigint": ("count", "sum", "avg", "var_pop", "stddev_samp"),
    "numeric(38, 2)": ("count", "sum", "avg"),
    "double precision": ("count", "sum", "avg", "var_samp"),
    "boolean": ("count", "bool_and", "bool_or"),
}
OUTPUTS = {"count": "bigint", "bool_and": "boolean", "bool_or": "boolean"}


def spec_of(kind, data_type, **options):
    source = DataType.parse(data_type)
    if kind in OUTPUTS:
        output = DataType.parse(OUTPUTS[kind])
    elif source.is_float or kind.startswith(("var", "stddev")):
        output = DataType.DOUBLE
    else:
        output = DataType.numeric(38, (source.scale or 0) if kind == "sum" else max(source.scale or 0, 10))
    return AggSpec(kind, 0, source, output, **options)


def states_of(kind, data_type, values, mask=None, *, strict=False, **options):
    column = Column.from_pylist(values, DataType.parse(data_type))
    return FrameStates(kernel_of(spec_of(kind, data_type, **options), strict), len(values), column, mask)


def expected(kind, values, output):
    known = [value for value in values if value is not None]
    if kind == "count":
        return len(known)
    if kind.startswith("bool"):
        return (all(known) if kind == "bool_and" else any(known)) if known else None
    divisor = len(known) - kind.endswith("_samp")
    if not known or not divisor:
        return None
    exact = list(map(Fraction, known))
    if kind in ("sum", "avg"):
        result = sum(exact) / (len(exact) if kind == "avg" else 1)
        if output == DataType.DOUBLE:
            return float(result)
        scaled = math.floor(abs(result) * 10 ** (output.scale or 0) + Fraction(1, 2))
        return None if scaled >= 10**38 else Decimal((result < 0, tuple(map(int, str(scaled))), -(output.scale or 0)))
    spread = float(sum((each - sum(exact) / len(exact)) ** 2 for each in exact) / divisor)
    return math.sqrt(spread) if kind.startswith("stddev") else spread


CASES = [(kind, data_type) for data_type, kinds in KINDS.items() for kind in kinds]


@pytest.mark.parametrize("is_filtered", [False, True])
@pytest.mark.parametrize(("kind", "data_type"), CASES)
def test_any_ranges_of_rows(kind, data_type, is_filtered):
    rng = random.Random(f"{kind} {data_type}")
    small = VALUES[data_type][:7] if kind.startswith(("var", "stddev")) else VALUES[data_type]
    small = [value for value in small if not isinstance(value, float) or not kind.startswith("var") or abs(value) < 9]
    values = [rng.choice(small) for _ in range(ROWS)]
    mask = np.array([rng.randrange(2) for _ in range(ROWS)], np.uint8) if is_filtered else None
    starts = np.array([rng.randrange(ROWS) for _ in range(ROWS)])
    ends = np.array([rng.randrange(start, ROWS + 1) for start in starts])
    begins = np.zeros(ROWS, np.uint8)
    begins[0] = 1
    states = states_of(kind, data_type, values, mask, is_filtered=is_filtered)
    found = states.between(begins, starts, ends).to_pylist()
    states.accumulate(begins)
    running = states.running(np.where(ends > 0, ends, -1)).to_pylist()
    kept = [value if mask is None or mask[row] else None for row, value in enumerate(values)]
    output = spec_of(kind, data_type).output_type
    for row in range(ROWS):
        for result, first in ((found[row], starts[row]), (running[row], 0)):
            wanted = expected(kind, kept[first : ends[row]], output)
            if isinstance(wanted, float):
                assert math.isclose(result, wanted, rel_tol=1e-12, abs_tol=1e-12), (row, result, wanted)
            else:
                assert result == wanted, (row, result, wanted)
    states.release()


@pytest.mark.parametrize(("kind", "data_type"), CASES)
def test_a_known_state_stands_for_the_rows_before_it(kind, data_type):
    rng = random.Random(7)
    values = [rng.choice(VALUES[data_type]) for _ in range(ROWS)]
    begins = np.zeros(ROWS, np.uint8)
    begins[[0, 20]] = 1
    whole = states_of(kind, data_type, values)
    whole.accumulate(begins)
    ends = np.arange(1, ROWS + 1)
    expected, columns = whole.running(ends).to_pylist(), whole.state_columns()
    states = states_of(kind, data_type, values[30:])
    first = np.zeros(ROWS - 30, np.uint8)
    first[0] = 1
    known = [Column(column.array.slice(30, 1)) for column in columns]
    states.accumulate(first, np.zeros(1, np.int32), known)
    assert repr(states.running(ends[: ROWS - 30]).to_pylist()) == repr(expected[30:])


def test_nan_and_infinities_leave_with_their_frame():
    values = [1.0, math.inf, 2.0, math.nan, -math.inf, 3.0, 4.0]
    states = states_of("sum", "double precision", values)
    starts = np.arange(len(values))
    begins = np.array([1, *[0] * 6], np.uint8)
    found = states.between(begins, starts, np.minimum(starts + 2, len(values))).to_pylist()
    assert repr(found) == repr([math.inf, math.inf, math.nan, math.nan, -math.inf, 7.0, 4.0])


def test_a_sum_that_does_not_fit_is_an_error_of_a_query():
    begins, bounds = np.array([1, 0], np.uint8), (np.array([0, 1]), np.array([2, 2]))
    with pytest.raises(EvaluationError, match="out of range for SUM"):
        states_of("sum", "numeric(38, 2)", [MOST, MOST], strict=True).between(begins, *bounds)
    assert states_of("sum", "numeric(38, 2)", [MOST, MOST]).between(begins, *bounds).to_pylist() == [None, MOST]


def test_the_states_that_are_given_must_be_those_of_the_call():
    states = states_of("sum", "bigint", [1, 2])
    with pytest.raises(ValueError, match="state of sum"):
        states.accumulate(np.array([1, 0], np.uint8), np.zeros(1, np.int32), [Column(pa.array([1]))])
