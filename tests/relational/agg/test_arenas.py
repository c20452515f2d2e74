"""Kernels with bytes of states outside the records: those that are still used outlive those that are released."""

import numpy as np
import pyarrow as pa
import pytest

from relational.agg import AggGroups, AggSpec
from relational.chunk import Column, DataChunk
from relational.types import DataType, Field
from relational.udf.function import FunctionKind, UserFunction, Volatility

BIGINT, VARCHAR = DataType.BIGINT, DataType.VARCHAR
GROUPS, LEAVING = 6_000, 4_000
FULL = 10  # groups with more values than a list of registers, and than the most extreme ones, can have
GREATEST = """
import pyarrow as pa
def accumulate(states, groups, v):
    found = [each or "" for each in states.to_pylist()]
    for group, value in zip(groups.to_pylist(), v.to_pylist()):
        found[group] = max(found[group], value)
    return pa.array(found, states.type)
def finish(states):
    return states
"""


def spec_of(kind):
    match kind:
        case "extreme key":
            return AggSpec("max", 2, VARCHAR, VARCHAR)
        case "top values":
            return AggSpec("min", 1, BIGINT, BIGINT, is_retractable=True, keeps_values=True)
        case "sketch":
            return AggSpec("approx_count_distinct", 1, BIGINT, BIGINT)
    user = UserFunction("greatest", (Field("v", VARCHAR),), VARCHAR, GREATEST, "greatest", FunctionKind.AGGREGATE,
                        Volatility.IMMUTABLE, True, state=VARCHAR, retracts=False)
    return AggSpec.of_user(user, (2,), VARCHAR, is_filtered=False)


def rows_of(groups, seed):
    """As many values in a group as its number modulo 7, for 0 a NULL; in the last FULL ones 400."""
    rng = np.random.default_rng(seed)
    counts = np.where(groups >= GROUPS - FULL, 400, np.maximum(groups % 7, 1))
    keys = rng.permutation(np.repeat(groups, counts))
    values = rng.integers(0, 1 << 40, len(keys))
    is_null = (keys % 7 == 0) & (keys < GROUPS - FULL)
    texts = np.array([f"{value:b}" for value in values])
    return DataChunk([Column(pa.array(keys)), Column(pa.array(values, mask=is_null)),
                      Column(pa.array(texts, mask=is_null))])


def flushed(groups, chunk):
    """The stored states of the groups of a chunk, by their keys."""
    groups.apply(chunk, groups.locate(chunk).ids)
    if groups.specs[0].keeps_values:
        groups.overflow(0)
    return {row[0]: row[1:] for change in groups.flush() if change.state is not None for row in change.state.rows()}


@pytest.mark.parametrize("kind", ["extreme key", "top values", "sketch", "user state"])
def test_groups_that_stay_have_their_states_when_others_leave(kind):
    packed, whole = (AggGroups((0,), (BIGINT,), [spec_of(kind)]) for _ in range(2))
    first = rows_of(np.arange(GROUPS), 1)
    assert flushed(packed, first) == flushed(whole, first)
    size = packed.size_bytes
    packed.forget_below(0, LEAVING)
    assert packed.groups == GROUPS - LEAVING and packed.size_bytes < size
    expected = [row for row in whole.results().rows() if row[0] >= LEAVING]
    assert sorted(packed.results().rows()) == sorted(expected)
    more = rows_of(np.arange(LEAVING, GROUPS), 2)
    assert flushed(packed, more) == flushed(whole, more)
    expected = [row for row in whole.results().rows() if row[0] >= LEAVING]
    assert sorted(packed.results().rows()) == sorted(expected)


def test_replaced_bytes_are_released_at_the_end_of_an_epoch():
    groups = AggGroups((0,), (BIGINT,), [spec_of("extreme key")])
    keys = np.arange(64)
    for epoch in range(200):
        texts = [f"{epoch:03}{key:997}" for key in keys]
        flushed(groups, DataChunk([Column(pa.array(each)) for each in (keys, keys, texts)]))
    assert groups.size_bytes < 4 << 20  # of 13 MB
    assert dict(groups.results().rows()) == dict(zip(keys.tolist(), texts, strict=True))
