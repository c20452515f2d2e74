"""Expressions through which a watermark passes never decrease: by cases, and by random values."""

from __future__ import annotations

import datetime as dt
import random

import pytest

from relational.chunk import DataChunk
from relational.expr.bind import ExprBinder, Scope
from relational.expr.eval import evaluate
from relational.expr.monotone import monotone_column
from relational.sql.expressions import Translator
from relational.sql.lexer import Piece
from relational.sql.tree import parse
from relational.types import Schema
from tests.support.drivers.seeds import run_seed

SCHEMA = Schema.of(id="bigint", at="timestamp", tz="timestamptz", day="date", i="int", w="varchar", d="double")
RISING = [
    ("id", 0), ("at", 1), ("tz", 2), ("day", 3), ("i - 5", 4), ("5 + i", 4), ("id / 10", 0), ("id * 3", 0),
    ("0 * id", 0), ("(id + 1) / 7 * 7", 0), ("i::bigint", 4), ("id::int", 0), ("i::smallint + 1", 4),
    ("date_trunc('hour', at)", 1), ("date_trunc('decade', at)", 1), ("day + INTERVAL '1 hour'", 3),
    ("date_bin('15 minutes', at, '2001-01-01')", 1), ("date_bin('36 hours', tz, '2001-01-01')", 2),
    ("date_trunc('week', tz)", 2), ("date_trunc('month', at) + INTERVAL '1 day'", 1), ("at - INTERVAL '36 hours'", 1),
    ("INTERVAL '1 day 2 hours' + at", 1), ("at::date", 1), ("day::timestamp", 3), ("tz::timestamp", 2), ("day - 3", 3),
    ("3 + day", 3), ("at::timestamptz", 1), ("date_trunc('minute', day::timestamp + INTERVAL '90 seconds')", 3),
]
OTHERS = [
    "5 - id", "id * -1", "id / -2", "id / 0", "id / id", "id + id", "id - id", "10 / id", "at + INTERVAL '1 month'",
    "at - INTERVAL '1 year'", "at - at", "id % 7", "abs(id)", "d", "d + 1", "id::double", "w", "at::text",
    "id::text::bigint", "extract(hour FROM at)", "CASE WHEN id > 3 THEN id ELSE 0 END", "coalesce(id, 5)", "at::time",
    "7", "id + NULL", "greatest(id, 3)", "day - day", "-id",
    "date_trunc('hour', tz, 'Europe/Berlin')", "date_bin('1 hour', at, at)", "tz AT TIME ZONE 'Europe/Berlin'",
]


def bound(text):
    tree = parse(Piece(text, 0, len(text)))
    return ExprBinder(Scope(SCHEMA)).bind(Translator(tree).term(tree.node))


def random_row(rng):
    after = dt.timedelta(seconds=rng.randrange(-40_000_000, 40_000_000), microseconds=rng.randrange(9))
    at = dt.datetime(2024, 1, 1) + after
    number = rng.randrange(-100, 100)
    return number, at, at.replace(tzinfo=dt.UTC), at.date(), number, str(number), float(number)


@pytest.mark.parametrize(("text", "column"), RISING)
def test_what_rises_with_a_column_never_falls(text, column):
    expression, rng = bound(text), random.Random(f"{run_seed()} {text}")
    assert monotone_column(expression) == column
    rows = sorted((random_row(rng) for _ in range(300)), key=lambda row: row[column])
    values = list(evaluate(expression, DataChunk.from_rows(SCHEMA, rows)).array.to_pylist())
    assert values == sorted(values), "the watermark of the column would not hold for the expression"


@pytest.mark.parametrize("text", OTHERS)
def test_other_expressions_have_no_watermark(text):
    assert monotone_column(bound(text)) is None


def test_months_do_not_keep_the_order():
    """The counterexample for which they are left out."""
    rows = [(0, at, None, None, 0, "", 0.0) for at in (dt.datetime(2025, 1, 30, 12), dt.datetime(2025, 1, 31, 10))]
    first, second = evaluate(bound("at + INTERVAL '1 month'"), DataChunk.from_rows(SCHEMA, rows)).array.to_pylist()
    assert first > second
