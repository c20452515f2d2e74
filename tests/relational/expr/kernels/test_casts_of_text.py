"""Casts of text and of decimals to numbers: exact, and independent of the other rows."""

import re
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from importlib import import_module
from math import inf, isfinite

import numpy as np
import pyarrow as pa
import pytest

from relational.chunk import DataChunk
from relational.errors import EvaluationError
from relational.expr import ErrorCounts, Literal, evaluate
from relational.expr.expression import Call, Case, Cast, InputRef
from relational.expr.functions import resolve
from relational.types import DataType, Field, Interval, Schema

VARCHAR = DataType.VARCHAR
INTEGER = re.compile(r"[+-]?[0-9]+")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
WIDE = Context(prec=400)
EVALUATE = import_module("relational.expr.eval")


def cast(texts, spelled, *, strict=False, errors=None):
    target = DataType.parse(spelled)
    chunk = DataChunk([pa.array(texts, pa.string())])
    return evaluate(Cast(InputRef(0, VARCHAR), target), chunk, strict=strict, errors=errors).to_pylist()


@pytest.mark.parametrize("neighbour", ["1", "x", " 7", "1.5", None])
def test_hexadecimal_is_no_integer_whatever_is_beside_it(neighbour):
    assert cast(["0x10", neighbour], "int")[0] is None and cast([neighbour, "0x10"], "bigint")[1] is None


@pytest.mark.parametrize("text", ["9" * 93, "9" * 39, "-1" + "0" * 38, "1e38", "9" * 38 + ".5"])
def test_more_than_38_digits_are_out_of_range(text):
    errors = ErrorCounts()
    assert cast([text, "1"], "numeric(38, 0)", errors=errors) == [None, Decimal(1)]
    assert errors.take() == {"value out of range for NUMERIC(38, 0)": 1}
    with pytest.raises(EvaluationError, match=r"out of range .*row 1"):
        cast(["1", text], "numeric(38, 0)", strict=True)


def test_the_largest_numbers_are_read_exactly():
    nines = "9" * 38
    assert cast([nines, f"-{nines}", f"{nines}.4" + "9" * 90], "numeric(38, 0)") == [
        Decimal(nines), Decimal(f"-{nines}"), Decimal(nines),
    ]  # fmt: skip
    assert cast(["0." + "9" * 38, "0." + "0" * 37 + "15"], "numeric(38, 38)")[0] == Decimal("0." + "9" * 38)


def test_a_double_of_38_digits_is_a_numeric(rng):
    doubles = [1e37, -9.999e37, 1e38, float("inf"), float("nan"), 5e-324, 0.1]
    chunk = DataChunk([pa.array(doubles)])
    errors = ErrorCounts()
    got = evaluate(Cast(InputRef(0, DataType.DOUBLE), DataType.numeric(38, 0)), chunk, errors=errors).to_pylist()
    assert got == [Decimal(10) ** 37, Decimal("-9.999e37"), None, None, None, Decimal(0), Decimal(0)]
    assert errors.take() == {"value out of range for NUMERIC(38, 0)": 3}


def some_text(rng):
    digits = "".join(rng.choice("0123456789") for _ in range(rng.choice([0, 1, 2, 5, 18, 19, 20, 37, 38, 39, 90])))
    fraction = rng.choice(["", ".", "." + "".join(rng.choice("0459") for _ in range(rng.choice([1, 2, 10, 38, 60])))])
    exponent = rng.choice(["", "", "", f"e{rng.randint(-60, 60)}", "E+7", "e", "e+"])
    text = rng.choice(["", "+", "-", "--"]) + digits + fraction + exponent
    text = rng.choice(["", " ", "\t"]) + text + rng.choice(["", "", " ", "\x00", "\u00a0", "x"])
    if text and rng.random() < 0.2:
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice("0x_.-\u0661 ") + text[at + 1 :]
    return text


def integer_oracle(text, low, high):
    text = text.strip()
    if not (text.isascii() and INTEGER.fullmatch(text)):
        return None
    value = int(text)
    return value if low <= value <= high else None


def numeric_oracle(text, precision, scale):
    text = text.strip()
    if not (text.isascii() and NUMBER.fullmatch(text)):
        return None
    with localcontext(WIDE):
        value = Decimal(text)
        if value.adjusted() > 100 or not value:
            return None if value else Decimal(0)
        value = value.quantize(Decimal((0, (1,), -scale)), ROUND_HALF_UP)
        return value if abs(value) < Decimal(10) ** (precision - scale) else None


def float_oracle(text):
    text = text.strip()
    value = float(text) if text.isascii() and NUMBER.fullmatch(text) else inf
    return value if isfinite(value) else None


