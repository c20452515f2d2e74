"""Lists of the rows of a key as they grow from an entry to a block, to longer ones and to a table of tags, and shrink
again: random changes of a JoinIndex against a dict. Rows of several keys have equal stream keys, hence equal tags, and
of different keys they are often at equal positions."""

import random
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest

from relational.chunk import Op, StreamChunk
from relational.errors import ConsistencyError
from relational.join.join_index import JoinIndex
from relational.join.join_probe import JoinProbe
from relational.types import DataType
from tests.support.drivers.seeds import seeds

BIGINT = DataType.BIGINT
KEYS = (1, 2, 9)
MOST_ROWS = {1: 4, 2: 70, 9: 400}
"""Of a key, so that its list passes the sizes that matter."""


def apply(index, changes):
    """`changes`: (op, key, id, value)."""
    columns = [pa.array([change[at] for change in changes], pa.int64()) for at in (1, 2, 3)]
    chunk = StreamChunk(columns, np.array([change[0] for change in changes], np.uint8))
    index.apply(chunk, index.locate([chunk.columns[0]]).ids)


def random_changes(rng, held, count):
    out = []
    for _ in range(count):
        key = rng.choice(KEYS) * 10 + rng.randrange(3)
        rows, most = held[key], MOST_ROWS[key // 10]
        name = rng.randrange(most)
        if name in rows:
            out.append((Op.DELETE, key, name, rows.pop(name)))
            if rng.random() < 0.5:
                continue
        rows[name] = rng.randrange(1_000)
        out.append((Op.INSERT, key, name, rows[name]))
    return out


def found(index):
    keys = [10 * key + at for key in KEYS for at in range(3)]
    located = index.locate([pa.array(keys)], is_adding=False).ids
    out = defaultdict(dict)
    for at, row_ids in JoinProbe(index, located, 97):
        names, values = (array.to_pylist() for array in index.gather(row_ids, (1, 2)))
        for key, name, value in zip(at.tolist(), names, values, strict=True):
            assert name not in out[keys[key]], "a row comes once"
            out[keys[key]][name] = value
    assert index.counts(located).tolist() == [len(out.get(key, ())) for key in keys]
    return out


@pytest.mark.parametrize("seed", seeds(6, 40))
def test_lists_of_any_length_follow_a_dict(seed):
    rng = random.Random(f"row lists {seed}")
    index = JoinIndex([BIGINT] * 3, (0,), (1,), has_degrees=rng.random() < 0.3)
    held = defaultdict(dict)
    for _ in range(60):
        apply(index, random_changes(rng, held, rng.choice([1, 30, 300])))
        if rng.random() < 0.1:  # all rows of a key go, and its block with them
            key = rng.choice(list(held))
            if held[key]:
                apply(index, [(Op.DELETE, key, name, value) for name, value in held.pop(key).items()])
        if rng.random() < 0.1 and held:
            (forgotten,) = index.locate([pa.array([rng.choice(list(held))])]).ids.tolist()
            held.pop(index.keys_of(np.array([forgotten], np.int32)).rows().__next__()[0], None)
            index.forget(np.array([forgotten], np.int32))
        if rng.random() < 0.2:
            index.end_epoch()
        assert found(index) == {key: rows for key, rows in held.items() if rows}
        assert index.rows == sum(map(len, held.values()))


@pytest.mark.parametrize("seed", seeds(3, 20))
def test_a_change_that_contradicts_is_found_in_lists_of_any_length(seed):
    rng = random.Random(f"contradictions {seed}")
    index, held = JoinIndex([BIGINT] * 3, (0,), (1,)), defaultdict(dict)
    for _ in range(40):
        apply(index, random_changes(rng, held, 100))
        key = rng.choice(list(held))
        name = rng.randrange(MOST_ROWS[key // 10])
        op = Op.INSERT if name in held[key] else Op.DELETE
        with pytest.raises(ConsistencyError) as caught:
            apply(index, [(op, key, name, 0)])
        assert caught.value.key == (name,)
        assert found(index) == {key: rows for key, rows in held.items() if rows}


@pytest.mark.parametrize("data_type", [pa.bool_(), pa.int16()], ids=str)
def test_released_records_are_linked_however_narrow_they_are(data_type):
    """A record holds the number of the next released one."""
    types = [DataType.BOOLEAN if data_type == pa.bool_() else DataType.SMALLINT]
    index = JoinIndex(types, (0,), (0,))
    values = pa.array([False, True]) if data_type == pa.bool_() else pa.array(np.arange(300, dtype=np.int16))
    used = set()
    for _ in range(3):
        for op in (Op.INSERT, Op.DELETE):
            chunk = StreamChunk([values], np.full(len(values), op, np.uint8))
            index.apply(chunk, index.locate([chunk.columns[0]]).ids)
            assert index.rows == (len(values) if op == Op.INSERT else 0)
        used.add(index.size_bytes)
    assert len(used) == 1
    chunk = StreamChunk([values], np.zeros(len(values), np.uint8))
    ids = index.locate([chunk.columns[0]]).ids
    index.apply(chunk, ids)
    (_, row_ids), *more = JoinProbe(index, ids)
    assert not more and sorted(index.gather(row_ids)[0].to_pylist()) == values.to_pylist()
