"""What an OR implies, against the values of its terms over rows with NULL."""

import random

import pytest

from relational.chunk import Column, DataChunk
from relational.expr.disjunctions import factored, implied_terms
from relational.expr.eval import evaluate
from relational.expr.expression import Call, Expression, InputRef, Literal, conjunction, conjuncts, input_columns
from relational.types import DataType
from tests.support.drivers.seeds import run_seed

COLUMNS, ROWS = 4, 64
LEFT, RIGHT = range(2), range(2, COLUMNS)


def literal(value: int) -> Literal:
    return Literal(value, DataType.INT)


def call(function: str, *args: Expression) -> Call:
    return Call(function, args, DataType.BOOLEAN)


def random_term(rng: random.Random, depth: int = 1) -> Expression:
    column, other = (InputRef(rng.randrange(COLUMNS), DataType.INT) for _ in range(2))
    choice = rng.randrange(7)
    if choice == 0 and depth:
        return call(rng.choice(("or", "and")), *(random_term(rng, depth - 1) for _ in range(2)))
    if choice == 1 and depth:
        return call("not", random_term(rng, depth - 1))
    if choice == 2:
        return call("is_null", column)
    if choice == 3:
        return call("in", column, *map(literal, rng.sample(range(4), 2)))
    if choice == 4:
        return call("less", column, other)
    return call(rng.choice(("equal", "greater")), column, literal(rng.randrange(4)))


def random_or(rng: random.Random) -> Call:
    pool = [random_term(rng) for _ in range(6)]
    branches = (rng.sample(pool, rng.randrange(1, 5)) for _ in range(rng.randrange(2, 4)))
    return call("or", *(conjunction(branch) for branch in branches))


def values(expression: Expression, chunk: DataChunk) -> list[bool | None]:
    return evaluate(expression, chunk, strict=True).array.to_pylist()


@pytest.mark.parametrize("number", range(40))
def test_rows_of_an_or_satisfy_what_it_implies(number):
    rng = random.Random(f"{run_seed()} {number}")
    given = [[rng.choice((None, 0, 1, 2, 3)) for _ in range(ROWS)] for _ in range(COLUMNS)]
    chunk = DataChunk([Column.from_pylist(each, DataType.INT) for each in given], capacity=ROWS)
    found = 0
    for _ in range(40):
        term = random_or(rng)
        truth = values(term, chunk)
        assert values(factored(term), chunk) == truth
        for side in (LEFT, RIGHT):
            for implied in implied_terms(term, side):
                assert input_columns(implied) <= set(side)
                assert all(is_implied for is_true, is_implied in zip(truth, values(implied, chunk), strict=True)
                           if is_true)
                found += 1
    assert found > 5


def test_terms_without_a_value_for_every_row_imply_nothing():
    fine, other = call("equal", InputRef(0, DataType.INT), literal(1)), call("is_null", InputRef(2, DataType.INT))
    quotient = Call("divide", (literal(1), InputRef(0, DataType.INT)), DataType.INT)
    branches = conjunction([fine, other]), conjunction([call("equal", quotient, literal(1)), other])
    assert implied_terms(call("or", *branches), LEFT) == ()
    assert implied_terms(call("or", *branches), RIGHT) == (other,)


def test_of_some_columns_only_branches_that_all_speak_of_them_say_something():
    a, b = (call("equal", InputRef(column, DataType.INT), literal(1)) for column in (0, 2))
    assert implied_terms(call("or", conjunction([a, b]), b), LEFT) == ()
    assert implied_terms(conjunction([a, b]), LEFT) == ()
    assert conjuncts(factored(call("or", conjunction([a, b]), b))) == (b,)
