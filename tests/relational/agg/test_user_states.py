"""States of user aggregates: against sums of Python, over flushes, evictions and lost states."""

import random
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest

from relational.agg import AggGroups, AggSpec
from relational.agg.user_states import UserStates
from relational.chunk import DataChunk, Op, StreamChunk
from relational.errors import ConsistencyError, FunctionFailed
from relational.memory_budget import MemoryBudget
from relational.types import DataType, Field, Schema
from relational.udf.function import FunctionKind, UserFunction, Volatility
from tests.support.drivers.seeds import run_seed

BIGINT, VARCHAR = DataType.BIGINT, DataType.VARCHAR
SCHEMA = Schema([Field("g", BIGINT), Field("v", BIGINT)])
SUMS = """
import numpy as np, pyarrow as pa, pyarrow.compute as pc
def summed(states, groups, v, sign):
    before = pc.fill_null(states, 0).to_numpy()
    return pa.array(before + sign * np.bincount(groups, v, minlength=len(before)).astype(np.int64))
def accumulate(states, groups, v):
    v = np.asarray(v)
    if (v == 13).any():
        raise ValueError
    return summed(states, groups, v, 1)
def retract(states, groups, v):
    return summed(states, groups, np.asarray(v), -1)
def finish(states):
    if (np.asarray(states) == 1_000).any():
        raise ValueError
    return states
"""


def function(source=SUMS, state=BIGINT, *, retracts=True, is_strict=True, returns=BIGINT):
    return UserFunction("total", (Field("v", BIGINT),), returns, source, "total", FunctionKind.AGGREGATE,
                        Volatility.IMMUTABLE, is_strict, state=state, retracts=retracts)


def groups_of(user, *, strict=False, **options):
    spec = AggSpec.of_user(user, (1,), user.returns, is_filtered=False)
    return AggGroups((0,), (BIGINT,), [spec], strict=strict, **options)


def chunk(rows, ops=None):
    data = DataChunk.from_rows(SCHEMA, rows)
    return data if ops is None else StreamChunk(data.columns, np.array(ops, np.uint8))


def apply(groups, rows, ops=None):
    data = chunk(rows, ops)
    groups.apply(data, groups.locate(data).ids)


def flushed(groups):
    """(the changes of results, the changes of the state table, the changes of failures), each as a list."""
    output, state, failures = [], [], defaultdict(int)
    for change in groups.flush():
        for rows, found in ((output, change.output), (state, change.state)):
            if found is not None:
                rows += zip(found.ops.tolist(), found.rows(), strict=True)
        for reason, count in change.failures.items():
            failures[reason] += count
    return output, state, dict(failures)


def test_states_follow_random_changes_across_flushes_and_reloads():
    rng = random.Random(run_seed())
    user, present = function(), []
    groups, shown, stored = groups_of(user), {}, {}
    for _ in range(30):
        rows, ops = [], []
        for _ in range(rng.randrange(60)):
            if present and rng.random() < 0.45:
                rows.append(present.pop(rng.randrange(len(present))))
                ops.append(Op.DELETE)
            else:
                rows.append((rng.randrange(8), rng.choice([None, *range(12)])))
                present.append(rows[-1])
                ops.append(Op.INSERT)
        if rows:
            apply(groups, rows, ops)
        output, state, failures = flushed(groups)
        assert not failures
        for op, (key, value) in output:
            if op in (Op.DELETE, Op.UPDATE_DELETE):
                assert shown.pop(key) == value
            else:
                shown[key] = value
        for op, (key, *values) in state:
            stored[key] = None if op == Op.DELETE else values
        wanted = {key: [v for k, v in present if k == key and v is not None] for key, _ in present}
        assert shown == {key: sum(values) if values else None for key, values in wanted.items()}
        if rng.random() < 0.3:  # the groups of another process
            groups = groups_of(user)
            known = [(key, *values) for key, values in stored.items() if values is not None]
            columns = (BIGINT, BIGINT, DataType.BYTEA, BIGINT)
            names = Schema([Field(f"c{at}", each) for at, each in enumerate(columns)])
            if known:
                groups.load_all(DataChunk.from_rows(names, known))
            assert groups.state_types == columns


