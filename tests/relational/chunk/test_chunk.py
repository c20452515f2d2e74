"""DataChunk and StreamChunk: visibility, ops, and handling of update pairs."""

import pickle
import random

import numpy as np
import pyarrow as pa
import pytest

from relational.chunk import Column, DataChunk, Op, StreamChunk
from relational.errors import EncodingError
from relational.types import DataType, Schema
from tests.support.drivers.pretty import from_pretty
from tests.support.drivers.seeds import run_seed

SCHEMA = Schema.of(id="bigint", name="varchar")
ROWS = [(1, "a"), (2, None), (None, "c"), (4, "d")]


def mask(*bits):
    return np.array(bits, dtype=np.uint8)


def test_rows_go_in_and_come_out():
    chunk = DataChunk.from_rows(SCHEMA, ROWS)
    assert list(chunk.rows()) == ROWS
    assert (chunk.capacity, chunk.visible_rows, len(chunk)) == (4, 4, 4)
    assert chunk.types == SCHEMA.types
    assert list(DataChunk.from_arrow(chunk.to_arrow(SCHEMA)).rows()) == ROWS
    assert list(DataChunk.from_rows(SCHEMA, []).rows()) == []
    with pytest.raises(EncodingError):
        DataChunk.from_rows(SCHEMA, [("x", "y")])
    with pytest.raises(ValueError, match="3 values for 2 columns"):
        DataChunk.from_rows(SCHEMA, [(1, "a", 2)])


def test_hidden_rows_stay_in_place_until_compacted():
    chunk = DataChunk.from_rows(SCHEMA, ROWS).filter(mask(1, 0, 1, 1))
    chunk = chunk.filter(Column(pa.array([True, True, True, None])))
    assert (chunk.capacity, chunk.visible_rows) == (4, 2)
    assert list(chunk.rows()) == [ROWS[0], ROWS[2]]
    dense = chunk.compact()
    assert (dense.capacity, dense.visibility) == (2, None)
    assert list(dense.rows()) == [ROWS[0], ROWS[2]]
    assert dense.compact() is dense
    assert chunk.to_arrow(SCHEMA).num_rows == 2
    assert list(chunk.take([3, 1]).rows()) == [ROWS[3], ROWS[1]]
    assert list(chunk.slice(1, 2).rows()) == [ROWS[2]]
    with pytest.raises(IndexError):
        chunk.take([4])
    with pytest.raises(IndexError):
        DataChunk.taken([(chunk, [0]), (chunk, [4])])


def test_columns_are_shared_not_copied():
    chunk = DataChunk.from_rows(SCHEMA, ROWS)
    projected = chunk.project([1, 0, 1])
    assert projected.columns[1] is chunk.columns[0]
    assert next(iter(projected.rows())) == ("a", 1, "a")
    assert chunk.filter(mask(1, 1, 1, 0)).columns[0] is chunk.columns[0]


def test_a_chunk_without_columns_still_counts_rows():
    chunk = DataChunk([], mask(1, 0, 1))
    assert (chunk.capacity, chunk.visible_rows) == (3, 2)
    assert list(chunk.rows()) == [(), ()]
    assert DataChunk.from_rows(SCHEMA, ROWS).project([]).capacity == 4


def test_columns_and_masks_of_the_wrong_length_are_refused():
    with pytest.raises(ValueError, match="2 rows in a chunk of 1"):
        DataChunk([pa.array([1]), pa.array([1, 2])])
    with pytest.raises(ValueError, match="mask"):
        DataChunk([pa.array([1])], mask(1, 0))
    with pytest.raises(ValueError, match="mask"):
        DataChunk([pa.array([1])], [1])


def test_concat_keeps_rows_masks_and_ops():
    first = from_pretty("+ 1 a\n- 2 b D")
    second = from_pretty("U- 3 c\nU+ 3 d")
    joined = StreamChunk.concat([first, second])
    assert joined.to_pretty() == "+ 1 a\nU- 3 c\nU+ 3 d"
    assert joined.capacity == 4
    assert DataChunk.concat([DataChunk.from_rows(SCHEMA, ROWS)] * 2).visible_rows == 8


def test_pretty_text_is_read_with_types_given_named_or_inferred():
    assert from_pretty("+ 1 1.5 t x").types == (
        DataType.BIGINT, DataType.DOUBLE, DataType.BOOLEAN, DataType.VARCHAR,
    )  # fmt: skip
    assert from_pretty("i T\n+ 1 2").types == (DataType.INT, DataType.VARCHAR)
    chunk = from_pretty("+ 1 .\n- 2 x", SCHEMA)
    assert list(chunk.changes()) == [(Op.INSERT, (1, None)), (Op.DELETE, (2, "x"))]
    with pytest.raises(ValueError, match="begins with"):
        from_pretty("+ 1\n* 2")


def test_half_an_update_becomes_a_plain_change():
    chunk = from_pretty("U- 1 a\nU+ 1 b\nU- 2 a\nU+ 2 b\nU- 3 a\nU+ 3 b\n+ 4 x")
    kept = chunk.filter(mask(1, 1, 0, 1, 1, 0, 1))
    assert kept.to_pretty() == "U- 1 a\nU+ 1 b\n+ 2 b\n- 3 a\n+ 4 x"
    assert chunk.filter(mask(0, 0, 0, 0, 0, 0, 1)).compact().to_pretty() == "+ 4 x"


def test_updates_that_change_nothing_are_hidden():
    chunk = from_pretty("U- 1 a .\nU+ 1 a .\nU- 1 a x\nU+ 1 a .\nU- 2 b x\nU+ 2 b x")
    assert chunk.without_unchanged_updates().to_pretty() == "U- 1 a x\nU+ 1 a ."
    plain = from_pretty("+ 1\n- 1")
    assert plain.without_unchanged_updates() is plain


def test_chunks_travel_by_pickle():
    chunk = from_pretty("+ 1 a\n- 2 b D\nU- 3 c\nU+ 3 d")
    again = pickle.loads(pickle.dumps(chunk))
    assert again.to_pretty() == chunk.to_pretty()
    assert again.capacity == chunk.capacity


def legal(changes):
    """Whether each U- is directly followed by a U+, and each U+ directly follows a U-."""
    ops = [op for op, _ in changes]
    return all(
        (op != Op.UPDATE_DELETE or ops[i + 1 : i + 2] == [Op.UPDATE_INSERT])
        and (op != Op.UPDATE_INSERT or (i > 0 and ops[i - 1] == Op.UPDATE_DELETE))
        for i, op in enumerate(ops)
    )


def test_filters_of_filters_keep_pairs_legal_and_signs_right():
    rng = random.Random(run_seed())
    for _ in range(300):
        changes = []
        while len(changes) < 30:
            key = rng.randrange(5)
            if rng.random() < 0.5:
                changes += [(Op.UPDATE_DELETE, (key, "old")), (Op.UPDATE_INSERT, (key, "new"))]
            else:
                changes.append((rng.choice([Op.INSERT, Op.DELETE]), (key, "plain")))
        chunk = StreamChunk.from_rows(SCHEMA, changes)
        shown = np.ones(len(changes), np.uint8)
        for _ in range(rng.randrange(1, 4)):
            keep = np.array([rng.random() < 0.7 for _ in changes], dtype=np.uint8)
            shown &= keep
            chunk = chunk.filter(keep)
        result = list(chunk.changes())
        assert legal(result)
        expected = [(op & 1, row) for (op, row), bit in zip(changes, shown, strict=True) if bit]
        assert [(op & 1, row) for op, row in result] == expected
