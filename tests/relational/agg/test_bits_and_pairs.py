"""Bits, pairs and sketches: retractions leave no trace, states are stored and merged, and damaged ones are refused."""

import math
import random

import pytest

from relational.agg import AggGroups, AggSpec
from relational.agg.spec import PAIR, adds_up
from relational.chunk import Column, DataChunk, Op, StreamChunk
from relational.errors import ConsistencyError, EncodingError
from relational.types import DataType, Schema
from tests.support.drivers.seeds import run_seed

BIGINT, DOUBLE = DataType.BIGINT, DataType.DOUBLE
COUNT = AggSpec("count", None, None, BIGINT)
PAIRED = ("corr", "covar_pop", "covar_samp", "regr_avgx", "regr_avgy", "regr_count", "regr_intercept", "regr_r2",
          "regr_slope", "regr_sxx", "regr_sxy", "regr_syy")


def groups_of(*specs):
    groups = AggGroups([], [], [COUNT, *specs])
    groups.open_global()
    return groups


def apply(groups, schema, rows, op=Op.INSERT):
    chunk = StreamChunk.from_rows(schema, [(op, row) for row in rows])
    groups.apply(chunk, groups.locate(chunk).ids)


def result(groups):
    ((_, *found),) = groups.results().rows()
    return found


def stored(groups):
    (change,) = groups.flush()
    return change.state


@pytest.mark.parametrize("kind", ["bit_and", "bit_or", "bit_xor"])
@pytest.mark.parametrize("name", ["smallint", "int", "bigint"])
def test_bits_follow_from_what_is_left(kind, name):
    data_type, rng = DataType.parse(name), random.Random(f"{run_seed()} {kind} {name}")
    bits = {"smallint": 16, "int": 32, "bigint": 64}[name]
    combine = {"bit_and": int.__and__, "bit_or": int.__or__, "bit_xor": int.__xor__}[kind]
    spec, schema = AggSpec(kind, 0, data_type, data_type, is_retractable=True), Schema.of(v=name)
    groups, left = groups_of(spec), []
    for _ in range(8):
        fresh = [rng.randrange(-(1 << bits - 1), 1 << bits - 1) for _ in range(rng.randrange(20))]
        apply(groups, schema, [(value,) for value in fresh])
        left += fresh
        gone = [left.pop(rng.randrange(len(left))) for _ in range(rng.randrange(len(left) + 1))]
        apply(groups, schema, [(value,) for value in gone], Op.DELETE)
        apply(groups, schema, [(None,)])
        expected = None
        for value in left:
            expected = value if expected is None else combine(expected, value)
        assert result(groups) == [expected]
        state, again = stored(groups), groups_of(spec)
        again.load(again.locate(state, of_states=True).ids, state)
        assert result(again) == [expected]
        groups = again


@pytest.mark.parametrize("is_retractable", [False, True])
@pytest.mark.parametrize("kind", ["bit_and", "bit_or", "bit_xor", "approx_count_distinct"])
def test_states_of_parts_are_that_of_all(kind, is_retractable):
    rng, schema = random.Random(f"{run_seed()} {kind}"), Schema.of(v="bigint")
    if kind == "approx_count_distinct" and is_retractable:
        return
    spec = AggSpec(kind, 0, BIGINT, BIGINT, is_retractable=is_retractable)
    assert adds_up(spec.kind, spec.input_type)
    values = [rng.randrange(1 << 62) | 1 << 62 for _ in range(5_000)]
    whole, merged = groups_of(spec), groups_of(spec)
    for first in range(0, len(values), 500):
        part, rows = groups_of(spec), [(value,) for value in values[first : first + 500]]
        apply(part, schema, rows)
        apply(whole, schema, rows)
        for states in part.take_states():
            merged.merge(states, merged.locate(states, of_states=True).ids)
    assert result(merged) == result(whole)


def test_rows_that_are_only_appended_keep_one_word():
    spec = AggSpec("bit_or", 0, BIGINT, BIGINT)
    groups = groups_of(spec)
    with pytest.raises(ConsistencyError, match="a retraction from an append-only bit_or"):
        apply(groups, Schema.of(v="bigint"), [(1,)], Op.DELETE)
    assert spec.state_types == (BIGINT, BIGINT)
    assert AggSpec("bit_or", 0, BIGINT, BIGINT, is_retractable=True).state_types == (DataType.BYTEA, BIGINT)


