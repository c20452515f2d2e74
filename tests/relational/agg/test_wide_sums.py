"""SUM and AVG of NUMERIC beyond 38 digits: NULL and counted on overflow, exact again after deletes.

The oracle is Python's integers over the current rows. HUMMOCK_TEST_SEED repeats a run.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from relational.agg import AggGroups, AggSpec
from relational.chunk.data_chunk import DataChunk
from relational.chunk.stream_chunk import Op, StreamChunk
from relational.errors import EvaluationError
from relational.expr.aggregates import AggCall, AggKind, aggregate_type
from relational.types import DataType, Schema
from stream.plan.state_tables import group_table
from tests.relational.decimals import exact, rounded, unscaled

TYPES = [
    DataType.numeric(38, 0),
    DataType.numeric(38, 10),
    DataType.numeric(38, 38),
    DataType.numeric(20, 3),
    DataType.numeric(19, 19),
    DataType.BIGINT,
    DataType.INT,
]
INPUT = Schema.of(k="int", **{f"v{number}": str(each) for number, each in enumerate(TYPES)})
SPECS = [
    AggSpec(kind, 1 + number, each, aggregate_type(AggKind(kind), each))
    for number, each in enumerate(TYPES)
    for kind in ("sum", "avg")
]


def limits(data_type):
    if data_type.is_integer:
        bits = {DataType.INT: 31, DataType.BIGINT: 63}[data_type]
        return -(1 << bits), (1 << bits) - 1
    return 1 - 10**data_type.precision, 10**data_type.precision - 1


def random_value(rng, data_type):
    low, high = limits(data_type)
    value = rng.choice([low, low, high, high, 0, 1, -1, rng.randrange(low, high), None])
    return value if value is None or data_type.is_integer else exact(value, data_type.scale)


def result(spec, values):
    """The call's result over the rows, and whether it is NULL because of an overflow."""
    if not values:
        return None, False
    total = sum(unscaled(value, spec.input_type) for value in values)
    scale, from_scale = spec.output_type.scale or 0, spec.input_type.scale or 0
    amount = Fraction(total, len(values) if spec.kind == "avg" else 1) * Fraction(10) ** (scale - from_scale)
    found = rounded(amount)
    low, high = limits(spec.output_type)
    if not low <= found <= high:
        return None, True
    return (found if spec.output_type.is_integer else exact(found, scale)), False


def oracle(rows):
    """Results by group, and the number of overflows by reason."""
    view, failures = {}, Counter()
    for key in {row[0] for row in rows}:
        results = []
        for spec in SPECS:
            values = [row[spec.argument] for row in rows if row[0] == key and row[spec.argument] is not None]
            value, failed = result(spec, values)
            results.append(value)
            failures[f"value out of range for {spec.kind.upper()}"] += failed
        view[key] = (key, *results)
    return view, {reason: count for reason, count in failures.items() if count}


class Follower:
    """A view and its stored states, maintained from the output of AggGroups."""

    def __init__(self):
        self.view, self.stored, self.failures = {}, {}, Counter()

    def flush(self, groups):
        for change in groups.flush():
            self.failures.update(change.failures)
            for op, row in () if change.output is None else change.output.changes():
                if op in (Op.DELETE, Op.UPDATE_DELETE):
                    assert self.view.pop(row[0]) == row
                else:
                    assert row[0] not in self.view
                    self.view[row[0]] = row
            for op, row in () if change.state is None else change.state.changes():
                self.stored.pop(row[0], None)
                if op is not Op.DELETE:
                    self.stored[row[0]] = row

    def counted(self):
        return {reason: count for reason, count in self.failures.items() if count}

    def load(self, groups, ids):
        keys = [key for (key,) in groups.keys(ids).rows()]
        schema = Schema.of(**{f"c{number}": str(each) for number, each in enumerate(groups.state_types)})
        blank = (None,) * len(groups.state_types)
        rows = DataChunk.from_rows(schema, [self.stored.get(key, blank) for key in keys])
        groups.load(ids, rows, np.array([key in self.stored for key in keys], np.uint8))


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_results_leave_the_range_and_come_back(rng, is_reloaded):
    for _ in range(12):
        rows, follower = [], Follower()
        groups = AggGroups([0], [DataType.INT], SPECS)
        for epoch in range(10):
            if is_reloaded:
                groups = AggGroups([0], [DataType.INT], SPECS)
            changes = []
            for _ in range(rng.randrange(1, 14)):
                if rows and rng.random() < (0.45 if epoch < 8 else 0.9):
                    changes.append((Op.DELETE, rows.pop(rng.randrange(len(rows)))))
                else:
                    rows.append((rng.randrange(3), *(random_value(rng, each) for each in TYPES)))
                    changes.append((Op.INSERT, rows[-1]))
            chunk = StreamChunk.from_rows(INPUT, changes)
            located = groups.locate(chunk)
            if is_reloaded:
                follower.load(groups, located.new_ids)
            groups.apply(chunk, located.ids)
            follower.flush(groups)
            view, failures = oracle(rows)
            assert follower.view == view
            assert follower.counted() == failures


