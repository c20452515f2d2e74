"""States of parts of the rows, merged: the same groups and changes as if all rows had been applied in one place."""

import random

import numpy as np
import pytest

from relational.agg import AggGroups, AggSpec
from relational.agg.spec import adds_up
from relational.chunk.data_chunk import DataChunk
from relational.chunk.stream_chunk import Op, StreamChunk
from relational.types import DataType, Schema
from tests.relational.agg.test_groups import (
    COUNT_ALL,
    INPUT,
    TYPES,
    LiveRows,
    check_view,
    follow,
    follow_state,
    load,
    random_row,
    spec,
)
from tests.support.drivers.seeds import amount, run_seed

SUMS = [COUNT_ALL, spec("count", 3), spec("bool_and", 9), spec("bool_or", 9),
        *(spec(kind, column) for column in (1, 3, 10) for kind in ("var_samp", "stddev_pop")),
        *(spec(kind, column) for column in range(1, 5) for kind in ("sum", "avg"))]
EXTREMES = [*SUMS, COUNT_ALL, *(spec(kind, column) for column in (2, 4, 6, 7, 8) for kind in ("min", "max"))]


def plain(chunk):
    """Changes without pairs, which may part."""
    return [(Op.DELETE if op in (Op.DELETE, Op.UPDATE_DELETE) else Op.INSERT, row) for op, row in chunk.changes()]


def states_of(changes, specs):
    groups = AggGroups([0], [TYPES[0]], specs)
    for first in range(0, len(changes), 7):
        chunk = StreamChunk.from_rows(INPUT, changes[first : first + 7])
        groups.apply(chunk, groups.locate(chunk).ids)
    return list(groups.take_states())


@pytest.mark.parametrize("mode", ["kept", "reloaded"])
@pytest.mark.parametrize(("specs", "appends"), [(SUMS, False), (EXTREMES, True)])
def test_parts_of_the_changes_add_up(specs, appends, mode):
    rng = random.Random(run_seed())
    present, view, stored, groups = LiveRows(rng), {}, {}, None
    for _ in range(amount(30, 60)):
        if groups is None or mode == "reloaded":
            groups = AggGroups([0], [TYPES[0]], specs)
        if appends:
            rows = [random_row(rng) for _ in range(rng.randrange(40))]
            present.rows += rows
            changes = [(Op.INSERT, row) for row in rows]
        else:
            changes = plain(present.changes(rng.randrange(60)))
        rng.shuffle(changes)
        cuts = sorted(rng.randrange(len(changes) + 1) for _ in range(2))
        parts = [changes[: cuts[0]], changes[cuts[0] : cuts[1]], changes[cuts[1] :]]
        states = [chunk for part in parts for chunk in states_of(part, specs)]
        if states and rng.random() < 0.5:
            states = [DataChunk.concat(states)]      # the states of one group come twice in a chunk
        for chunk in states:
            located = groups.locate(chunk, of_states=True)
            if mode == "reloaded":
                load(groups, located.new_ids, stored)
            groups.merge(chunk, located.ids)
        for change in groups.flush():
            follow(view, change.output)
            follow_state(stored, change.state)
        check_view(view, present, specs)


def test_the_group_without_columns_is_one_state():
    rows = DataChunk.from_rows(Schema.of(v="bigint"), [(3,), (None,), (4,)])
    specs = [COUNT_ALL, AggSpec("sum", 0, DataType.BIGINT, DataType.numeric(38, 0))]
    parts = [AggGroups([], [], specs) for _ in range(2)]
    for part in parts:
        part.apply(rows, part.locate(rows).ids)
    whole = AggGroups([], [], specs)
    for part in parts:
        (states,) = part.take_states()
        assert states.capacity == 1
        whole.merge(states, whole.locate(states, of_states=True).ids)
    (change,) = whole.flush()
    assert [row for _, row in change.output.changes()] == [(6, 14)]


def test_sums_beyond_128_bits_are_merged_exactly():
    wide = DataType.numeric(38, 0)
    specs = [AggSpec("sum", 1, wide, wide), AggSpec("avg", 1, wide, DataType.numeric(38, 0))]
    most = 10**38 - 1
    schema = Schema.of(k="bigint", v="numeric(38,0)")
    whole = AggGroups([0], [DataType.BIGINT], specs)
    for sign, op in ((1, Op.INSERT), (-1, Op.INSERT), (-1, Op.DELETE)):
        part = AggGroups([0], [DataType.BIGINT], specs)
        chunk = StreamChunk.from_rows(schema, [(op, (1, sign * most))] * 6)
        part.apply(chunk, part.locate(chunk).ids)
        (states,) = part.take_states()
        whole.merge(states, whole.locate(states, of_states=True).ids)
        if sign == 1:
            (change,) = whole.flush()
            assert [row for _, row in change.output.changes()] == [(1, None, most)]
            assert change.failures == {"value out of range for SUM": 1}
    (change,) = whole.flush()
    assert change.failures == {}, "the six beyond the range are left"
    chunk = StreamChunk.from_rows(schema, [(Op.DELETE, (1, most))] * 5)
    whole.apply(chunk, whole.locate(chunk).ids)
    (change,) = whole.flush()
    assert [row for _, row in change.output.changes()][-1] == (1, most, most)


@pytest.mark.parametrize(("call", "is_additive"), [
    (COUNT_ALL, True), (spec("bool_or", 9), True), (spec("var_pop", 3), True), (spec("stddev_samp", 6), False),
    (spec("sum", 4), True), (spec("avg", 2), True),
    (spec("min", 7), True), (spec("max", 2), True),
    (spec("sum", 6), False), (spec("avg", 5), False)])
def test_states_that_do_not_add_up_are_known(call, is_additive):
    assert adds_up(call.kind, call.input_type) == is_additive
    if not is_additive:
        groups = AggGroups([0], [TYPES[0]], [call])
        (states,) = states_of([(Op.INSERT, random_row(random.Random(1)))], [call])
        with pytest.raises(TypeError, match="cannot be merged"):
            groups.merge(states, groups.locate(states, of_states=True).ids)


def test_states_of_other_calls_are_refused():
    (states,) = states_of([(Op.INSERT, random_row(random.Random(1)))], SUMS)
    groups = AggGroups([0], [TYPES[0]], [COUNT_ALL, spec("sum", 4)])
    with pytest.raises(ValueError, match="state of"):
        groups.merge(states, groups.locate(states, of_states=True).ids)
    with pytest.raises(IndexError):
        AggGroups([0], [TYPES[0]], SUMS).merge(states, np.zeros(1, np.int32))
