"""MIN and MAX that keep values in the state, against all values of each group and a model of the overflow table."""

import datetime
from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest

from relational.agg import MOST_VALUES, REFILLED_VALUES, AggGroups, AggSpec
from relational.chunk import Column, DataChunk, Op, StreamChunk
from relational.errors import ConsistencyError, EncodingError
from relational.memory_budget import MemoryBudget
from relational.types import DataType
from tests.support.drivers.seeds import amount, run_seed

KINDS = [DataType.SMALLINT, DataType.BIGINT, DataType.REAL, DataType.DOUBLE, DataType.DATE, DataType.TIMESTAMP]
GROUP_TYPES = (DataType.INT,)


def groups_of(kind, data_type, **options):
    spec = AggSpec(kind, 1, data_type, data_type, is_retractable=True, keeps_values=True)
    return AggGroups((0,), GROUP_TYPES, [spec], **options)


class Model:
    """Groups over every value that is present, and the overflow table as its owner keeps it."""

    def __init__(self, kind, data_type, **options):
        self.kind, self.data_type = kind, data_type
        self.groups = groups_of(kind, data_type, **options)
        self.present = defaultdict(Counter)
        self.table = defaultdict(Counter)
        self.stored = {}
        self.results = {}
        self.refills = 0

    def apply(self, changes):
        """`changes`: (is insert, group, value)."""
        ops = np.array([Op.INSERT if insert else Op.DELETE for insert, _, _ in changes], np.uint8)
        columns = [Column.from_pylist([group for _, group, _ in changes], DataType.INT),
                   Column.from_pylist([value for _, _, value in changes], self.data_type)]
        chunk = StreamChunk(columns, ops)
        located = self.groups.locate(chunk)
        self.load(self.groups.possibly_stored(located.new_ids))
        self.groups.apply(chunk, located.ids)
        for insert, group, value in changes:
            self.present[group][value] += 1 if insert else -1

    def load(self, ids):
        """Groups that are not in memory have the state that was stored."""
        wanted = [key for (key,) in self.groups.keys(ids).rows()]
        found = np.array([key in self.stored for key in wanted], np.uint8)
        rows = [(key, *self.stored.get(key, (1, b"\0" * 8, 0))) for key in wanted]
        types = self.groups.state_types
        columns = [Column.from_pylist([row[at] for row in rows], data_type) for at, data_type in enumerate(types)]
        self.groups.load(ids, DataChunk(columns, capacity=len(ids)), found)

    def in_order(self, values):
        return sorted(values, reverse=self.kind == "max")

    def flush(self):
        ids, values, rows = self.groups.overflow(0)
        keys = [key for (key,) in self.groups.keys(ids).rows()]
        for key, value, change in zip(keys, values.to_pylist(), rows.tolist(), strict=True):
            assert change
            self.table[key][value] += change
            assert self.table[key][value] >= 0
        self.refill()
        for change in self.groups.flush():
            if change.output is not None:
                for op, (key, result) in change.output.changes():
                    self.results.pop(key, None)
                    if op in (Op.INSERT, Op.UPDATE_INSERT):
                        self.results[key] = result
            if change.state is not None:
                for op, (key, *state) in change.state.changes():
                    self.stored.pop(key, None)
                    if op != Op.DELETE:
                        self.stored[key] = tuple(state)

    def refill(self):
        stale = self.groups.stale(0)
        owners, values, rows = [], [], []
        for owner, (key,) in enumerate(self.groups.keys(stale).rows()):
            for value in self.in_order(+self.table[key])[:REFILLED_VALUES]:
                owners.append(owner)
                values.append(value)
                rows.append(self.table[key].pop(value))
        self.refills += len(stale)
        self.groups.refill_values(0, stale, np.array(owners, np.int32), Column.from_pylist(values, self.data_type),
                                  Column.from_pylist(rows, DataType.BIGINT))

    def check(self):
        extreme = min if self.kind == "min" else max
        wanted = {key: extreme(+values) for key, values in self.present.items() if +values}
        assert self.results == wanted
        for key, (count, stored, arguments) in self.stored.items():
            assert count == arguments == self.present[key].total()
            assert (len(stored) - 8) // 9 <= MOST_VALUES
            assert bool(+self.table[key]) == (stored[:8] != bytes(8))


def random_changes(rng, present, groups, values, rows, deletes):
    changes, left = [], {group: list(counts.elements()) for group, counts in present.items()}
    for _ in range(rows):
        group = int(rng.integers(groups))
        mine = left.setdefault(group, [])
        if mine and rng.random() < deletes:
            removed = (min, max)[rng.integers(2)](mine) if rng.random() < 0.7 else mine[rng.integers(len(mine))]
            mine.remove(removed)
            changes.append((False, group, removed))
        else:
            mine.append(values(rng))
            changes.append((True, group, mine[-1]))
    return changes


def values_of(data_type):
    if data_type == DataType.DATE:
        return lambda rng: datetime.date(2020, 1, 1) + datetime.timedelta(int(rng.integers(-300, 300)))
    if data_type == DataType.DOUBLE:
        extremes = [-np.inf, 0.0, 1e300, np.inf]
        return lambda rng: float(np.round(rng.normal(), 2)) if rng.random() < 0.95 else float(rng.choice(extremes))
    if data_type == DataType.REAL:
        return lambda rng: float(rng.integers(-1_000, 1_000)) / 8
    if data_type == DataType.TIMESTAMP:
        first = datetime.datetime(1969, 12, 31)
        return lambda rng: first + datetime.timedelta(microseconds=int(rng.integers(2 * 10**11)))
    if data_type == DataType.BIGINT:
        limits = [-(2**63), 2**63 - 1]
        return lambda rng: int(rng.choice(limits)) if rng.random() < 0.05 else int(rng.integers(-200, 200))
    return lambda rng: int(rng.integers(-100, 100))


