"""JoinIndex and JoinProbe against dicts of rows."""

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from relational.chunk.column import Column
from relational.chunk.data_chunk import DataChunk
from relational.chunk.stream_chunk import Op, StreamChunk
from relational.errors import ConsistencyError
from relational.join.join_index import JoinIndex
from relational.join.join_probe import JoinProbe
from relational.memory_budget import MemoryBudget
from relational.types import DataType, Schema
from tests.support.drivers.seeds import seeds

SCHEMA = Schema.of(id="bigint", k="bigint", name="varchar", ok="boolean", small="smallint", price="numeric(20,3)")
KEYS = {"word": (1,), "text": (2,), "several": (1, 3)}
STREAM_KEYS = {"word": (0,), "several": (0, 2)}


def random_row(rng, number):
    return (
        number,
        rng.choice([None, *range(6)]),
        rng.choice([None, "", "a", "ü", "longer than eight bytes"]),
        rng.choice([None, True, False]),
        rng.choice([None, -5, 300]),
        rng.choice([None, 1, 2]),
    )


class Oracle:
    """All stored rows: stream key -> row, and stream key -> degree."""

    def __init__(self, key_columns, null_safe, stream_key):
        self.key_columns, self.null_safe, self.stream_key = key_columns, null_safe, stream_key
        self.rows, self.degrees = {}, {}

    def stream_key_of(self, row):
        return tuple(row[column] for column in self.stream_key)

    def key_of(self, row):
        """The join key of a row, or None where it equals nothing."""
        return self.comparable(tuple(row[column] for column in self.key_columns))

    def comparable(self, key):
        """The key, or None where it equals nothing."""
        pairs = zip(key, self.null_safe, strict=True)
        return None if any(value is None and not is_safe for value, is_safe in pairs) else key

    def changes(self, rng, fresh):
        out = []
        for _ in range(rng.randrange(1, 40)):
            if self.rows and rng.random() < 0.45:
                old = self.rows.pop(rng.choice(list(self.rows)))
                out.append((Op.DELETE, old))
                if rng.random() < 0.4:
                    new = random_row(rng, old[0])
                    new = (*new[:2], old[2], *new[3:]) if 2 in self.stream_key else new
                    self.rows[self.stream_key_of(new)] = new
                    out[-1] = (Op.UPDATE_DELETE, old)
                    out.append((Op.UPDATE_INSERT, new))
            else:
                row = random_row(rng, next(fresh))
                self.rows[self.stream_key_of(row)] = row
                out.append((Op.INSERT, row))
        return out

    def matches(self, keys):
        by_key = {}
        for row in self.rows.values():
            by_key.setdefault(self.key_of(row), []).append(row)
        return Counter((at, row) for at, key in enumerate(keys) if key is not None for row in by_key.get(key, ()))


def key_columns_of(keys, types):
    return [Column.from_pylist([key[at] for key in keys], data_type) for at, data_type in enumerate(types)]


def load_new(index, oracle, new_ids, columns, ids):
    """Loads new and evicted keys into the index, as an executor does."""
    new = set(new_ids.tolist())
    wanted = {tuple(row) for row, number in zip(zip(*(c.to_pylist() for c in columns), strict=True), ids, strict=True)
              if number in new}  # fmt: skip
    rows = [row for row in oracle.rows.values() if oracle.key_of(row) in wanted]
    degrees = np.array([oracle.degrees.get(oracle.stream_key_of(row), 0) for row in rows], np.int32)
    index.load(DataChunk.from_rows(SCHEMA, rows), degrees)


def check_probe(rng, index, oracle):
    keys = [tuple(row[column] for column in oracle.key_columns) for row in (random_row(rng, 0) for _ in range(30))]
    columns = key_columns_of(keys, [SCHEMA.types[column] for column in oracle.key_columns])
    shown = np.array([rng.random() < 0.9 for _ in keys], np.uint8)
    located = index.locate(columns, shown)
    load_new(index, oracle, located.new_ids, columns, located.ids.tolist())
    got, limit, before = Counter(), rng.choice([1, 3, 100]), -1
    for probe_rows, row_ids in JoinProbe(index, located.ids, limit):
        assert 0 < len(probe_rows) <= limit and probe_rows[0] >= before and (np.diff(probe_rows) >= 0).all()
        before = probe_rows[-1]
        rows = DataChunk(index.gather(row_ids)).rows()
        got.update(zip(probe_rows.tolist(), rows, strict=True))
        check_degrees(rng, index, oracle, row_ids)
    comparable = [oracle.comparable(key) for key in keys]
    want = oracle.matches([key if seen else None for key, seen in zip(comparable, shown, strict=True)])
    assert got == want
    per_row = Counter(at for at, _ in want.elements())
    assert index.counts(located.ids).tolist() == [per_row[at] for at in range(len(keys))]