def test_batch_names_what_is_out_of_range(rng):
    for _ in range(60):
        rows = [(0, *(random_value(rng, each) for each in TYPES)) for _ in range(rng.randrange(1, 6))]
        for index, spec in enumerate(SPECS):
            groups = AggGroups([], [], [spec], strict=True)
            groups.apply(chunk := DataChunk.from_rows(INPUT, rows), groups.locate(chunk).ids)
            value, failed = result(spec, [row[spec.argument] for row in rows if row[spec.argument] is not None])
            if failed:
                with pytest.raises(EvaluationError, match=f"value out of range for {spec.kind.upper()}"):
                    groups.results()
            else:
                assert list(groups.results().rows()) == [(value,)], index


def test_a_group_out_of_range_is_counted_once_and_emits_nothing_new():
    spec = AggSpec("sum", 0, TYPES[0], TYPES[0])
    groups, schema = AggGroups([], [], [spec]), Schema.of(v="numeric(38,0)")
    most = 10**38 - 1
    failures, outputs = [], []
    for values, op in (([most], 0), ([most], 0), ([most, most], 0), ([most], 1), ([most, most], 1), ([most], 1)):
        chunk = StreamChunk.from_rows(schema, [(Op(op), (exact(value, 0),)) for value in values])
        groups.apply(chunk, groups.locate(chunk).ids)
        (change,) = groups.flush()
        failures.append(change.failures)
        outputs.append(None if change.output is None else [row for _, row in change.output.changes()])
    reason = "value out of range for SUM"
    assert failures == [{}, {reason: 1}, {}, {}, {reason: -1}, {}]
    full, empty = (exact(most, 0),), (None,)
    assert outputs == [[full], [full, empty], None, None, [empty, full], [full, empty]]


def test_a_state_that_was_stored_with_38_digits_alone_goes_on():
    """Column `above` is NULL in such a state; its 128-bit sum may slightly exceed 38 digits."""
    spec = AggSpec("sum", 0, TYPES[0], TYPES[0])
    for old in (0, 5, -7, 10**38 - 1, 1 - 10**38):
        groups = AggGroups([], [], [spec])
        stored = DataChunk.from_rows(
            Schema.of(n="bigint", s="numeric(38,0)", c="bigint", above="bigint"), [(2, exact(old, 0), 2, None)]
        )
        groups.load(groups.open_global(), stored)
        chunk = StreamChunk.from_rows(Schema.of(v="numeric(38,0)"), [(Op.DELETE, (exact(1 - 10**38, 0),))])
        groups.apply(chunk, groups.locate(chunk).ids)
        total = old + 10**38 - 1
        (change,) = groups.flush()
        assert [row for _, row in change.output.changes()][-1] == (exact(total, 0) if total < 10**38 else None,)
        (_, (*_, low, _, above)) = next(iter(change.state.changes()))
        assert unscaled(low, TYPES[0]) + above * 10**38 == total


@pytest.mark.parametrize("count", [1, 3, 1 << 20, (1 << 62) + 1])
def test_a_sum_of_any_number_of_rows_is_read_back(count):
    """Sums of up to 2**62 + 1 values of the largest magnitude, loaded from a stored state."""
    most = 10**38 - 1
    for total in (count * most, -count * most, count * most - 10**38 + 1):
        spec = AggSpec("avg", 0, TYPES[0], DataType.numeric(38, 10))
        groups = AggGroups([], [], [spec])
        sign = -1 if total < 0 else 1
        above, low = divmod(abs(total), 10**38)
        row = (count, exact(sign * low, 0), count, sign * above)
        stored = DataChunk.from_rows(Schema.of(n="bigint", s="numeric(38,0)", c="bigint", above="bigint"), [row])
        groups.load(groups.open_global(), stored)
        chunk = StreamChunk.from_rows(Schema.of(v="numeric(38,0)"), [(Op.INSERT, (exact(0, 0),))])
        groups.apply(chunk, groups.locate(chunk).ids)
        (change,) = groups.flush()
        assert next(iter(change.state.changes()))[1] == (count + 1, row[1], count + 1, row[3])
        before, after = (result_of(Fraction(total, rows)) for rows in (count, count + 1))
        if before == after:
            assert change.output is None
        else:
            assert [row for _, row in change.output.changes()] == [(before,), (after,)]