def test_a_state_that_is_lost_is_null_and_counted_until_its_group_is_empty():
    groups = groups_of(function())
    reason = "function total: no value"
    apply(groups, [(1, 5), (2, 13), (3, 7), (2, 1)])
    output, state, failures = flushed(groups)
    assert sorted(row for _, row in output) == [(1, 5), (2, None), (3, 7)] and failures == {reason: 1}
    assert {row[0]: row[2] for _, row in state}[2] == b"\xff"
    apply(groups, [(2, 4), (2, 13), (3, 993)], [Op.INSERT, Op.DELETE, Op.INSERT])
    output, _, failures = flushed(groups)
    assert (Op.UPDATE_INSERT, (3, None)) in output and failures == {reason: 1}  # finish has no result of 1,000
    apply(groups, [(2, 4), (2, 1), (3, 1)], [Op.DELETE, Op.DELETE, Op.INSERT])
    output, _, failures = flushed(groups)
    assert output and failures == {reason: -2}
    apply(groups, [(2, 6)])
    assert flushed(groups)[0] == [(Op.INSERT, (2, 6))]


def test_strict_states_are_errors_of_the_function():
    with pytest.raises(FunctionFailed, match="function 'total': ValueError"):
        apply(groups_of(function(), strict=True), [(1, 13)])
    short = function("def accumulate(states, groups, v): return states.slice(1)\ndef finish(states): return states",
                     retracts=False)
    with pytest.raises(FunctionFailed, match="0 values for 1 states"):
        apply(groups_of(short, strict=True), [(1, 13)])
    groups = groups_of(short)
    apply(groups, [(1, 1), (2, 2)])
    output, _, failures = flushed(groups)
    assert [row for _, row in output] == [(1, None), (2, None)] and failures == {"function total: no value": 2}
    finishing = groups_of(function(), strict=True)
    apply(finishing, [(1, 1_000)])
    with pytest.raises(FunctionFailed, match="ValueError"):
        finishing.results()


def test_a_retraction_needs_its_function():
    groups = groups_of(function(retracts=False))
    with pytest.raises(ConsistencyError, match="a retraction from total"):
        apply(groups, [(1, 5), (1, 5)], [Op.INSERT, Op.DELETE])


def test_states_may_be_of_any_type_and_rows_with_null_are_seen_unless_it_is_strict():
    source = """
import pyarrow as pa
def accumulate(states, groups, v):
    found = [each or {"seen": []} for each in states.to_pylist()]
    for group, value in zip(groups.to_pylist(), v.to_pylist()):
        found[group]["seen"].append(value)
    return pa.array(found, states.type)
def finish(states):
    return pa.array([repr(each["seen"]) for each in states.to_pylist()])
"""
    state = DataType.struct([Field("seen", DataType.list_of(BIGINT))])
    for is_strict, wanted in ((True, "[3, 4]"), (False, "[3, None, 4]")):
        groups = groups_of(function(source, state, retracts=False, is_strict=is_strict, returns=VARCHAR))
        apply(groups, [(1, 3), (1, None)])
        apply(groups, [(1, 4), (2, None)])
        assert dict(groups.results().rows()) == {1: wanted, 2: None if is_strict else "[None]"}


def test_replaced_states_are_released_and_groups_can_leave():
    texts = "import pyarrow as pa\ndef accumulate(s, g, v): return pa.array(['x' * 20_000] * len(s))\n" \
            "def finish(s): return s"
    user = function(texts, VARCHAR, retracts=False, returns=VARCHAR)
    groups = groups_of(user, memory=MemoryBudget(1 << 20).share())
    most = 0
    for round_ in range(200):
        apply(groups, [(key, round_) for key in range(round_ % 5, 40, 5)])
        flushed(groups)
        most = max(most, groups.size_bytes)
    assert most < 12 << 20 and groups.groups <= 40
    kept = {row[1] for row in groups.results().rows()}
    assert kept == {"x" * 20_000}


def test_groups_and_states_out_of_range_are_refused():
    kernel = UserStates(AggSpec.of_user(function(), (1,), BIGINT, is_filtered=False))
    assert kernel.spec.state_types == (DataType.BYTEA, BIGINT)
    groups = groups_of(function())
    apply(groups, [(1, 1)])
    (_, states) = groups._stored
    with pytest.raises(IndexError):
        states.bytes_of(np.array([7], np.int32))
    with pytest.raises(IndexError):
        states.set_bytes(np.array([-1], np.int32), states.bytes_of(np.array([0], np.int32)))
    with pytest.raises(ValueError, match="1 states for 2 groups"):
        states.set_bytes(np.array([0, 0], np.int32), states.bytes_of(np.array([0], np.int32)))
    with pytest.raises(ValueError):
        AggSpec("user state", 0, BIGINT, BIGINT)
    assert pa.types.is_int64(states.outputs(np.array([], np.int32)).array.type)