def check_degrees(rng, index, oracle, row_ids):
    names = [oracle.stream_key_of(row) for row in DataChunk(index.gather(row_ids)).rows()]
    assert index.degrees(row_ids).tolist() == [oracle.degrees.get(name, 0) for name in names]
    weights = np.array([rng.choice([0, 1]) for _ in names], np.int8)
    expected = []
    for name, weight in zip(names, weights.tolist(), strict=True):
        oracle.degrees[name] = oracle.degrees.get(name, 0) + weight
        expected.append(oracle.degrees[name])
    assert index.change_degrees(row_ids, weights).tolist() == expected


def apply_changes(rng, index, oracle, changes):
    chunk = StreamChunk.from_rows(SCHEMA, changes)
    columns = [chunk.columns[column] for column in oracle.key_columns]
    ids = index.locate(columns, is_adding=index.is_complete).ids
    degrees = np.zeros(len(changes), np.int32)
    for at, (op, row) in enumerate(changes):
        oracle.degrees.pop(oracle.stream_key_of(row), None)
        if op in (Op.INSERT, Op.UPDATE_INSERT) and rng.random() < 0.3:
            degrees[at] = oracle.degrees[oracle.stream_key_of(row)] = rng.randrange(3)
    index.apply(chunk, ids, degrees)


@pytest.mark.parametrize("seed", seeds(1, 5))
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("stream_key", STREAM_KEYS)
@pytest.mark.parametrize("budget", [None, 1, 12_000])
def test_matches_follow_the_oracle(seed, key, stream_key, budget):
    rng = random.Random(f"{seed} {key} {stream_key} {budget}")
    null_safe = tuple(rng.random() < 0.5 for _ in KEYS[key])
    oracle = Oracle(KEYS[key], null_safe, STREAM_KEYS[stream_key])
    index = JoinIndex(SCHEMA.types, KEYS[key], oracle.stream_key, null_safe=null_safe,
                      memory=None if budget is None else MemoryBudget(budget).share(), has_degrees=True)
    fresh = iter(range(10**6))
    for _ in range(8):
        for _ in range(rng.randrange(4)):
            apply_changes(rng, index, oracle, oracle.changes(rng, fresh))
            check_probe(rng, index, oracle)
        if index.is_complete:
            assert index.rows == sum(oracle.key_of(row) is not None for row in oracle.rows.values())
        index.end_epoch()
        if budget is not None:
            assert index.size_bytes <= budget or index.keys == 0


@pytest.mark.parametrize("seed", range(3))
def test_gaps_strings_and_empty_keys_are_given_back(seed):
    rng = np.random.default_rng(seed)
    index = JoinIndex([DataType.BIGINT, DataType.VARCHAR], [0], [0])
    held, before = [], None
    for epoch in range(20):
        names = pa.array([f"{epoch} {'x' * 50} {n}" for n in range(5_000)])
        chunk = StreamChunk([pa.array(np.arange(5_000) + 5_000 * epoch), names], np.zeros(5_000, np.uint8))
        index.apply(chunk, index.locate(chunk.columns[:1]).ids)
        if before is not None:
            picked = rng.permutation(before.capacity)[:4_900].astype(np.int32)
            deletes = StreamChunk(before.take(picked).columns, np.ones(len(picked), np.uint8))
            index.apply(deletes, index.locate(deletes.columns[:1]).ids)
        before = chunk
        index.end_epoch()
        held.append(index.size_bytes)
    assert index.rows == 5_000 + 19 * 100
    assert held[-1] < 2 * max(held[:4])
    (probe_rows, row_ids), *more = JoinProbe(index, index.locate([Column(pa.array(np.arange(100_000)))]).ids)
    ids, names = index.gather(row_ids)
    assert not more and len(ids) == index.rows and (ids.to_numpy() == probe_rows).all()
    assert all(name.endswith(f"x {n % 5_000}") for n, name in zip(ids.to_pylist(), names.to_pylist(), strict=True))


