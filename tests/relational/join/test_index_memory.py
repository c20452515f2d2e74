"""JoinIndex.memory: the bytes of columns as Arrow counts them, and those of all buffers by capacity."""

import numpy as np
import pyarrow as pa
import pytest

from relational.chunk import Op, StreamChunk
from relational.join.join_index import JoinIndex
from relational.join.join_probe import JoinProbe
from relational.memory_budget import MemoryBudget
from relational.types import DataType

TYPES = (DataType.BIGINT, DataType.INT, DataType.VARCHAR, DataType.BOOLEAN)


def rows_of(first: int, count: int) -> list[pa.Array]:
    ids = np.arange(first, first + count)
    names = pa.array([None if at % 7 == 0 else "n" * (at % 50) for at in ids], pa.string())
    return [pa.array(ids), pa.array((ids % 1000).astype(np.int32)), names, pa.array(ids % 2 == 0)]


def apply(index: JoinIndex, columns: list[pa.Array], op: Op = Op.INSERT) -> None:
    chunk = StreamChunk(columns, np.full(len(columns[0]), op, np.uint8))
    index.apply(chunk, index.locate([chunk.columns[1]]).ids)


def arrow_bytes(columns: list[pa.Array]) -> int:
    """Of values, a bit for each, and 4 bytes for each string; a BOOLEAN is a byte."""
    ids, _, names, _ = columns
    strings = sum(len(each.as_py() or "") for each in names)
    return (8 + 4 + 4 + 1) * len(ids) + (4 * len(ids) + 7) // 8 + strings


@pytest.mark.parametrize("stream_key", [(), (0,)], ids=["append-only", "retracting"])
def test_column_bytes_are_those_of_arrow_and_the_rest_is_capacity(stream_key):
    index = JoinIndex(TYPES, (1,), stream_key, memory=MemoryBudget(1 << 30).share())
    columns = rows_of(0, 20_000)
    apply(index, columns)
    use = index.memory()
    assert (use.rows, use.column_bytes, use.budget_bytes, use.evicted) == (20_000, arrow_bytes(columns), 1 << 30, 0)
    assert use.used_bytes == index.size_bytes == use.column_bytes + use.beside_bytes
    used = set()
    for first in range(20_000, 22_000, 10):
        apply(index, rows_of(first, 10))
        used.add(index.memory().used_bytes)
    assert len(used) < 20, "room is counted before it is used"


def test_deleted_rows_leave_the_columns_and_their_room_stays_until_it_is_packed():
    index = JoinIndex(TYPES, (1,), (0,))
    columns = rows_of(0, 40_000)
    apply(index, columns)
    full = index.memory()
    gone = [column.slice(0, 30_000) for column in columns]
    apply(index, gone, Op.DELETE)
    use = index.memory()
    assert use.rows == 10_000 and use.used_bytes >= full.used_bytes
    assert use.column_bytes == arrow_bytes([column.slice(30_000) for column in columns])
    index.end_epoch()
    packed = index.memory()
    assert packed.used_bytes < use.used_bytes and packed.column_bytes == use.column_bytes


def test_strings_that_all_live_are_not_packed():
    index = JoinIndex(TYPES, (1,), (0,))
    for first in range(0, 600_000, 100_000):
        apply(index, rows_of(first, 100_000))
        index.end_epoch()
    assert index.generation == 0
    columns = rows_of(0, 500_000)
    apply(index, columns, Op.DELETE)
    index.end_epoch()
    assert index.generation == 1 and index.memory().column_bytes == arrow_bytes(rows_of(500_000, 100_000))


def test_an_update_in_place_releases_the_old_string():
    index = JoinIndex(TYPES, (1,), (0,))
    old, new = rows_of(0, 2), rows_of(0, 2)
    new[2] = pa.array(["changed", "too"])
    apply(index, old)
    both = [pa.concat_arrays(each).take([0, 2, 1, 3]) for each in zip(old, new, strict=True)]
    chunk = StreamChunk(both, np.array([Op.UPDATE_DELETE, Op.UPDATE_INSERT] * 2, np.uint8))
    index.apply(chunk, index.locate([chunk.columns[1]]).ids)
    assert index.memory().column_bytes == arrow_bytes(new)


def test_evicted_keys_are_counted():
    index = JoinIndex(TYPES, (1,), (0,), memory=MemoryBudget(200_000).share())
    index.track_evictions()
    apply(index, rows_of(0, 20_000))
    index.end_epoch()
    use = index.memory()
    assert 0 < use.evicted == 1_000 - index.keys and use.rows == index.rows < 20_000
    assert use.used_bytes == index.size_bytes <= 200_000, "the filter of evicted keys would take too much beside them"
    index = JoinIndex(TYPES, (1,), (0,), memory=MemoryBudget(2_000_000).share())
    index.track_evictions()
    apply(index, rows_of(0, 40_000))
    index.end_epoch()
    assert index.memory().used_bytes > index.size_bytes, "that filter counts as well"


