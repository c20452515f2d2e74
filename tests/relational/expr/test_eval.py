"""Expressions over columns: every row against DuckDB, and rows that fail."""

import math
import random
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from relational import col, lit
from relational import functions as f
from relational.chunk import DataChunk
from relational.errors import BindError, EvaluationError
from relational.expr.bind import FEW_MEMBERS, ExprBinder, Scope
from relational.expr.eval import evaluate
from relational.expr.eval_context import ErrorCounts
from relational.sql import bind_sql
from relational.types import DataType, Interval, Schema
from tests.support.suites.duck import oracle, same
from tests.support.suites.sql_cases import CASES, catalog_of

SCHEMA = Schema.of(
    i="int",
    j="int",
    b="bigint",
    k="smallint",
    n="numeric(12, 3)",
    m="numeric(20, 6)",
    d="double",
    e="double",
    t="varchar",
    u="varchar",
    p="boolean",
    q="boolean",
    day="date",
    ts="timestamp",
    tt="timestamp",
    tz="timestamptz",
    clock="time",
)
DECLARED = "CREATE TABLE t (%s)" % ", ".join(str(field) for field in SCHEMA)  # noqa: UP031
ROWS = 400

EXPRESSIONS = [
    line for line in (CASES / "expressions.txt").read_text().split("\n") if line and not line.startswith("#")
]


def some_rows(rng):
    texts = ["", "a", "ab", "abc", "b", "A%", " a ", "Äb", "ba", "aab", "x_y"]
    floats = [0.0, -0.0, 1.5, -2.25, 1e10, math.nan, math.inf, -math.inf, 3.0]
    epoch = datetime(2000, 1, 1)

    def maybe(value):
        return None if rng.random() < 0.15 else value

    def moment():
        return epoch + timedelta(days=rng.randint(-20000, 20000), microseconds=rng.randint(0, 86_399_999_999))

    for _ in range(ROWS):
        yield (
            maybe(rng.choice([0, 1, 2, 3, -1, rng.randint(-1000, 1000)])),
            maybe(rng.choice([0, 1, 2, 7, rng.randint(-1000, 1000)])),
            maybe(rng.randint(-(10**12), 10**12)),
            maybe(rng.randint(-100, 100)),
            maybe(Decimal(rng.choice([rng.randint(-(10**6), 10**6), 1000, 2500])).scaleb(-3)),
            maybe(Decimal(rng.choice([rng.randint(-(10**9), 10**9), 2500000])).scaleb(-6)),
            maybe(rng.choice([*floats, rng.uniform(-100, 100)])),
            maybe(rng.choice([*floats, rng.uniform(-100, 100)])),
            maybe(rng.choice(texts)),
            maybe(rng.choice(texts)),
            maybe(rng.random() < 0.5),
            maybe(rng.random() < 0.5),
            maybe(moment().date()),
            maybe(moment()),
            maybe(moment().replace(microsecond=0, hour=0)),
            maybe(moment().astimezone()),
            maybe(moment().time()),
        )


@pytest.fixture(scope="module")
def chunk():
    return DataChunk.from_rows(SCHEMA, some_rows(random.Random(5)))


@pytest.fixture(scope="module")
def duck(chunk):
    connection = oracle()
    rows = chunk.to_arrow(SCHEMA)
    rows = rows.append_column("row_number", pa.array(np.arange(rows.num_rows)))
    connection.register("rows_", pa.table(rows))
    connection.execute("CREATE TABLE t AS SELECT * FROM rows_ ORDER BY row_number")
    return connection


@pytest.fixture(scope="module")
def catalog():
    return catalog_of(DECLARED)