def test_one_key_with_many_rows_in_bounded_batches():
    index = JoinIndex([DataType.BIGINT, DataType.BIGINT], [1], [0])
    rows = 100_000
    chunk = StreamChunk([pa.array(np.arange(rows)), pa.array(np.full(rows, 7))], np.zeros(rows, np.uint8))
    index.apply(chunk, index.locate(chunk.columns[1:]).ids)
    for op in (1, 0, 1):
        half = StreamChunk(chunk.slice(0, rows // 2).columns, np.full(rows // 2, op, np.uint8))
        index.apply(half, index.locate(half.columns[1:]).ids)
    seen = []
    for probe_rows, row_ids in JoinProbe(index, index.locate([pa.array([3, 7])]).ids, 999):
        assert len(row_ids) <= 999 and set(probe_rows.tolist()) == {1}
        seen += index.gather(row_ids, (0,))[0].to_pylist()
    assert sorted(seen) == list(range(rows // 2, rows))


def test_a_row_that_contradicts():
    index = JoinIndex(SCHEMA.types, (1,), (0,))

    def apply(*changes):
        chunk = StreamChunk.from_rows(SCHEMA, changes)
        index.apply(chunk, index.locate([chunk.columns[1]]).ids)

    row, moved = (1, 5, "a", True, 1, None), (1, 6, "a", True, 1, None)
    again = (*row[:2], "b", *row[3:])
    apply((Op.INSERT, row))
    with pytest.raises(ConsistencyError, match="inserted that is there") as caught:
        apply((Op.INSERT, (2, *row[1:])), (Op.INSERT, again), (Op.INSERT, (3, *row[1:])))
    assert caught.value.key == (1,) and index.rows == 2
    with pytest.raises(ConsistencyError, match="deleted that is not there"):
        apply((Op.DELETE, moved))
    apply((Op.DELETE, row))
    with pytest.raises(ConsistencyError, match="deleted that is not there"):
        apply((Op.DELETE, row))
    assert index.rows == 1


def test_wrong_arguments():
    index = JoinIndex([DataType.BIGINT, DataType.BIGINT], (0,), (1,), memory=MemoryBudget(1).share(), has_degrees=True)
    chunk = StreamChunk([pa.array([1]), pa.array([2])], np.zeros(1, np.uint8))
    ids = index.locate(chunk.columns[:1]).ids
    for wrong in (np.array([5], np.int32), np.array([-2], np.int32), np.array([0, 0], np.int32)):
        with pytest.raises((IndexError, ValueError)):
            index.apply(chunk, wrong)
    with pytest.raises(ValueError, match="never located"):
        index.load(DataChunk([pa.array([9]), pa.array([9])]))
    index.apply(chunk, ids)
    with pytest.raises(IndexError):
        index.gather(np.array([3], np.int32))
    with pytest.raises(IndexError):
        index.gather(np.array([0], np.int32), (7,))
    with pytest.raises(IndexError):
        index.degrees(np.array([-1], np.int32))
    with pytest.raises(IndexError):
        JoinProbe(index, np.array([4], np.int32))
    with pytest.raises(ValueError, match="batches of 0"):
        JoinProbe(index, ids, 0)
    with pytest.raises(ConsistencyError, match="degree -1"):
        index.change_degrees(np.zeros(1, np.int32), np.array([-1], np.int8))
    assert [array.to_pylist() for array in index.gather(np.array([0, -1], np.int32))] == [[1, None], [2, None]]
    probe = JoinProbe(index, ids)
    assert index.end_epoch() == 1
    with pytest.raises(RuntimeError, match="outlived"):
        next(probe)
    with pytest.raises(ValueError):
        JoinIndex([DataType.BIGINT], (), (0,))


def test_an_input_that_only_appends():
    rng, rows = random.Random(4), []
    index = JoinIndex(SCHEMA.types, (1,), ())
    for _ in range(6):
        fresh = [random_row(rng, number) for number in range(50)]
        chunk = StreamChunk.from_rows(SCHEMA, [(Op.INSERT, row) for row in fresh])
        index.apply(chunk, index.locate([chunk.columns[1]]).ids)
        rows += fresh
        ids = index.locate([Column.from_pylist(list(range(6)), DataType.BIGINT)]).ids
        got = Counter()
        for _, row_ids in JoinProbe(index, ids, 7):
            got.update(DataChunk(index.gather(row_ids)).rows())
        assert got == Counter(row for row in rows if row[1] is not None)
        index.end_epoch()
    delete = StreamChunk.from_rows(SCHEMA, [(Op.DELETE, next(row for row in rows if row[1] is not None))])
    with pytest.raises(ConsistencyError, match="only appends"):
        index.apply(delete, index.locate([delete.columns[1]]).ids)


NESTED = {
    "bigint[]": [[1, None, 3], [], [1], [1, 2]],
    "struct<a double, b varchar[]>": [{"a": 0.5, "b": ["x", ""]}, {"a": None, "b": None}, {"a": 0.5, "b": ["x"]}],
    "double[]": [[0.0, 1.5], [2.5], [None]],
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", NESTED)
def test_nested_types_are_join_keys_stream_keys_and_payload(name, seed):
    rng, nested = random.Random(f"{seed} {name}"), DataType.parse(name)
    types = [DataType.BIGINT, nested, nested, nested]
    values = [None, *NESTED[name]]
    index, held = JoinIndex(types, (1,), (0, 2), null_safe=(True,)), {}
    for _ in range(10):
        changes = []
        for _ in range(rng.randrange(20)):
            row = (rng.randrange(3), rng.randrange(len(values)), rng.randrange(len(values)), rng.randrange(len(values)))
            op, kept = (1, held.pop(row[:3])) if row[:3] in held else (0, row)
            if op == 0:
                held[row[:3]] = row
            changes.append((op, [kept[0], *(values[at] for at in kept[1:])]))
        columns = [Column.from_pylist([row[at] for _, row in changes], each) for at, each in enumerate(types)]
        chunk = StreamChunk(columns, np.array([op for op, _ in changes], np.uint8))
        index.apply(chunk, index.locate([chunk.columns[1]]).ids)
        got = Counter()
        for probe_rows, row_ids in JoinProbe(index, index.locate([Column.from_pylist(values, nested)]).ids, 5):
            rows = DataChunk(index.gather(row_ids)).rows()
            got.update((at, *map(repr, row)) for at, row in zip(probe_rows.tolist(), rows, strict=True))
        want = Counter((row[1], repr(row[0]), *(repr(values[at]) for at in row[1:])) for row in held.values())
        assert got == want
        index.end_epoch()
    assert [array.null_count for array in index.gather(np.array([-1], np.int32))] == [1] * 4


def test_equal_nested_stream_keys_name_one_row():
    index = JoinIndex([DataType.BIGINT, DataType.parse("double[]")], (0,), (1,))
    for op, zero in ((0, 0.0), (1, -0.0)):
        chunk = StreamChunk([pa.array([1]), pa.array([[zero]])], np.full(1, op, np.uint8))
        index.apply(chunk, index.locate(chunk.columns[:1]).ids)
    assert index.rows == 0


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_hot_keys_come_and_go_one_by_one(seed):
    """Keys with up to a thousand rows and text stream keys, against a dict."""
    rng = np.random.default_rng(seed)
    index, held = JoinIndex([DataType.VARCHAR, DataType.BIGINT, DataType.BIGINT], (1,), (0,)), {}
    for epoch in range(12):
        names = rng.integers(0, 3_000, 2_000)
        changes = []
        for name, value in zip(names.tolist(), rng.integers(0, 9, 2_000).tolist(), strict=True):
            key = name % 3
            if name in held:
                changes.append((1, (f"name {name}", key, held.pop(name))))
            else:
                held[name] = value
                changes.append((0, (f"name {name}", key, value)))
        chunk = StreamChunk.from_rows(Schema.of(name="varchar", k="bigint", v="bigint"), changes)
        index.apply(chunk, index.locate([chunk.columns[1]]).ids)
        assert index.rows == len(held)
        got = {}
        for _, row_ids in JoinProbe(index, index.locate([pa.array([0, 1, 2])]).ids, 777):
            got.update({row[0]: row[2] for row in DataChunk(index.gather(row_ids)).rows()})
        assert got == {f"name {name}": value for name, value in held.items()}
        if epoch % 3 == 2:
            index.end_epoch()


def test_a_row_that_changes_many_times_in_one_chunk():
    index = JoinIndex([DataType.BIGINT, DataType.BIGINT, DataType.BIGINT], (1,), (0,))
    changes = [(Op.INSERT, (1, 7, 0))]
    for value in range(2_000):
        changes += [(Op.UPDATE_DELETE, (1, 7, value)), (Op.UPDATE_INSERT, (1, 7, value + 1))]
    chunk = StreamChunk.from_rows(Schema.of(id="bigint", k="bigint", v="bigint"), changes)
    index.apply(chunk, index.locate([chunk.columns[1]]).ids)
    ((_, row_ids),) = JoinProbe(index, index.locate([pa.array([7])]).ids)
    assert DataChunk(index.gather(row_ids)).rows().__next__() == (1, 7, 2_000) and len(row_ids) == 1


def test_keys_below_a_bound_are_forgotten_once_there_are_many():
    """A key without the value stays; what is known of the others does not change."""
    index = JoinIndex([DataType.INT, DataType.BIGINT, DataType.INT], (2, 0), (1,), null_safe=(True, False))
    for first in range(0, 20_000, 1_000):
        ids = np.arange(first, first + 1_000)
        times = pa.array([None if at % 1_000 == 0 else at // 100 for at in ids], pa.int32())
        columns = [pa.array(ids % 7, pa.int32()), pa.array(ids, pa.int64()), times]
        chunk = StreamChunk(columns, np.zeros(len(ids), np.uint8))
        index.apply(chunk, index.locate([chunk.columns[2], chunk.columns[0]]).ids)
        index.forget_below(0, first // 100)
        index.end_epoch()
        assert index.rows < 4_500
    assert index.is_complete
    found = index.locate([Column(pa.array([None, 190, 199], pa.int32())), Column(pa.array([0, 3, 3], pa.int32()))],
                         is_adding=False).ids
    counts = index.counts(found)
    assert counts[0] == sum(at % 7 == 0 for at in range(0, 20_000, 1_000))
    assert list(counts[1:]) == [sum(at % 7 == 3 and at % 1_000 > 0 for at in range(100 * t, 100 * t + 100))
                                for t in (190, 199)]


def test_of_new_keys_only_evicted_ones_may_have_stored_rows():
    index = JoinIndex([DataType.BIGINT, DataType.BIGINT], (0,), (1,), memory=MemoryBudget(1_200_000).share())
    index.track_evictions()
    seen = set()
    for epoch in range(1, 20):
        keys = np.arange(epoch * 4_000, epoch * 4_000 + 4_500)      # some of the epoch before, and new ones
        keys = np.append(keys, keys[0] // 2)                        # and one that was seen long ago
        located = index.locate([Column(pa.array(keys))])
        rows = located.new_rows if len(located.new_ids) else located.new_ids
        first = located.new_ids[0] if len(located.new_ids) else 0
        asked = set(keys[rows[index.possibly_stored(located.new_ids) - first]].tolist())
        again = seen & set(keys[rows].tolist())
        assert asked >= again, "a stored row would not be read"
        assert len(asked - again) < 200, "many keys are read in vain"
        index.apply(StreamChunk([Column(pa.array(keys)), Column(pa.array(keys + epoch))],
                                np.zeros(len(keys), np.uint8)), located.ids)
        seen |= set(keys.tolist())
        index.end_epoch()
    assert len(seen) > 2 * index.keys, "little was evicted"


@pytest.mark.parametrize("seed", range(5))
def test_the_first_row_of_each_key_that_has_none(seed):
    """Whatever was located before, also again and again."""
    rng = random.Random(seed)
    index, present = JoinIndex([DataType.BIGINT], [0], ()), set()
    for _ in range(20):
        keys = [rng.choice([None, *range(40)]) for _ in range(rng.randrange(1, 60))]
        columns = [Column.from_pylist(keys, DataType.BIGINT)]
        ids = index.locate(columns).ids
        new = [at for at, key in enumerate(keys) if key is not None and key not in present and key not in keys[:at]]
        assert index.first_rows(ids).tolist() == index.first_rows(ids).tolist() == new
        if rng.random() < 0.7:
            chunk = StreamChunk.inserts(DataChunk(columns).take(np.array(new, np.int32)))
            index.apply(chunk, ids[new])
            present |= {keys[at] for at in new}
    assert len(present) > 20
