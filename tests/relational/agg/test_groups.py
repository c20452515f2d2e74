"""AggGroups and its kernels against plain Python over the current rows."""

import gc
import math
import random
import sys
from collections import Counter
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from relational.agg import AggGroups, AggSpec
from relational.agg.apply import GroupStates
from relational.agg.spec import VARIANCES
from relational.chunk.column import Column
from relational.chunk.data_chunk import DataChunk
from relational.chunk.stream_chunk import Op, StreamChunk
from relational.errors import ConsistencyError, EvaluationError
from relational.memory_budget import MemoryBudget
from relational.types import DataType, Schema
from tests.support.drivers.pretty import from_pretty
from tests.support.drivers.seeds import seeds

COUNT_ALL = AggSpec("count", None, None, DataType.BIGINT)
NUMERIC = DataType.numeric(20, 3)
INPUT = Schema.of(
    k="varchar",
    small="smallint",
    int="int",
    big="bigint",
    num="numeric(20,3)",
    real="real",
    double="double",
    text="varchar",
    day="date",
    flag="boolean",
    short="numeric(18,4)",
)
TYPES = INPUT.types


def result_type(kind, data_type):
    if kind in ("min", "max", "bool_and", "bool_or"):
        return data_type
    if kind == "count":
        return DataType.BIGINT
    if kind in VARIANCES:
        return DataType.DOUBLE
    if data_type.is_float:
        return DataType.DOUBLE
    scale = data_type.scale or 0
    if kind == "avg":
        return DataType.numeric(38, max(scale, 10))
    return DataType.BIGINT if data_type in (DataType.SMALLINT, DataType.INT) else DataType.numeric(38, scale)


def spec(kind, argument, is_retractable=False):
    return AggSpec(kind, argument, TYPES[argument], result_type(kind, TYPES[argument]), is_retractable)


SPECS = [
    COUNT_ALL,
    spec("count", 3),
    *(spec(kind, column) for column in range(1, 7) for kind in ("sum", "avg")),
    *(spec(kind, column, True) for column in (2, 4, 6, 7, 8) for kind in ("min", "max")),
    spec("bool_and", 9),
    spec("bool_or", 9),
    *(spec(kind, column) for column in (1, 2, 3, 5, 6) for kind in VARIANCES),
    spec("var_samp", 10),
]


def expected_result(call, values):
    """The oracle: the aggregate of non-NULL `values`."""
    if call.kind == "count":
        return len(values)
    if not values:
        return None
    if call.kind in ("bool_and", "bool_or"):
        return all(values) if call.kind == "bool_and" else any(values)
    if call.kind in VARIANCES:
        return expected_variance(call.kind, values)
    if call.kind in ("min", "max"):
        return (min if call.kind == "min" else max)(values)
    if call.input_type.is_float:
        total = math.fsum(values) if all(map(math.isfinite, values)) else sum(values)
        return total / len(values) if call.kind == "avg" else total
    with localcontext() as context:
        context.prec = 76
        total = sum(Decimal(value) for value in values)
        if call.kind == "sum":
            return int(total) if call.output_type == DataType.BIGINT else total
        return (total / len(values)).quantize(Decimal(1).scaleb(-call.output_type.scale), ROUND_HALF_UP)


def expected_variance(kind, values):
    divisor = len(values) - kind.endswith("samp")
    if divisor == 0:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    exact = [Fraction(value) for value in values]
    mean = sum(exact) / len(exact)
    variance = float(sum((value - mean) ** 2 for value in exact) / divisor)
    return math.sqrt(variance) if kind.startswith("stddev") else variance


def assert_close(got, want, values):
    if isinstance(want, float) and got is not None:
        if math.isfinite(want):
            assert abs(got - want) <= 1e-9 * float(sum(map(abs, values))) or math.isclose(got, want), (got, want)
        else:
            assert got == want or (math.isnan(got) and math.isnan(want))
    else:
        assert got == want, (got, want)