def test_random_texts_against_python(rng):
    texts = [some_text(rng) for _ in range(3_000)]
    for spelled, bits in (("smallint", 15), ("int", 31), ("bigint", 63)):
        expected = [integer_oracle(text, -(1 << bits), (1 << bits) - 1) for text in texts]
        assert cast(texts, spelled) == expected
    for precision, scale in ((38, 0), (38, 10), (38, 38), (10, 2), (1, 0)):
        got = cast(texts, f"numeric({precision}, {scale})")
        expected = [numeric_oracle(text, precision, scale) for text in texts]
        assert got == expected, next(each for each in zip(texts, got, expected, strict=True) if each[1] != each[2])
    assert cast(texts, "double") == [float_oracle(text) for text in texts]


def random_float(rng, numpy_type, bits):
    """A float of random bits without the sign, NaN and infinity included."""
    return np.array([rng.getrandbits(bits - 1)], f"u{bits // 8}").view(numpy_type)[0]


def halfway(rng, numpy_type, bits):
    """The exact decimal text of the midpoint of two adjacent floats, or of a number close to it."""
    value = numpy_type(inf)
    while not np.isfinite(value) or not np.isfinite(value + np.spacing(value)):
        value = random_float(rng, numpy_type, bits)
    with localcontext(Context(prec=1200)):
        middle = Decimal(float(value)) + Decimal(float(np.spacing(value))) / 2
        return format(middle, rng.choice("ef")) if rng.random() < 0.7 else format(middle.next_minus(), "e")


@pytest.mark.parametrize(("spelled", "numpy_type", "bits"), [("real", np.float32, 32), ("double", np.float64, 64)])
def test_floats_are_the_nearest_also_halfway(rng, spelled, numpy_type, bits):
    texts = [repr(float(random_float(rng, numpy_type, bits))) for _ in range(2_000)]
    texts += [halfway(rng, numpy_type, bits) for _ in range(500)]
    texts += [f"{rng.getrandbits(rng.randrange(1, 64))}e{rng.randrange(-345, 312)}" for _ in range(4_000)]
    texts += [f"{rng.randrange(1 << 54)}{rng.choice(['', '.0', 'e22', 'e-1', 'e1'])}" for _ in range(1_000)]
    expected = pa.array(texts).cast(DataType.parse(spelled).arrow).to_pylist()
    for text, got, nearest in zip(texts, cast(texts, spelled), expected, strict=True):
        is_word = text[-1] in "nf"
        assert repr(got) == repr(nearest if isfinite(nearest) or is_word else None), text


@pytest.mark.parametrize(("spelled", "numpy_type", "bits"), [("real", np.float32, 32), ("double", np.float64, 64)])
@pytest.mark.parametrize("scale", [0, 1, 2, 10, 22, 23, 30, 38])
def test_decimals_become_the_nearest_float(rng, spelled, numpy_type, bits, scale):
    unscaled = [rng.getrandbits(rng.randrange(1, 126)) % 10**38 * rng.choice([1, -1]) for _ in range(3_000)]
    for _ in range(500):  # halfway between two floats, or one next to it
        middle = Decimal(2 * rng.getrandbits(numpy_type(0).itemsize * 6) + 1).scaleb(scale, WIDE)
        exact = middle * Decimal(2) ** rng.randrange(-60, 60)
        if abs(exact) < 10**37 and exact == exact.to_integral_value(context=WIDE):
            unscaled.append(int(exact) + rng.choice([-1, 0, 0, 1]))
    values = [None, *(Decimal(each).scaleb(-scale, WIDE) for each in [0, 10**38 - 1, 1 - 10**38, *unscaled])]
    chunk = DataChunk([pa.array(values, pa.decimal128(38, scale))])
    got = evaluate(Cast(InputRef(0, DataType.numeric(38, scale)), DataType.parse(spelled)), chunk)
    texts = [None if value is None else format(value, "f") for value in values]
    assert got.to_pylist() == pa.array(texts).cast(DataType.parse(spelled).arrow).to_pylist()