@pytest.mark.parametrize("scale", [0, 6, 10, 18])
def test_averages_are_exact_where_64_bits_end(scale):
    """Sums and counts of which the sum, or a product on the way, just fits 64 bits, or does not."""
    totals = [sign * (limit + more) for limit in (0, 1 << 31, 1 << 63, 10**18) for more in (-1, 0, 1)
              for sign in (1, -1)]
    counts = [1, 2, 3, 7, *(min((1 << 63) // 10**scale + more, 1 << 62) for more in range(3)), 1 << 31, 1 << 61]
    pairs = [(total, count) for total in totals for count in counts if abs(total) // count < 10**(38 - scale)]
    groups = AggGroups([0], [DataType.BIGINT], [AggSpec("avg", 1, TYPES[0], DataType.numeric(38, scale))])
    schema = Schema.of(k="bigint", v="numeric(38,0)")
    chunk = StreamChunk.from_rows(schema, [(Op.INSERT, (key, exact(0, 0))) for key in range(len(pairs))])
    located = groups.locate(chunk)
    stored = Schema.of(k="bigint", n="bigint", s="numeric(38,0)", c="bigint", above="bigint")
    rows = [(key, count, exact(total, 0), count, 0) for key, (total, count) in enumerate(pairs)]
    groups.load(located.new_ids, DataChunk.from_rows(stored, rows))
    found = dict(groups.results().rows())
    assert found == {key: exact(rounded(Fraction(total, count) * 10**scale), scale)
                     for key, (total, count) in enumerate(pairs)}


def result_of(average):
    """The average as NUMERIC(38, 10); None if it does not fit."""
    found = rounded(average * 10**10)
    return exact(found, 10) if abs(found) < 10**38 else None


def test_the_planner_lays_out_the_states_that_groups_flush():
    calls = [
        AggCall(AggKind(spec.kind), spec.argument, None, False, spec.output_type) for spec in SPECS
    ]
    table = group_table(7, "t", 6, INPUT, (0,), calls)
    assert table.schema.types == AggGroups([0], [DataType.INT], SPECS).state_types


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_sums_grow_wide_in_the_middle_of_an_epoch(rng, is_reloaded):
    """Small values first: the record layout is widened while groups are dirty and hold saved prior states."""
    data_type, schema = TYPES[0], Schema.of(k="int", w="numeric(38,0)", t="varchar")
    specs = [
        AggSpec("count", None, None, DataType.BIGINT),
        AggSpec("min", 2, DataType.VARCHAR, DataType.VARCHAR),
        AggSpec("sum", 1, data_type, data_type),
        AggSpec("avg", 1, data_type, DataType.numeric(38, 10)),
    ]
    groups, rows, follower = AggGroups([0], [DataType.INT], specs), [], Follower()
    for epoch in range(9):
        if is_reloaded and epoch:
            groups = AggGroups([0], [DataType.INT], specs)
        for part in range(3):
            digits = 9 if epoch < 3 or (epoch == 3 and part == 0) else 38
            fresh = [
                (rng.randrange(6), exact(rng.choice((1, -1)) * rng.randrange(10**digits), 0), f"text {rng.random()}")
                for _ in range(rng.randrange(9))
            ]
            rows += fresh
            chunk = StreamChunk.from_rows(schema, [(Op.INSERT, row) for row in fresh])
            located = groups.locate(chunk)
            if is_reloaded:
                follower.load(groups, located.new_ids)
            groups.apply(chunk, located.ids)
        follower.flush(groups)
        expected = {}
        for key in {row[0] for row in rows}:
            values, texts = zip(*((row[1], row[2]) for row in rows if row[0] == key), strict=True)
            total, average = (result(spec, values)[0] for spec in specs[2:])
            expected[key] = (key, len(values), min(texts), total, average)
        assert follower.view == expected