def random_row(rng):
    def maybe(value):
        return None if rng.random() < 0.15 else value

    return (
        maybe(rng.choice(["a", "b", "", "longer than eight", "é"])),
        maybe(rng.randrange(-(1 << 15), 1 << 15)),
        maybe(rng.randrange(-(1 << 31), 1 << 31)),
        maybe(rng.choice([rng.randrange(-(1 << 63), 1 << 63), (1 << 63) - 1])),
        maybe(Decimal(rng.randrange(-(10**20) + 1, 10**20)).scaleb(-3)),
        maybe(np.float32(rng.uniform(-1e6, 1e6)).item()),
        maybe(rng.choice([rng.uniform(-1e12, 1e12), 1e-7, 0.25])),
        maybe(rng.choice(["", "x", "12345678", "123456789", "zz" * rng.randrange(9)])),
        maybe(np.datetime64("2013-01-01").astype(object).replace(day=rng.randrange(1, 29))),
        maybe(rng.random() < 0.7),
        maybe(Decimal(rng.choice([10**18 - 1 - rng.randrange(3), rng.randrange(-(10**18) + 1, 10**18)])).scaleb(-4)),
    )


class LiveRows:
    """The current input rows, by group; generates consistent changes and applies them."""

    def __init__(self, rng):
        self.rng, self.rows = rng, []

    def changes(self, count):
        out = []
        for _ in range(count):
            if self.rows and self.rng.random() < 0.45:
                out.append((Op.DELETE, self.rows.pop(self.rng.randrange(len(self.rows)))))
            elif self.rows and self.rng.random() < 0.3:
                at, new = self.rng.randrange(len(self.rows)), random_row(self.rng)
                out += [(Op.UPDATE_DELETE, self.rows[at]), (Op.UPDATE_INSERT, new)]
                self.rows[at] = new
            else:
                self.rows.append(random_row(self.rng))
                out.append((Op.INSERT, self.rows[-1]))
        return StreamChunk.from_rows(INPUT, out)

    def groups(self):
        found = {}
        for row in self.rows:
            found.setdefault(row[0], []).append(row)
        return found


def refill_all(groups, present, specs):
    """Refills stale calls from the current rows instead of the materialized input."""
    by_key = present.groups()
    for call, spec in enumerate(specs):
        if not spec.is_min_max or not spec.is_retractable:
            continue
        stale = groups.stale(call)
        column = specs[call].argument
        values = []
        for (key,) in groups.keys(stale).rows():
            left = [row[column] for row in by_key.get(key, []) if row[column] is not None]
            values.append(expected_result(specs[call], left))
        groups.refill(call, stale, Column.from_pylist(values, specs[call].input_type))


def follow(view, chunk):
    """Applies an output chunk to a dict and checks that every change is consistent."""
    if chunk is None:
        return
    changes = list(chunk.changes())
    for index, (op, row) in enumerate(changes):
        key = row[0]
        if op in (Op.DELETE, Op.UPDATE_DELETE):
            assert same_row(view.pop(key), row)
            follower = changes[index + 1] if op is Op.UPDATE_DELETE else (Op.UPDATE_INSERT, row)
            assert follower[0] is Op.UPDATE_INSERT and follower[1][0] == key
        else:
            assert key not in view
            view[key] = row


def same_row(a, b):
    return all(x == y or (x != x and y != y) for x, y in zip(a, b, strict=True))


def check_view(view, present, specs):
    by_key = present.groups()
    assert view.keys() == by_key.keys()
    for key, rows in by_key.items():
        for call, got in zip(specs, view[key][1:], strict=True):
            at = call.argument
            values = rows if at is None else [row[at] for row in rows if row[at] is not None]
            assert_close(got, expected_result(call, values), values)