def bound(text, catalog):
    (statement,) = bind_sql(f"SELECT {text} AS value FROM t", catalog)
    return statement.plan.expressions[0]


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_every_row_agrees_with_duckdb(text, chunk, duck, catalog):
    expression = bound(text, catalog)
    column = evaluate(expression, chunk, strict=True)
    assert column.data_type == expression.data_type
    theirs = (
        duck.sql(f"SELECT {text} AS value FROM t ORDER BY row_number").to_arrow_table()["value"].to_pylist()
    )
    ours = column.array.to_pylist()
    rows = list(chunk.rows())
    wrong = [(rows[i], ours[i], theirs[i]) for i in range(len(ours)) if not same(ours[i], theirs[i])]
    assert not wrong, f"{len(wrong)} rows differ, the first is {wrong[0]}"


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_slices_and_hidden_rows_change_nothing(text, chunk, catalog):
    expression = bound(text, catalog)
    whole = evaluate(expression, chunk, strict=True).array
    visibility = (np.arange(100) % 3 != 0).astype(np.uint8)
    part = evaluate(expression, chunk.slice(37, 100).with_visibility(visibility), strict=True).array
    seen = pa.array(visibility.view(np.bool_))
    assert str(part.filter(seen)) == str(whole.slice(37, 100).filter(seen))


def over(term, **columns):
    """The values of the term as a list; each keyword is a column."""
    return computed(term, **columns).array.to_pylist()


def computed(term, *, visibility=None, strict=True, errors=None, **columns):
    """`columns`: name=(type, values)."""
    schema = Schema.of(**{name: spelled for name, (spelled, _) in columns.items()})
    rows = zip(*(values for _, values in columns.values()), strict=True)
    chunk = DataChunk.from_rows(schema, rows)
    if visibility is not None:
        chunk = chunk.with_visibility(np.array(visibility, np.uint8))
    expression = ExprBinder(Scope(schema)).bind(term)
    return evaluate(expression, chunk, strict=strict, errors=errors)


A, B = ("int", [6, 7, -7, None]), ("int", [2, 0, 2, 0])


def test_integer_division_truncates():
    assert over(col("a") / col("b"), a=("int", [7, -7, 7, -7]), b=("int", [2, 2, -2, -2])) == [3, -3, -3, 3]


def test_numeric_division_rounds_half_away_from_zero():
    quotient = over(col("a") / 3, a=("numeric(10, 2)", [Decimal(2), Decimal(-2), Decimal(1)]))
    assert quotient == [Decimal("0.666667"), Decimal("-0.666667"), Decimal("0.333333")]


def test_an_error_of_a_visible_row_is_raised_where_strict():
    with pytest.raises(EvaluationError, match=r"division by zero \(row 1\)"):
        over(col("a") / col("b"), a=A, b=B)


def test_an_error_in_a_stream_is_null_and_counted():
    errors = ErrorCounts()
    values = computed(col("a") / col("b"), strict=False, errors=errors, a=A, b=B).array.to_pylist()
    assert values == [3, None, -3, None]
    assert errors.take() == {"division by zero": 1}, "NULL / 0 is NULL, no error"


def test_hidden_rows_never_fail():
    errors = ErrorCounts()
    values = computed(col("a") / col("b"), visibility=[1, 0, 1, 1], errors=errors, a=A, b=B).array.to_pylist()
    assert [values[0], values[2]] == [3, -3] and errors.take() == {}


@pytest.mark.parametrize(
    "term",
    [
        f.when(col("b") != 0, col("a") / col("b")).default(-1),
        (col("b") != 0) & (col("a") / col("b") > 0),
        (col("b") == 0) | (col("a") / col("b") > 0),
        f.coalesce(col("b") + 1, col("a") / 0),
        f.when(col("b") == 0, 0).default(col("a") / col("b")),
        f.when(col("a").is_null(), 0).when(col("b") == 0, 1).default(col("a") / col("b")),
    ],
)
def test_branches_run_on_their_rows_only(term):
    over(term, a=A, b=B)


def test_a_branch_taken_does_fail():
    with pytest.raises(EvaluationError, match="division by zero"):
        over((col("b") == 0) & (col("a") / col("b") > 0), a=A, b=B)


