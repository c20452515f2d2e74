"""Comparisons that a predicate implies, and the ranges of values that they exclude."""

import itertools
import math
import random

import pytest

from relational.expr.comparisons import Comparison, Relation, comparisons_of
from relational.expr.expression import Call, Cast, InputRef, Literal, conjunction
from relational.types import DataType
from tests.support.drivers.seeds import run_seed

BIGINT, DOUBLE, BOOLEAN = DataType.BIGINT, DataType.DOUBLE, DataType.BOOLEAN


def compared(function, left, right):
    return Call(function, (left, right), BOOLEAN)


def test_terms_of_a_conjunction_with_a_constant_on_either_side():
    a, text = InputRef(3, BIGINT), InputRef(1, DataType.VARCHAR)
    five, word = Literal(5, BIGINT), Literal("x", DataType.VARCHAR)
    predicate = conjunction([compared("less", a, five), compared("less", five, a), compared("equal", text, word)])
    assert comparisons_of(predicate) == (
        Comparison(3, Relation.LESS, 5, BIGINT), Comparison(3, Relation.GREATER, 5, BIGINT),
        Comparison(1, Relation.EQUAL, "x", DataType.VARCHAR))


@pytest.mark.parametrize("term", [
    compared("not_equal", InputRef(0, BIGINT), Literal(5, BIGINT)),
    compared("less", InputRef(0, BIGINT), InputRef(1, BIGINT)),
    compared("less", Cast(InputRef(0, BIGINT), DOUBLE), Literal(5.0, DOUBLE)),
    compared("equal", InputRef(0, BIGINT), Literal(None, BIGINT)),
    compared("equal", InputRef(0, DOUBLE), Literal(math.nan, DOUBLE)),
    compared("equal", InputRef(0, DataType.JSONB), Literal("1", DataType.JSONB)),
    compared("or", compared("less", InputRef(0, BIGINT), Literal(5, BIGINT)), InputRef(1, BOOLEAN)),
    InputRef(1, BOOLEAN),
])
def test_other_terms_imply_none(term):
    assert comparisons_of(term) == ()


def test_a_range_is_excluded_if_no_value_in_it_compares():
    holds = {Relation.EQUAL: int.__eq__, Relation.LESS: int.__lt__, Relation.LESS_EQUAL: int.__le__,
             Relation.GREATER: int.__gt__, Relation.GREATER_EQUAL: int.__ge__}
    for relation, least, size, value in itertools.product(Relation, range(5), range(4), range(9)):
        some = any(holds[relation](each, value) for each in range(least, least + size + 1))
        assert Comparison(0, relation, value, BIGINT).excludes(least, least + size) is not some


def test_nan_may_be_in_any_range_of_floats():
    rng = random.Random(run_seed())
    for _ in range(200):
        least, value = rng.uniform(-5, 5), rng.uniform(-5, 5)
        for relation in (Relation.GREATER, Relation.GREATER_EQUAL):
            assert not Comparison(0, relation, value, DOUBLE).excludes(least, least + 1)
    assert Comparison(0, Relation.LESS, 1.0, DOUBLE).excludes(1.0, 2.0)
    assert not Comparison(0, Relation.EQUAL, -0.0, DOUBLE).excludes(0.0, 0.0)