@pytest.mark.parametrize("seed", seeds(8, 25))
@pytest.mark.parametrize("mode", ["kept", "reloaded", "evicted"])
def test_changes_follow_the_oracle(seed, mode):
    """Each epoch starts with new AggGroups if `reloaded`; `evicted` has a cache budget of one byte."""
    rng = random.Random(seed)
    present, view, stored = LiveRows(rng), {}, {}
    groups = None
    for _ in range(8):
        if groups is None or mode == "reloaded":
            groups = AggGroups([0], [TYPES[0]], SPECS, memory=MemoryBudget(1).share() if mode == "evicted" else None)
        for _ in range(rng.randrange(4)):
            chunk = present.changes(rng.randrange(1, 60))
            located = groups.locate(chunk)
            if mode != "kept":
                load(groups, located.new_ids, stored)
            groups.apply(chunk, located.ids)
        refill_all(groups, present, SPECS)
        for change in groups.flush():
            follow(view, change.output)
            follow_state(stored, change.state)
        check_view(view, present, SPECS)
        assert stored.keys() == view.keys()
        if mode == "evicted":
            assert groups.groups == 0
    if mode == "kept":
        assert sorted(map(repr, groups.results().rows())) == sorted(map(repr, view.values()))


def load(groups, ids, stored):
    keys = [key for (key,) in groups.keys(ids).rows()]
    schema = Schema.of(**{f"c{i}": str(t) for i, t in enumerate(groups.state_types)})
    blank = (None,) * len(groups.state_types)
    rows = DataChunk.from_rows(schema, [stored.get(key, blank) for key in keys])
    groups.load(ids, rows, np.array([key in stored for key in keys], np.uint8))


def follow_state(stored, chunk):
    if chunk is None:
        return
    for op, row in chunk.changes():
        if op is Op.DELETE:
            del stored[row[0]]
        else:
            assert (op is Op.INSERT) == (row[0] not in stored)
            stored[row[0]] = row


def one_group(specs, values, data_type, ops=None, **options):
    groups = AggGroups([], [], specs, **options)
    column = Column.from_pylist(values, data_type)
    chunk = StreamChunk([column], np.array(ops or [0] * len(values), np.uint8))
    groups.apply(chunk, groups.locate(chunk).ids)
    return groups


def single(kind, data_type, output_type):
    return AggSpec(kind, 0, data_type, output_type)


def test_sum_of_int_beyond_bigint_is_an_overflow():
    groups = AggGroups([], [], [single("sum", DataType.INT, DataType.BIGINT)], strict=True)
    top = DataChunk.from_rows(Schema.of(n="bigint", s="numeric(38,0)", c="bigint"), [(1, Decimal(2**63), 1)])
    groups.load(groups.open_global(), top)
    with pytest.raises(EvaluationError, match="value out of range for SUM"):
        groups.results()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2], "1.5000000000"),
        ([1, 1, 2], "1.3333333333"),
        ([2, 1, 2], "1.6666666667"),
        ([-1, -1, -2], "-1.3333333333"),
        ([-2, -1, -2], "-1.6666666667"),
        ([0], "0E-10"),
        ([(1 << 63) - 1] * 3, "9223372036854775807.0000000000"),
    ],
)
def test_average_rounds_half_away_from_zero(values, expected):
    groups = one_group([single("avg", DataType.BIGINT, DataType.numeric(38, 10))], values, DataType.BIGINT)
    assert list(groups.results().rows()) == [(Decimal(expected),)]


def test_average_half():
    values = [Decimal("0.00000000001"), Decimal("0")]
    for sign in (1, -1):
        call = single("avg", DataType.numeric(20, 11), DataType.numeric(38, 11))
        groups = one_group([call], [sign * value for value in values], call.input_type)
        assert list(groups.results().rows()) == [(sign * Decimal("0.00000000001"),)]