@pytest.mark.parametrize("spelled", ["jsonb", "interval", "int[]", "struct<a jsonb>", "jsonb[]"])
def test_branches_over_every_kind_of_type(spelled):
    data_type = DataType.parse(spelled)
    one, two = {
        "jsonb": ("1", "[2]"),
        "interval": (Interval(1), Interval(2)),
        "int[]": ([1], [2, None]),
        "struct<a jsonb>": ({"a": "1"}, {"a": None}),
        "jsonb[]": (["1"], ["2"]),
    }[spelled]
    left = evaluate(Literal(one, data_type), DataChunk([], capacity=3))
    chunk = DataChunk.from_rows(
        schema_of(("p", DataType.BOOLEAN), ("a", data_type), ("b", data_type)),
        [(True, one, two), (False, one, two), (None, None, None), (False, None, two), (True, one, None)],
    )
    p, a, b = InputRef(0, DataType.BOOLEAN), InputRef(1, data_type), InputRef(2, data_type)
    assert left.to_pylist() == [one] * 3
    assert evaluate(Case(((p, a),), b, data_type), chunk).to_pylist() == [one, two, None, two, one]
    constant = Case(((p, Literal(two, data_type)),), a, data_type)
    assert evaluate(constant, chunk).to_pylist() == [two, one, None, None, two]
    assert evaluate(called("coalesce", a, b), chunk).to_pylist() == [one, one, None, two, one]
    assert evaluate(called("greatest", a, b), chunk).to_pylist() == [two, two, None, two, one]
    assert evaluate(called("least", a, b), chunk).to_pylist() == [one, one, None, two, one]


def schema_of(*columns):
    return Schema([Field(*column) for column in columns])


def called(name, *args):
    return Call(name, args, resolve(name, tuple(arg.data_type for arg in args))[2])


@pytest.mark.parametrize("text", ["9999999999 years", "99999999999999999999 hours", "2147483648 days", "1e5 days"])
def test_spans_beyond_an_interval_are_no_interval(text):
    assert cast(["1 day", text], "interval") == [Interval(0, 1), None]


@pytest.mark.parametrize("text", ["9999-12-31 24:00:00", "0001-01-01 00:00:00+14"])
def test_moments_beyond_the_calendar_are_none(text):
    assert cast([text], "timestamptz") == [None]


def test_the_epoch_of_a_span_of_any_length_is_exact():
    longest = Interval(2**31 - 1, 2**31 - 1, 0)
    spans = [Interval(0, 0, 1), Interval(0, 10**9, 5), longest]
    chunk = DataChunk.from_rows(schema_of(("i", DataType.INTERVAL)), [(span,) for span in spans])
    got = evaluate(called("extract_epoch", InputRef(0, DataType.INTERVAL)), chunk).to_pylist()
    assert got == [Decimal("0.000001"), Decimal(86_400) * 10**9 + Decimal("0.000005"), None]


def test_bytes_and_their_text(rng):
    values = [rng.randbytes(rng.randrange(9)) for _ in range(50)]
    chunk = DataChunk([pa.array([*values, None], pa.binary())]).slice(7, 44)
    texts = evaluate(Cast(InputRef(0, DataType.BYTEA), VARCHAR), chunk).to_pylist()
    assert texts == [*("\\x" + value.hex() for value in values[7:]), None]
    assert cast(["\\xAb ", *texts], "bytea") == [b"\xab", *values[7:], None]
    assert cast([" a ", "\\x 01 "], "bytea") == [b" a ", b"\x01"]
    assert cast([" \\x01", "\\x1", "\\xgg", "\\X00", "\\400", "a\\"], "bytea") == [None] * 6
    assert cast(["x00", "a\\\\\\001é", "\\x 01 02"], "bytea") == [b"x00", b"a\\\x01\xc3\xa9", b"\x01\x02"]


def test_a_kernel_that_raises_takes_the_value_of_its_own_row_alone(monkeypatch):
    calls = []

    def failing(evaluation, args, result):
        calls.append(evaluation.rows)
        if any(value == 13 for value in args[0].to_pylist()):
            raise OverflowError("unlucky")
        return args[0]

    monkeypatch.setattr(EVALUATE, "kernel_of", lambda name, types: failing)
    rows = 1 << 12
    array = pa.array([13 if at in (5, 2000, 2001) else at + 100 for at in range(rows)], pa.int32())
    errors, expression = ErrorCounts(), called("negate", InputRef(0, DataType.INT))
    got = evaluate(expression, DataChunk([array]), errors=errors).to_pylist()
    assert [at for at, value in enumerate(got) if value is None] == [5, 2000, 2001]
    assert errors.take() == {"no value of negate": 3} and len(calls) < 100
    with pytest.raises(EvaluationError, match=r"no value of negate \(row 5\)"):
        evaluate(expression, DataChunk([array]), strict=True)


def test_no_memory_is_no_row_s_fault(monkeypatch):
    def out_of_memory(evaluation, args, result):
        raise MemoryError

    monkeypatch.setattr(EVALUATE, "kernel_of", lambda name, types: out_of_memory)
    with pytest.raises(MemoryError):
        evaluate(called("negate", InputRef(0, DataType.INT)), DataChunk([pa.array([1], pa.int32())]))
