"""ChunkBuilder, grouping and net changes."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from relational.chunk import DataChunk, Op, StreamChunk
from relational.chunk.chunk_builder import ChunkBuilder
from relational.chunk.grouping import group_rows, hash_rows
from relational.chunk.net_changes import net_changes
from relational.types import DataType, Schema
from tests.relational.random_rows import TYPES, columns_of, random_rows, sql_row

SCHEMA = Schema.of(id="bigint", name="varchar")


def random_changes(rng, rows):
    changes = []
    while len(changes) < rows:
        key = rng.randrange(6)
        if rng.random() < 0.5:
            changes += [
                (Op.UPDATE_DELETE, (key, "old")),
                (Op.UPDATE_INSERT, (key, rng.choice(["old", "new"]))),
            ]
        else:
            changes.append((rng.choice([Op.INSERT, Op.DELETE]), (key, "plain")))
    return changes


def test_a_builder_cuts_at_capacity_and_never_inside_an_update(rng):
    for _ in range(100):
        capacity = rng.randrange(2, 9)
        builder = ChunkBuilder(SCHEMA, capacity)
        changes = random_changes(rng, rng.randrange(1, 60))
        made, at = [], 0
        while at < len(changes):
            if rng.random() < 0.5:
                made.append(builder.append_row(*changes[at]))
                at += 1
            else:
                end = min(len(changes), at + rng.randrange(1, 20))
                if changes[end - 1][0] is Op.UPDATE_DELETE:
                    end += 1
                made += builder.append_chunk(StreamChunk.from_rows(SCHEMA, changes[at:end]))
                at = end
        made.append(builder.finish())
        assert builder.finish() is None
        chunks = [chunk for chunk in made if chunk is not None]
        assert [change for chunk in chunks for change in chunk.changes()] == changes
        for chunk in chunks:
            assert 1 <= chunk.capacity <= capacity
            assert chunk.ops[0] != Op.UPDATE_INSERT
            assert chunk.ops[-1] != Op.UPDATE_DELETE
        for chunk in chunks[:-1]:
            assert chunk.capacity >= capacity - 1


def test_a_builder_takes_visible_rows_only():
    builder = ChunkBuilder(SCHEMA, 2)
    assert builder.append_chunk(StreamChunk.from_pretty("+ 1 a D\n+ 2 b")) == []
    assert builder.finish().to_pretty() == "+ 2 b"
    with pytest.raises(ValueError, match="at least 2"):
        ChunkBuilder(SCHEMA, 1)


def test_rows_are_grouped_as_sql_groups_them(rng):
    for _ in range(60):
        types = rng.sample(TYPES, rng.randrange(0, 4))
        rows = random_rows(rng, types, rng.randrange(0, 120))
        shown = np.array([rng.random() < 0.8 for _ in rows], dtype=np.uint8)
        chunk = DataChunk(columns_of(types, rows), shown, capacity=len(rows))
        ids, firsts = group_rows(chunk, range(len(types)))
        seen = {}
        expected = [
            seen.setdefault(sql_row(row), len(seen)) if bit else -1
            for row, bit in zip(rows, shown, strict=True)
        ]
        assert ids.tolist() == expected
        assert firsts.tolist() == [expected.index(group) for group in range(len(seen))]
        by_key = {}
        for row, told in zip(rows, hash_rows(chunk.columns, len(rows)).tolist(), strict=True):
            assert by_key.setdefault(sql_row(row), told) == told
        assert len(set(by_key.values())) == len(by_key)


def test_short_texts_that_are_almost_the_same_have_hashes_of_their_own():
    texts = ["".join(letters) for size in range(8) for letters in itertools.product("ab`c", repeat=size)]
    texts += [letter * size for letter in "ab`c\0" for size in range(8, 40)]
    column, = columns_of([DataType.VARCHAR], [(text,) for text in texts])
    assert len(set(hash_rows([column], len(texts)).tolist())) == len(texts)


@pytest.mark.parametrize("names", list(itertools.product(["BIGINT", "NUMERIC(9, 0)", "DOUBLE", "BYTEA"], repeat=3)))
def test_rows_of_small_values_have_hashes_of_their_own(names):
    small = {"BYTEA": [None, b"", *(bytes([byte]) * size for size in (1, 2, 4) for byte in range(3))]}
    rows = list(itertools.product(*(small.get(name, [None, -1, *range(8)]) for name in names)))
    columns = columns_of([DataType.parse(name) for name in names], rows)
    assert len(set(hash_rows(columns, len(rows)).tolist())) == len(rows)


def test_many_groups_and_few_are_numbered_in_order_of_appearance():
    rng = np.random.default_rng(5)
    for keys in (rng.permutation(50_000) << 20, rng.integers(0, 7, 50_000), rng.integers(0, 20_000, 50_000) - 10_000):
        ids, firsts = group_rows(DataChunk([pa.array(keys)]), [0])
        values, at, places = np.unique(keys, return_index=True, return_inverse=True)
        assert (firsts == np.sort(at)).all() and (keys[firsts][ids] == keys).all() and len(values) == len(firsts)
        assert (np.argsort(np.argsort(at))[places] == ids).all()


def test_net_changes_keep_the_first_retraction_and_the_last_insertion():
    chunk = StreamChunk.from_pretty(
        """
        + 1 a
        U- 1 a
        U+ 1 b
        - 2 x
        + 2 y
        U- 3 p
        U+ 3 q
        + 4 gone
        - 4 gone
        - 5 same
        + 5 same
        U- 6 p
        U+ 6 q
        U- 6 q
        U+ 6 r
        """
    )
    assert net_changes(chunk, [0]).to_pretty() == "+ 1 b\n- 2 x\n+ 2 y\nU- 3 p\nU+ 3 q\n- 6 p\n+ 6 r"
    unique = StreamChunk.from_pretty("+ 1 a\n- 2 b")
    assert net_changes(unique, [0]) is unique


def test_net_changes_have_the_effect_of_all_changes(rng):
    for _ in range(100):
        before = {key: rng.randrange(3) for key in range(6) if rng.random() < 0.5}
        table, changes = dict(before), []
        for _ in range(rng.randrange(1, 40)):
            key = rng.randrange(6)
            if key not in table:
                table[key] = rng.randrange(3)
                changes.append((Op.INSERT, (key, table[key])))
            elif rng.random() < 0.5:
                changes.append((Op.DELETE, (key, table.pop(key))))
            else:
                changes.append((Op.UPDATE_DELETE, (key, table[key])))
                table[key] = rng.randrange(3)
                changes.append((Op.UPDATE_INSERT, (key, table[key])))
        result = net_changes(StreamChunk.from_rows(Schema.of(k="bigint", v="bigint"), changes), [0])
        after = dict(before)
        for op, (key, value) in result.changes():
            if op.is_retraction:
                assert after.pop(key) == value
            else:
                assert key not in after
                after[key] = value
        assert after == table
        assert result.visible_rows <= 2 * len({key for _, (key, _) in changes})