def test_float_special_values_come_and_go():
    calls = [single("sum", DataType.DOUBLE, DataType.DOUBLE)]
    inf, nan = math.inf, math.nan

    def result(values, ops):
        return next(iter(one_group(calls, values, DataType.DOUBLE, ops).results().rows()))[0]

    assert result([1.0, inf], [0, 0]) == inf
    assert math.isnan(result([inf, -inf], [0, 0]))
    assert math.isnan(result([nan, 1.0], [0, 0]))
    assert result([1.0, inf, nan, -inf, inf, nan, -inf], [0, 0, 0, 0, 1, 1, 1]) == 1.0
    assert result([1e300, 1.0, 1e300], [0, 0, 1]) == 1.0
    assert result([1.0, 1.0], [0, 1]) is None


def test_float_sum_of_many_retractions_stays_close():
    rng = random.Random(5)
    values = [rng.uniform(-1, 1) * 10 ** rng.randrange(-12, 13) for _ in range(20_000)]
    kept = values[::50]
    deleted = [value for index, value in enumerate(values) if index % 50]
    order = [(0, value) for value in values] + [(1, value) for value in deleted]
    ops, changes = zip(*order, strict=True)
    calls = [single("sum", DataType.DOUBLE, DataType.DOUBLE)]
    got = next(iter(one_group(calls, list(changes), DataType.DOUBLE, list(ops)).results().rows()))[0]
    assert abs(got - math.fsum(kept)) <= 1e-9 * math.fsum(map(abs, kept))


