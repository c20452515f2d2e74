"""Types of NUMERIC results: Spark's between declared types and constants, (38, 10) where an operand is unbounded."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from relational.expr.bind import ExprBinder, Scope
from relational.expr.coercion import UNBOUNDED, arithmetic_type, common_type
from relational.expr.unbound import UnboundExpr, apply, col, lit
from relational.types import DataType, Field, Schema

CASES = Path(__file__).resolve().parents[2] / "cases" / "numeric_types.txt"


def cases(section: int) -> list[list[str]]:
    text = CASES.read_text().split("\n== ")[1 + section]
    return [[part.strip() for part in line.split("|")] for line in text.splitlines()[1:] if line.strip()]


def parsed(text: str) -> DataType:
    return DataType.parse(f"numeric{text}" if text.startswith("(") else text)


def bound_type(term: UnboundExpr, **columns: DataType) -> DataType:
    schema = Schema(tuple(Field(name, data_type) for name, data_type in columns.items()))
    return ExprBinder(Scope(schema)).bind(term).data_type


def constant(text: str) -> UnboundExpr:
    return lit(Decimal(text) if "." in text else int(text))


X, Y = col("x"), col("y")


@pytest.mark.parametrize("case", cases(0), ids=" ".join)
def test_operators_of_two_columns(case):
    x, y = map(parsed, case[:2])
    found = [bound_type(term, x=x, y=y) for term in (X + Y, X * Y, X / Y, X % Y, apply("coalesce", X, Y))]
    assert found == list(map(parsed, case[2:]))
    assert bound_type(X - Y, x=x, y=y) == found[0]


@pytest.mark.parametrize("case", cases(1), ids=" ".join)
def test_operators_of_a_column_and_a_constant(case):
    x, c = parsed(case[0]), constant(case[1])
    found = [bound_type(term, x=x) for term in (X + c, X * c, X / c, X % c, c / X, c % X)]
    assert found == list(map(parsed, case[2:]))
    assert bound_type(X - c, x=x) == bound_type(c + X, x=x) == found[0]


@pytest.mark.parametrize("case", cases(2), ids=" ".join)
def test_functions_of_one(case):
    x = parsed(case[0])
    terms = [
        -X,
        apply("abs", X),
        apply("round", X),
        apply("round", X, 2),
        apply("round", X, 20),
        apply("floor", X),
        apply("ceil", X),
    ]
    assert [bound_type(term, x=x) for term in terms] == list(map(parsed, case[1:]))


@pytest.mark.parametrize("text", ["smallint", "bigint", "numeric(1, 0)", "numeric(38, 30)", "numeric"])
def test_an_unbounded_operand_gives_an_unbounded_result(text):
    other = DataType.parse(text)
    for operation in ("add", "subtract", "multiply", "divide", "modulo"):
        assert arithmetic_type(operation, UNBOUNDED, other) == arithmetic_type(operation, other, UNBOUNDED) == UNBOUNDED
    assert common_type([other, UNBOUNDED]) == common_type([UNBOUNDED, other, DataType.INT]) == UNBOUNDED
    assert bound_type(X * 2 + 1, x=UNBOUNDED) == bound_type(X / lit(Decimal("0.001")), x=UNBOUNDED) == UNBOUNDED


def test_floats_and_integers_keep_their_own_rules():
    assert arithmetic_type("add", DataType.NUMERIC, DataType.REAL) == DataType.DOUBLE
    assert arithmetic_type("divide", DataType.INT, DataType.BIGINT) == DataType.BIGINT
    assert arithmetic_type("add", DataType.NUMERIC, DataType.VARCHAR) is None


@pytest.mark.spark
def test_the_cases_are_what_spark_says(spark):
    """A sample of the cases; Spark's parser types the constants."""

    def types(expressions, **columns):
        chosen = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, kind in columns.items())
        frame = spark.sql(f"SELECT {', '.join(expressions)} FROM (SELECT {chosen})")
        return [field.dataType.simpleString().removeprefix("decimal") for field in frame.schema]

    def spelled(text):
        return f"decimal{text}" if text.startswith("(") else text

    for case in cases(0)[::23]:
        found = types(["x + y", "x * y", "x / y", "x % y", "coalesce(x, y)"], x=spelled(case[0]), y=spelled(case[1]))
        assert found == case[2:], case
    for case in cases(1)[::17]:
        c = case[1]
        found = types(
            [f"x + {c}", f"x * {c}", f"x / {c}", f"x % {c}", f"{c} / x", f"{c} % x"], x=spelled(case[0])
        )
        assert found == case[2:], case