@pytest.mark.parametrize(
    ("term", "type_name", "value"),
    [
        (col("x") + 1, "int", 2**31 - 1),
        (col("x") + col("x"), "int", 2**30),
        (col("x") * 2, "bigint", 2**62),
        (-col("x"), "bigint", -(2**63)),
        (col("x") / -1, "int", -(2**31)),
        (f.abs(col("x")), "smallint", -(2**15)),
        (col("x") * col("x"), "numeric(38, 0)", Decimal(10) ** 20),
        (col("x") + col("x"), "numeric(38, 0)", Decimal(9) * 10**37),
        (col("x") * 10, "double", 1e308),
        (col("x") / 0, "double", 1.0),
        (col("x") % 0, "numeric(5, 2)", Decimal(1)),
        (col("x").cast("smallint"), "int", 40000),
        (col("x").cast("int"), "double", 3e9),
        (col("x").cast("int"), "double", math.nan),
        (col("x").cast("numeric(4, 2)"), "numeric(10, 2)", Decimal(100)),
        (col("x").cast("numeric(10, 2)"), "double", math.inf),
        (col("x").cast("real"), "double", 1e300),
        (col("x").cast("int"), "varchar", "12x"),
        (col("x").cast("int"), "varchar", "99999999999"),
        (col("x").cast("numeric(10, 2)"), "varchar", "1e20"),
        (col("x").cast("double"), "varchar", ""),
        (col("x").cast("boolean"), "varchar", "maybe"),
        (col("x").cast("date"), "varchar", "2023-02-29"),
        (col("x").cast("timestamp"), "varchar", "2023-01-01 25:00:00"),
        (col("x").cast("time"), "varchar", "12:60:00"),
        (col("x").cast("interval"), "varchar", "3 fortnights"),
        (col("x") + lit(Interval(12 * 9000, 0, 0)), "timestamp", datetime(2000, 1, 1)),
        (col("x") + 10_000_000, "date", date(2000, 1, 1)),
        (f.sqrt(col("x")), "double", -1.0),
    ],
)
def test_what_does_not_fit_fails_alone(term, type_name, value):
    errors = ErrorCounts()
    column = computed(term, strict=False, errors=errors, x=(type_name, [None, value]))
    assert column.array.null_count == 2 and list(errors.take().values()) == [1]
    with pytest.raises(EvaluationError):
        computed(term, x=(type_name, [None, value]))


@pytest.mark.parametrize(
    ("text", "type_name", "value"),
    [
        (" +12 ", "int", 12),
        ("1e3", "numeric(10, 2)", Decimal(1000)),
        ("1.005", "numeric(10, 2)", Decimal("1.01")),
        ("-0.005", "numeric(10, 2)", Decimal("-0.01")),
        ("+1.5", "double", 1.5),
        ("-Infinity", "double", -math.inf),
        ("Off", "boolean", False),
        ("2020-02-29", "date", date(2020, 2, 29)),
        ("2020-02-29T01:02:03.4", "timestamp", datetime(2020, 2, 29, 1, 2, 3, 400000)),
        ("2020-02-29", "timestamp", datetime(2020, 2, 29)),
        ("23:59", "time", time(23, 59)),
        ("1 year 2 mons -3 days 04:05:06.7", "interval", Interval(14, -3, 14706700000)),
        ("1.5 days", "interval", Interval(0, 1, 43200000000)),
        ("-90 minutes", "interval", Interval(0, 0, -5400000000)),
    ],
)
def test_text_is_read_as_sql_writes_it(text, type_name, value):
    (found,) = list(computed(col("x").cast(type_name), x=("varchar", [text])).array.to_pylist())
    if isinstance(found, pa.MonthDayNano):
        found = Interval.from_arrow(found)
        assert (found.months, found.days, found.microseconds) == (
            value.months,
            value.days,
            value.microseconds,
        )
    assert found == value


def test_zones_are_converted_to_utc():
    (found,) = over(col("x").cast("timestamptz"), x=("varchar", ["2020-01-01 00:30:00-05:30"]))
    assert found.isoformat() == "2020-01-01T06:00:00+00:00"


def test_intervals_compare_by_their_length():
    spans = [Interval(1), Interval(0, 30), Interval(0, 29, 86_400_000_000), Interval(0, 31), None]
    assert over(col("x") == lit(Interval(1)), x=("interval", spans)) == [True, True, True, False, None]
    assert over(col("x") > lit(Interval(1)), x=("interval", spans)) == [False, False, False, True, None]


def test_nan_equals_itself_and_is_the_largest():
    floats = ("double", [math.nan, 1.0, math.inf, None])
    assert over(col("x") == lit(math.nan), x=floats) == [True, False, False, None]
    assert over(col("x") > lit(math.inf), x=floats) == [True, False, False, None]
    assert over(col("x").is_in([math.nan, 5.0]), x=floats) == [True, False, False, None]