@pytest.mark.parametrize("kind", PAIRED)
def test_pairs_that_went_leave_no_trace(kind):
    """Also NaN and infinities; the results are those of the pairs that are left, from nothing."""
    rng, schema = random.Random(f"{run_seed()} {kind}"), Schema.of(y="double", x="double")
    spec = AggSpec(kind, 0, PAIR, BIGINT if kind == "regr_count" else DOUBLE, second=1)
    left = [(rng.uniform(-1e6, 1e6), rng.uniform(-1e3, 1e3)) for _ in range(30)]
    gone = [(rng.uniform(-1e6, 1e6), rng.uniform(-1e3, 1e3)) for _ in range(30)]
    others = [(math.nan, 1.0), (1.0, math.inf), (-math.inf, math.nan)]
    groups, plain = groups_of(spec), groups_of(spec)
    apply(plain, schema, left)
    apply(groups, schema, [*gone, *left, *others, (None, 1.0), (1.0, None)])
    if kind != "regr_count":
        assert math.isnan(result(groups)[0])
    apply(groups, schema, [*gone, *others, (None, 1.0)], Op.DELETE)
    state, again = stored(groups), groups_of(spec)
    again.load(again.locate(state, of_states=True).ids, state)
    assert result(again)[0] == pytest.approx(result(plain)[0], rel=1e-12)
    assert not adds_up(spec.kind, spec.input_type)


def test_pairs_far_from_zero_keep_their_digits():
    schema, base = Schema.of(y="double", x="double"), 1e9
    rows = [(base + y, base + x) for y, x in ((1.0, 0.0), (3.0, 1.0), (5.0, 2.0), (7.0, 3.0))]
    specs = [AggSpec(kind, 0, PAIR, DOUBLE, second=1) for kind in ("corr", "regr_slope", "covar_pop", "regr_r2")]
    groups = groups_of(*specs)
    apply(groups, schema, rows)
    assert result(groups) == pytest.approx([1.0, 2.0, 2.5, 1.0], rel=1e-12)


@pytest.mark.parametrize("count", [0, 1, 5, 300, 2_000, 50_000])
def test_a_sketch_is_near(count):
    groups, schema = groups_of(AggSpec("approx_count_distinct", 0, BIGINT, BIGINT)), Schema.of(v="bigint")
    for _ in range(2):
        apply(groups, schema, [(value,) for value in range(count)])
    (found,) = result(groups)
    assert abs(found - count) <= max(0.08 * count, 1 if count > 10 else 0)
    state, again = stored(groups), groups_of(AggSpec("approx_count_distinct", 0, BIGINT, BIGINT))
    again.load(again.locate(state, of_states=True).ids, state)
    assert result(again) == [found]


@pytest.mark.parametrize(("kind", "columns"), [
    ("bit_or", [(b"\x01", 1)]), ("bit_or", [(b"\x80" * 20, 1)]), ("bit_and", [(b"\1" * 65, 1)]),
    ("approx_count_distinct", [(b"\2",)]), ("approx_count_distinct", [(b"\1\0",)]), ("approx_count_distinct", [(b"",)]),
    ("approx_count_distinct", [(b"\0\xff\xff\1",)]), ("approx_count_distinct", [(b"\1" + b"\x40" * 2048,)]),
])  # fmt: skip
def test_a_damaged_state_is_refused(kind, columns):
    spec = AggSpec(kind, 0, BIGINT, BIGINT, is_retractable=kind.startswith("bit"))
    groups = groups_of(spec)
    states = [Column.from_pylist([value], each) for value, each in zip(columns[0], spec.state_types, strict=True)]
    rows = DataChunk([Column.from_pylist([1], BIGINT), Column.from_pylist([1], BIGINT), *states])
    with pytest.raises(EncodingError, match=kind):
        groups.load(groups.locate(rows, of_states=True).ids, rows)
