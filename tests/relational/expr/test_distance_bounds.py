"""Bounds of the distance of two columns: by cases, and for random pairs of rows that fulfil the condition."""

from __future__ import annotations

import datetime as dt
import random

import pytest

from relational.chunk import DataChunk
from relational.expr.bind import ExprBinder, Scope
from relational.expr.distance_bounds import DistanceBounds, distance_bounds
from relational.expr.eval import evaluate
from relational.expr.expression import conjuncts
from relational.sql.expressions import Translator
from relational.sql.lexer import Piece
from relational.sql.tree import parse
from relational.types import Schema
from stream.executor.integer_form import integer_of
from tests.support.drivers.seeds import run_seed

SCHEMA = Schema.of(at="timestamp", day="date", n="bigint", i="int", at2="timestamp", day2="date", n2="bigint", i2="int")
LEFT, RIGHT = range(4), range(4, 8)
SECOND, HOUR = 1_000_000, 3_600_000_000
BOUNDED = [
    ("at BETWEEN at2 - INTERVAL '5 seconds' AND at2 + INTERVAL '1 hour'", (0, 4, -5 * SECOND, HOUR)),
    ("at2 BETWEEN at AND at + INTERVAL '1 day 1 hour'", (0, 4, -25 * HOUR, 0)),
    ("at > at2", (0, 4, 0, None)),
    ("at2 > at", (0, 4, None, 0)),
    ("at - INTERVAL '1 hour' <= at2 - INTERVAL '1 second' + INTERVAL '3 seconds'", (0, 4, None, HOUR + 2 * SECOND)),
    ("at >= at2 AND at <= at2 + INTERVAL '2 hours' AND at2 > at - INTERVAL '1 hour'", (0, 4, 0, HOUR)),
    ("day >= day2 - 7 AND day < day2", (1, 5, -7, 0)),
    ("n + 3 > n2 AND 2 + n2 >= n - 1", (2, 6, -3, 3)),
    ("i <= n2 - 5", (3, 6, None, -5)),
    ("n >= n2 AND i >= i2 AND i <= i2 + 4", (3, 7, 0, 4)),
]
UNBOUNDED = [
    "at = at2", "at > at2 - INTERVAL '1 month'", "at2 + INTERVAL '1 year' > at", "n < 2 * n2", "n < i", "n2 < 5",
    "at::date >= day2", "day > day2 - INTERVAL '1 day'", "n > n2 OR i > i2", "n - n2 < 3", "n <> n2",
    "at::text > at2::text", "NOT n > n2", "at > at2 + NULL::interval",
]


def bound(text):
    tree = parse(Piece(text, 0, len(text)))
    return ExprBinder(Scope(SCHEMA)).bind(Translator(tree).term(tree.node))


def random_values(rng):
    at = dt.datetime(2024, 1, 1) + dt.timedelta(seconds=rng.randrange(-8_000, 8_000))
    return at, at.date() + dt.timedelta(days=rng.randrange(9)), rng.randrange(9), rng.randrange(9)


@pytest.mark.parametrize(("text", "expected"), BOUNDED)
def test_pairs_that_fulfil_a_condition_are_within_its_bounds(text, expected):
    predicate, rng = bound(text), random.Random(f"{run_seed()} {text}")
    bounds = distance_bounds(conjuncts(predicate), LEFT, RIGHT)
    assert bounds == DistanceBounds(*expected)
    rows = [random_values(rng) + random_values(rng) for _ in range(400)]
    holds = evaluate(predicate, DataChunk.from_rows(SCHEMA, rows)).array.to_pylist()
    distances = [integer_of(row[bounds.left], SCHEMA.types[bounds.left])
                 - integer_of(row[bounds.right], SCHEMA.types[bounds.right]) for row in rows]
    kept = [distance for distance, is_true in zip(distances, holds, strict=True) if is_true]
    assert kept and len(kept) < len(rows)
    assert bounds.least is None or min(kept) >= bounds.least
    assert bounds.most is None or max(kept) <= bounds.most


@pytest.mark.parametrize("text", UNBOUNDED)
def test_other_conditions_bound_no_distance(text):
    assert distance_bounds(conjuncts(bound(text)), LEFT, RIGHT) is None


def test_only_columns_that_were_asked_for_are_bounded():
    terms = conjuncts(bound("at > at2 AND n > n2"))
    assert distance_bounds(terms, {2}, RIGHT) == DistanceBounds(2, 6, 0, None)
    assert distance_bounds(terms, {2}, {4}) is None


@pytest.mark.parametrize(("counts_partners", "expected"), [
    ((False, False), (7, 10)), ((True, False), (7, 4)), ((False, True), (7, 10)), ((True, True), (None, None))])
def test_limits_of_rows_and_of_their_partners(counts_partners, expected):
    """Watermarks 13 and 10, distances -3 to 3."""
    assert DistanceBounds(0, 0, -3, 3).limits(13, 10, counts_partners) == expected


def test_a_row_that_waits_for_ever_keeps_its_partners():
    assert DistanceBounds(0, 0, None, 3).limits(13, 10, (False, False)) == (None, 10)
    assert DistanceBounds(0, 0, None, 3).limits(13, 10, (True, False)) == (None, None)
    assert DistanceBounds(0, 0, -3, None).limits(13, 10, (False, True)) == (None, None)