def test_a_month_is_cut_to_its_length():
    moved = over(
        col("x") + lit(Interval(1)), x=("timestamp", [datetime(2020, 1, 31, 5), datetime(2021, 1, 31, 5)])
    )
    assert moved == [datetime(2020, 2, 29, 5), datetime(2021, 2, 28, 5)]


def test_interval_arithmetic():
    spans = [Interval(3, 5, 1), None]
    scaled = over(col("x") * 1.5, x=("interval", spans))
    assert scaled == [pa.MonthDayNano([4, 22, 43_200_000_002_000]), None]
    assert over(-col("x"), x=("interval", spans))[0] == pa.MonthDayNano([-3, -5, -1000])
    assert over(col("x") + col("x"), x=("interval", spans))[0] == pa.MonthDayNano([6, 10, 2000])


def test_an_empty_chunk_has_an_empty_column():
    column = computed(col("x") / 0, x=("int", []))
    assert len(column.array) == 0 and column.data_type == DataType.INT


def test_a_term_has_no_truth_value():
    with pytest.raises(BindError, match="no truth value"):
        bool(col("x") > 1)


@pytest.mark.parametrize(
    ("term", "data_type"),
    [
        (col("k") + col("k"), "smallint"),
        (col("k") + 1, "int"),
        (col("b") * col("n"), "numeric(33, 3)"),
        (col("n") + col("m"), "numeric(21, 6)"),
        (col("n") * col("m"), "numeric(33, 9)"),
        (col("m") * col("m") * col("m"), "numeric(38, 6)"),
        (col("n") / col("k"), "numeric(18, 9)"),
        (col("n") % col("m"), "numeric(15, 6)"),
        (col("n") + col("d"), "double"),
        (col("day") - col("day"), "int"),
        (col("ts") - col("ts"), "interval"),
        (col("day") + lit(Interval(1)), "timestamp"),
        (f.extract("epoch", col("ts")), "numeric(20, 6)"),
        (f.coalesce(col("k"), col("b")), "bigint"),
        (f.greatest(col("n"), col("b")), "numeric(23, 3)"),
        (f.when(col("p"), 1).default(Decimal("1.5")), "numeric(11, 1)"),
        (f.round(col("m"), 2), "numeric(17, 2)"),
    ],
)
def test_result_types(term, data_type):
    assert ExprBinder(Scope(SCHEMA)).bind(term).data_type == DataType.parse(data_type)


@pytest.mark.parametrize(
    ("data_type", "values", "members"),
    [
        ("BIGINT", [1, None, 5, 99], [1, 5, 2.5, 1e300]),
        ("NUMERIC(10, 2)", [Decimal("1.50"), Decimal("2.00"), None, Decimal("-7.25")], [1.5, 2, 1.505, -7.25, 10**30]),
        ("DOUBLE", [0.0, -0.0, float("nan"), None, 2.0], [0, 2, float("nan")]),
        ("REAL", [0.5, -0.0, None, 2.0], [0, 0.5]),
        ("VARCHAR", ["a", "", None, "é"], ["a", "é"]),
        ("DATE", [date(2020, 1, 1), None, date(2021, 1, 1)], [date(2020, 1, 1)]),
        ("BOOLEAN", [True, False, None], [True]),
        ("TIMESTAMPTZ", [datetime(2020, 1, 1, tzinfo=UTC), None], [datetime(2020, 1, 1, tzinfo=UTC)]),
    ],
)
@pytest.mark.parametrize("with_null", [False, True])
def test_a_long_in_list_means_what_its_comparisons_mean(data_type, values, members, with_null):
    """A list above FEW_MEMBERS is one lookup; a short one is compared value by value."""
    schema = Schema.of(x=data_type)
    chunk = DataChunk.from_rows(schema, [(value,) for value in values])
    binder = ExprBinder(Scope(schema))
    needle = col("x")
    given = [*members, None] if with_null else members
    few = binder.bind(needle.is_in(given))
    many = binder.bind(needle.is_in(given * (FEW_MEMBERS + 1)))
    assert (few.function, many.function) == ("in", "in_list")
    assert evaluate(many, chunk).array.to_pylist() == evaluate(few, chunk).array.to_pylist()