@pytest.mark.parametrize("data_type", KINDS, ids=str)
@pytest.mark.parametrize("kind", ["min", "max"])
def test_results_are_those_of_all_values_and_the_state_is_bounded(kind, data_type):
    rng = np.random.default_rng(run_seed())
    model, values = Model(kind, data_type), values_of(data_type)
    for epoch in range(400):
        if epoch >= amount(20, 40) and model.refills:
            break
        for _ in range(int(rng.integers(1, 4))):
            deletes = float(rng.choice([0.05, 0.5, 0.95]))
            model.apply(random_changes(rng, model.present, 5, values, int(rng.integers(1, 800)), deletes))
        model.flush()
        model.check()
    assert model.refills, "no seed spares the overflow table for 400 epochs"


def test_a_queue_takes_from_one_end_what_came_in_at_the_other():
    """The first values of a group are always those that leave: all others pass through the overflow table."""
    model = Model("min", DataType.BIGINT)
    for first in range(0, 2_000, 100):
        model.apply([(True, 0, value) for value in range(first, first + 100)])
        if first:
            model.apply([(False, 0, value) for value in range(first - 100, first)])
        model.flush()
        model.check()
    assert model.refills == 19


def test_evicted_groups_come_back_with_their_values():
    rng = np.random.default_rng(run_seed())
    model, values = Model("max", DataType.SMALLINT, memory=MemoryBudget(1).share()), values_of(DataType.SMALLINT)
    for _ in range(30):
        model.apply(random_changes(rng, model.present, 8, values, 300, 0.5))
        model.flush()
        model.check()
        assert model.groups.groups == 0


def test_many_changes_of_one_epoch_are_netted():
    """More than fit before they are netted: all of the values beyond the first ones come and go."""
    model = Model("min", DataType.BIGINT)
    model.apply([(True, 0, value) for value in range(2 * MOST_VALUES)])
    model.flush()
    size = None
    block = [(True, 0, 10_000 + value) for value in range(40_000)]
    for _ in range(8):
        model.apply(block)
        model.apply([(False, *change[1:]) for change in block])
        size = size or model.groups.size_bytes
    assert model.groups.size_bytes < 4 * size
    ids, _, _ = model.groups.overflow(0)
    assert not len(ids)


def test_the_example_of_the_stored_form():
    model = Model("max", DataType.SMALLINT)
    model.apply([(True, 7, 3), (True, 7, 3), (True, 7, -2)])
    model.flush()
    assert model.stored == {7: (3, bytes.fromhex("0000000000000000 7ffffffffffffffc 02 8000000000000001 01"), 3)}


def test_a_value_that_the_group_lacks_is_no_retraction():
    model = Model("min", DataType.INT)
    model.apply([(True, 0, 1)])
    with pytest.raises(ConsistencyError, match="does not have"):
        model.apply([(False, 0, 2)])


def test_a_table_that_lost_rows_is_named():
    model = Model("min", DataType.INT)
    model.apply([(True, 0, value) for value in range(2 * MOST_VALUES)])
    model.flush()
    model.apply([(False, 0, value) for value in range(MOST_VALUES)])
    model.table.clear()
    with pytest.raises(ConsistencyError, match="0 values left for 32 arguments"):
        model.flush()


def test_results_are_refused_before_the_changes_are_taken():
    model = Model("min", DataType.INT)
    model.apply([(True, 0, value) for value in range(MOST_VALUES + 1)])
    with pytest.raises(ConsistencyError, match="were not taken"):
        next(model.groups.flush())


@pytest.mark.parametrize("stored", [b"", b"\0" * 7, b"\0" * 12, b"\0" * 8 + b"\0" * 8 + b"\0",
                                    b"\0" * 8 + (b"\0" * 8 + b"\1") * 2, b"\0" * 8 + b"\0" * 8 + b"\x80" * 10,
                                    b"\0" * 8 + b"\0" * 8 + b"\5"])
def test_damaged_states_are_an_error(stored):
    groups = groups_of("min", DataType.INT)
    chunk = StreamChunk([Column.from_pylist([1], DataType.INT), Column.from_pylist([1], DataType.INT)],
                        np.zeros(1, np.uint8))
    located = groups.locate(chunk)
    columns = [Column(pa.array([value]), data_type)
               for value, data_type in zip((1, 1, stored, 1), groups.state_types, strict=True)]
    with pytest.raises(EncodingError, match="damaged"):
        groups.load(located.new_ids, DataChunk(columns))


def test_all_nans_are_one_value_above_all_others_and_both_zeros_are_one():
    model = Model("max", DataType.DOUBLE)
    model.apply([(True, 0, -0.0), (True, 0, float("inf")), (True, 0, float("nan")), (True, 0, -float("nan"))])
    model.apply([(False, 0, 0.0)])
    ids, _, _ = model.groups.overflow(0)
    (change,) = model.groups.flush()
    assert not len(ids) and np.isnan(change.output.columns[1].to_pylist()[0])
    assert len(change.state.columns[2].to_pylist()[0]) == 8 + 2 * 9


def test_words():
    words = ["smallint", "int", "bigint", "real", "double", "date", "time", "timestamp", "timestamptz"]
    others = ["boolean", "numeric", "numeric(5,2)", "varchar", "interval", "bytea", "jsonb", "int[]"]
    assert [name for name in words + others if DataType.parse(name).is_word] == words