def test_groups_are_freed_without_a_collection_of_cycles():
    groups = AggGroups([0], [DataType.BIGINT], [AggSpec("max", 1, DataType.VARCHAR, DataType.VARCHAR)])
    chunk = from_pretty("+ 1 a\n+ 2 b", Schema.of(k="bigint", v="varchar"))
    groups.apply(chunk, groups.locate(chunk).ids)
    gc.collect()
    gc.disable()
    try:
        del groups
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        assert not [each for each in gc.garbage if isinstance(each, GroupStates)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def test_global_group_always_has_a_row():
    groups = AggGroups([], [], [COUNT_ALL, single("sum", DataType.BIGINT, DataType.numeric(38, 0))])
    assert groups.open_global().tolist() == [0] and groups.open_global().tolist() == []
    (change,) = groups.flush()
    assert list(change.output.changes()) == [(Op.INSERT, (0, None))]
    assert list(change.state.changes()) == [(Op.INSERT, (0, 0, Decimal(0), 0))]
    chunk = from_pretty("+ 5\n+ 7\n- 5\n- 7", Schema.of(v="bigint"))
    groups.apply(chunk, groups.locate(chunk).ids)
    assert [piece.output for piece in groups.flush()] == [None]
    again = AggGroups([], [], groups.specs)
    again.load(again.open_global(), DataChunk(change.state.columns), np.ones(1, np.uint8))
    first = from_pretty("+ 5", Schema.of(v="bigint"))
    again.apply(first, again.locate(first).ids)
    assert [op for piece in again.flush() for op, _ in piece.output.changes()] == [Op.UPDATE_DELETE, Op.UPDATE_INSERT]


def test_masks_hide_rows_of_one_call():
    most = single("max", DataType.BIGINT, DataType.BIGINT)
    filtered = replace(COUNT_ALL, is_filtered=True)
    groups = AggGroups([0], [DataType.BIGINT], [COUNT_ALL, filtered, most])
    chunk = from_pretty("+ 1\n+ 2 \n+ 1\n+ 2", Schema.of(k="bigint"))
    chunk = chunk.with_visibility(np.array([1, 1, 1, 0], np.uint8))
    masks = [None, np.array([1, 0, 0, 1], np.uint8), None]
    located = groups.locate(chunk)
    groups.apply(chunk, located.ids, masks)
    assert list(groups.results().rows()) == [(1, 2, 1, 1), (2, 1, 0, 2)]
    with pytest.raises(ValueError, match="call 0, count, which has no FILTER"):
        groups.apply(chunk, located.ids, [masks[1], None, None])


def test_equal_keys_are_one_group():
    groups = AggGroups([0], [DataType.DOUBLE], [COUNT_ALL])
    chunk = DataChunk([Column(pa.array([0.0, -0.0, math.nan, -math.nan, None, None]))])
    groups.apply(chunk, groups.locate(chunk).ids)
    assert [row[1] for row in groups.results().rows()] == [2, 2, 2]


def test_born_and_gone_within_an_epoch_is_nothing():
    groups = AggGroups([0], [DataType.BIGINT], [COUNT_ALL])
    chunk = from_pretty("+ 1\n- 1", Schema.of(k="bigint"))
    groups.apply(chunk, groups.locate(chunk).ids)
    assert groups.dirty_groups == 1
    (change,) = groups.flush()
    assert change.output is None and change.state is None and groups.dirty_groups == 0


def test_groups_that_were_flushed_before_are_counted_from_a_flush_on():
    groups = AggGroups([0], [DataType.BIGINT], [COUNT_ALL])

    def apply(*keys):
        chunk = StreamChunk.inserts(DataChunk([Column(pa.array(keys, pa.int64()))]))
        groups.apply(chunk, groups.locate(chunk).ids)

    apply(1, 2, 3)
    first = groups.flushes
    assert groups.flushed_since(first, 9) == 0
    list(groups.flush())
    apply(2, 3, 4, 5)
    assert groups.flushed_since(first, 9) == 2, "those that are new were not flushed"
    assert groups.flushed_since(first, 1) == 1
    list(groups.flush())
    apply(1, 4)
    assert [groups.flushed_since(flush, 9) for flush in (first, first + 1, groups.flushes)] == [2, 1, 0]
    list(groups.flush())
    apply(6)
    assert groups.flushed_since(first, 9) == 0


@pytest.mark.parametrize("seed", seeds(10, 100))
def test_groups_that_changed_first_are_flushed_alone(seed):
    """Some of the dirty groups at any time: what is emitted and stored adds up to all rows of the groups flushed."""
    rng, schema = random.Random(f"first {seed}"), Schema.of(k="bigint")
    groups, rows, order = AggGroups([0], [DataType.BIGINT], [COUNT_ALL]), Counter(), []
    shown, stored = {}, {}
    for _ in range(60):
        changes = []
        for _ in range(rng.randrange(30)):
            key = rng.randrange(12)
            op = Op.DELETE if rows[key] and rng.random() < 0.5 else Op.INSERT
            rows[key] += 1 if op == Op.INSERT else -1
            changes.append((op, (key,)))
            if key not in order:
                order.append(key)
        chunk = StreamChunk.from_rows(schema, changes)
        groups.apply(chunk, groups.locate(chunk).ids)
        assert groups.dirty_groups == len(order)
        first = rng.choice([None, 1, 3, 20])
        flushed, order = (order, []) if first is None else (order[:first], order[first:])
        for change in groups.flush(first=first):
            for op, (key, count) in change.output.changes() if change.output is not None else ():
                assert key in flushed
                if op in (Op.DELETE, Op.UPDATE_DELETE):
                    assert shown.pop(key) == count
                else:
                    assert key not in shown
                    shown[key] = count
            for op, (key, count, _) in change.state.changes() if change.state is not None else ():
                stored[key] = 0 if op == Op.DELETE else count
        assert groups.dirty_groups == len(order)
        for key in set(range(12)).difference(order):
            assert shown.get(key, 0) == stored.get(key, 0) == rows[key]


def test_update_without_a_changed_result_is_only_stored():
    call = single("sum", DataType.BIGINT, DataType.numeric(38, 0))
    groups = AggGroups([0], [DataType.BIGINT], [AggSpec("sum", 1, DataType.BIGINT, call.output_type)])
    schema = Schema.of(k="bigint", v="bigint")
    first = from_pretty("+ 1 5", schema)
    groups.apply(first, groups.locate(first).ids)
    list(groups.flush())
    second = from_pretty("+ 1 0", schema)
    groups.apply(second, groups.locate(second).ids)
    (change,) = groups.flush()
    assert change.output is None
    assert list(change.state.changes()) == [(Op.UPDATE_INSERT, (1, 2, Decimal(5), 2))]


def test_errors():
    groups = AggGroups([0], [DataType.BIGINT], [single("min", DataType.BIGINT, DataType.BIGINT)])
    schema = Schema.of(k="bigint")
    chunk = from_pretty("- 1", schema)
    with pytest.raises(ConsistencyError, match="append-only min"):
        groups.apply(chunk, groups.locate(chunk).ids)
    groups = AggGroups([0], [DataType.BIGINT], [COUNT_ALL])
    groups.apply(chunk, groups.locate(chunk).ids)
    with pytest.raises(ConsistencyError, match="more were retracted") as caught:
        list(groups.flush())
    assert caught.value.key == (1,)
    stale = AggGroups([0], [DataType.BIGINT], [AggSpec("min", 0, DataType.BIGINT, DataType.BIGINT, True)])
    chunk = from_pretty("+ 1\n+ 1\n- 1", schema)
    stale.apply(chunk, stale.locate(chunk).ids)
    assert stale.stale(0).tolist() == [0]
    with pytest.raises(ConsistencyError, match="before it is refilled"):
        list(stale.flush())
    with pytest.raises(ConsistencyError, match="no input left"):
        stale.refill(0, np.array([0], np.int32), Column.from_pylist([None], DataType.BIGINT))


@pytest.mark.parametrize(
    "arguments",
    [
        ("median", 0, DataType.INT, DataType.INT),
        ("sum", None, None, DataType.INT),
        ("sum", 0, DataType.VARCHAR, DataType.INT),
        ("count", 0, None, DataType.BIGINT),
    ],
)
def test_specs_that_make_no_sense(arguments):
    with pytest.raises(ValueError):
        AggSpec(*arguments)


def test_capacity_bounds_memory():
    groups = AggGroups([0], [DataType.BIGINT], [COUNT_ALL], memory=MemoryBudget(400_000).share())
    for epoch in range(20):
        keys = np.arange(epoch * 2_000, (epoch + 1) * 2_000)
        chunk = DataChunk([Column(pa.array(keys))])
        groups.apply(chunk, groups.locate(chunk).ids)
        list(groups.flush())
        assert groups.size_bytes < 800_000
    assert max(row[0] for row in groups.results().rows()) == 39_999


def test_vanished_groups_are_forgotten():
    groups = AggGroups([0], [DataType.BIGINT], [COUNT_ALL])
    for epoch in range(10):
        keys = pa.array(np.arange(epoch * 5_000, (epoch + 1) * 5_000))
        for op in (0, 1):
            chunk = StreamChunk([Column(keys)], np.full(5_000, op, np.uint8))
            groups.apply(chunk, groups.locate(chunk).ids)
            list(groups.flush())
    assert groups.groups <= 10_000 and groups.results().visible_rows == 0


def calls_of_a_chunk(rows):
    """Number of Python and C calls to apply one chunk of known groups."""
    groups = AggGroups([0], [DataType.BIGINT], [COUNT_ALL, AggSpec("max", 0, DataType.BIGINT, DataType.BIGINT)])
    chunk = DataChunk([Column(pa.array(np.arange(rows) % 500))])
    groups.apply(chunk, groups.locate(chunk).ids)
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    groups.apply(chunk, groups.locate(chunk).ids)
    sys.setprofile(None)
    return calls


def test_python_calls_do_not_grow_with_rows():
    assert calls_of_a_chunk(1_024) == calls_of_a_chunk(4_096)


def test_only_evicted_groups_are_looked_up_in_the_store():
    groups = AggGroups([0], [DataType.BIGINT], [COUNT_ALL], memory=MemoryBudget(8_000_000).share())
    assert groups.possibly_stored(np.arange(3, dtype=np.int32)).tolist() == [0, 1, 2]     # unknown: all may be
    groups.track_evictions()
    rng, seen = np.random.default_rng(5), np.empty(0, np.int64)
    for epoch in range(30):
        fresh = np.arange(epoch * 10_000, (epoch + 1) * 10_000)
        again = rng.choice(seen, 2_000) if len(seen) else seen
        rows = DataChunk([Column(pa.array(np.concatenate([fresh, again])))])
        before = groups.groups
        located = groups.locate(rows)
        wanted = groups.possibly_stored(located.new_ids)
        keys = groups.keys(located.new_ids).columns[0].array.to_numpy()
        wanted_keys = groups.keys(wanted).columns[0].array.to_numpy()
        assert set(keys[keys < epoch * 10_000]) <= set(wanted_keys), "a group that was evicted is not looked up"
        assert (wanted_keys >= epoch * 10_000).sum() < 300
        assert before + len(located.new_ids) == groups.groups
        groups.apply(rows, located.ids)
        list(groups.flush())
        seen = np.concatenate([seen, fresh])
    assert groups.groups < 250_000


def test_a_filter_of_evicted_groups_beyond_its_budget_is_dropped():
    groups = AggGroups([0], [DataType.BIGINT], [COUNT_ALL], memory=MemoryBudget(100_000).share())
    groups.track_evictions()
    for first in (0, 50_000):
        rows = DataChunk([Column(pa.array(np.arange(first, first + 50_000)))])
        located = groups.locate(rows)
        groups.apply(rows, located.ids)
        list(groups.flush())
    assert groups.possibly_stored(located.new_ids).tolist() == located.new_ids.tolist()


@pytest.mark.parametrize("seed", seeds(5, 25))
@pytest.mark.parametrize("mode", ["kept", "reloaded", "evicted"])
def test_a_group_without_calls_changes_with_its_first_row(seed, mode):
    rng = random.Random(seed)
    groups, stored, present = None, {}, set()
    for _ in range(8):
        if groups is None or mode == "reloaded":
            groups = AggGroups([1], [DataType.VARCHAR], [],
                               memory=MemoryBudget(1).share() if mode == "evicted" else None)
        new = set()
        for _ in range(rng.randrange(4)):
            rows = [(0, rng.choice([None, *map(str, range(50))])) for _ in range(rng.randrange(1, 30))]
            chunk = StreamChunk.from_rows(Schema.of(k="bigint", name="varchar"), [(Op.INSERT, row) for row in rows])
            located = groups.locate(chunk)
            if mode != "kept":
                load(groups, located.new_ids, stored)
            groups.add_first(located.ids)
            new |= {name for _, name in rows} - present
            assert groups.dirty_groups == len(new)
        emitted = []
        for change in groups.flush():
            if change.output is not None:
                emitted += change.output.rows()
            follow_state(stored, change.state)
        assert sorted(emitted, key=repr) == sorted(((name,) for name in new), key=repr)
        present |= new
        assert stored == {name: (name, 1) for name in present}


def test_a_group_that_is_only_seen_again_is_not_evicted_for_its_age():
    """Seen groups count as touched, and dirty ones are not taken for flushed before."""
    groups = AggGroups([0], [DataType.BIGINT], [], memory=MemoryBudget(1 << 30).share())

    def add(first, end):
        chunk = DataChunk([Column.from_pylist(list(range(first, end)), DataType.BIGINT)])
        groups.add_first(groups.locate(chunk).ids)

    def flush():
        return sum(0 if change.output is None else change.output.capacity for change in groups.flush())

    add(0, 100)
    assert flush() == 100
    begun = groups.flushes
    add(100, 200)
    add(0, 150)
    assert groups.dirty_groups == 100 and groups.flushed_since(begun, 100) == 0
    assert flush() == 100
    add(0, 50)
    assert groups.dirty_groups == flush() == 0