def test_keys_touched_longest_ago_are_evicted_with_their_rows():
    index = JoinIndex([DataType.BIGINT, DataType.VARCHAR], (0,), (0,), memory=MemoryBudget(1_100_000).share())

    def column(first, end):
        return pa.array(np.arange(first, end))

    def add(first, end):
        texts = pa.array([f"row {number}" for number in range(first, end)])
        chunk = StreamChunk([column(first, end), texts], np.zeros(end - first, np.uint8))
        index.apply(chunk, index.locate([chunk.columns[0]]).ids)

    add(0, 10_000)
    assert index.end_epoch() == 0
    index.locate([column(3_000, 4_000)])  # touched again
    add(10_000, 11_000)
    index.end_epoch()
    add(11_000, 16_000)
    assert index.end_epoch() > 0 and index.generation == 1 and index.size_bytes <= 1_100_000
    ids = index.locate([column(0, 16_000)], is_adding=False).ids
    kept = np.flatnonzero(ids >= 0)
    of_first = kept[(kept < 3_000) | ((kept >= 4_000) & (kept < 10_000))]  # last touched in the first epoch
    assert 0 < len(of_first) < 3_000 and of_first.tolist() == [*range(of_first[0], 10_000)]
    assert set(kept) - set(of_first) == {*range(3_000, 4_000), *range(10_000, 16_000)}
    for probe_rows, row_ids in JoinProbe(index, ids[kept]):
        numbers, texts = index.gather(row_ids)
        assert numbers.to_pylist() == kept[probe_rows].tolist()
        assert texts.to_pylist() == [f"row {number}" for number in kept[probe_rows]]
    assert index.rows == len(kept)


BESIDE = {("append-only", 16): 16, ("retracting", 16): 20, ("retracting", 8): 24,
          ("append-only", 1): 36, ("retracting", 1): 40}  # fmt: skip


@pytest.mark.parametrize(("kind", "per_key"), BESIDE)
def test_bytes_beside_the_columns(kind, per_key):
    index = JoinIndex([DataType.BIGINT] * 3, (1,), () if kind == "append-only" else (0,))
    rows, keys = 800_000, 800_000 // per_key
    k = np.random.default_rng(20130101).permutation(np.tile(np.arange(keys), per_key))
    for first in range(0, rows, 50_000):
        key = pa.array(k[first : first + 50_000])
        chunk = StreamChunk([pa.array(np.arange(first, first + 50_000)), key, key], np.zeros(50_000, np.uint8))
        index.apply(chunk, index.locate([key]).ids)
        index.end_epoch()
    use = index.memory()
    assert use.rows == rows and use.beside_bytes / use.rows <= BESIDE[kind, per_key], use.beside_bytes / use.rows


@pytest.mark.parametrize("stream_key", [(), (0,)], ids=["append-only", "retracting"])
def test_lists_that_grow_together_leave_few_free_blocks_and_keep_their_rows(stream_key):
    index = JoinIndex([DataType.BIGINT, DataType.BIGINT], (1,), stream_key)
    k = pa.array(np.arange(30_000))
    for round_number in range(20):
        chunk = StreamChunk([pa.array(np.arange(30_000) + 30_000 * round_number), k], np.zeros(30_000, np.uint8))
        index.apply(chunk, index.locate([k]).ids)
        index.end_epoch()
    assert index.generation == 0, "blocks move, numbers of keys and rows do not change"
    wanted = np.array([7, 29_999], np.int32)
    (found,) = list(JoinProbe(index, index.locate([pa.array(wanted.astype(np.int64))], is_adding=False).ids))
    assert found[0].tolist() == [0] * 20 + [1] * 20
    ids = index.gather(found[1], (0,))[0].to_pylist()
    assert ids == [key + 30_000 * each for key in wanted.tolist() for each in range(20)]
    if stream_key:
        apply_key = index.locate([k]).ids
        gone = StreamChunk([pa.array(np.arange(30_000) + 30_000 * 5), k], np.full(30_000, Op.DELETE, np.uint8))
        index.apply(gone, apply_key)
        assert (index.counts(apply_key) == 19).all()


def test_rows_get_the_room_of_deleted_ones():
    index = JoinIndex([DataType.BIGINT, DataType.BIGINT], (1,), (0,))
    used = set()
    for first in range(0, 200_000, 10_000):
        ids = pa.array(np.arange(first, first + 10_000))
        for op in (Op.INSERT, Op.DELETE):
            chunk = StreamChunk([ids, pa.array(np.arange(10_000) % 4_000)], np.full(10_000, op, np.uint8))
            index.apply(chunk, index.locate([chunk.columns[1]]).ids)
        used.add(index.memory().used_bytes)
    assert index.rows == 0 and index.generation == 0 and len(used) == 1
