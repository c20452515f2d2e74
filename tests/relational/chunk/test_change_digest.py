"""change_digest: the same for streams that leave the same rows, other for any other rows, and unchanged for ever."""

import random

import numpy as np
import pytest

from relational.chunk import Op, StreamChunk
from relational.chunk.change_digest import change_digest
from relational.types import DataType, Interval, Schema
from tests.relational.random_rows import ALL, TYPES, random_rows
from tests.support.drivers.seeds import amount

MASK = (1 << 64) - 1
EXACT = [kind for kind in TYPES if kind not in (DataType.REAL, DataType.DOUBLE, DataType.INTERVAL)]
PINNED_ROW, PINNED_ROWS = 3664796683977202947, 16083351629776464518


def digest_of(*chunks):
    parts = [change_digest(chunk) for chunk in chunks]
    return sum(each[0] for each in parts), sum(each[1] for each in parts), sum(each[2] for each in parts) & MASK


def inserts(schema, rows):
    return StreamChunk.from_rows(schema, [(Op.INSERT, row) for row in rows])


def test_the_digest_of_stored_rows_never_changes():
    """Digest sinks store it: another value would make every stored digest wrong."""
    schema = Schema.of(id="bigint", name="varchar")
    assert change_digest(inserts(schema, [])) == (0, 0, 0)
    assert change_digest(inserts(schema, [(1, "a")])) == (1, 0, PINNED_ROW)
    assert change_digest(inserts(schema, [(None, None), (7, "a text of more than 16 bytes")])) == (2, 0, PINNED_ROWS)


@pytest.mark.parametrize("seed", range(20))
def test_order_chunks_and_retracted_rows_do_not_matter(seed):
    rng = random.Random(seed)
    schema = Schema.of(**{f"c{at}": str(rng.choice(ALL)) for at in range(rng.randint(1, 5))})
    rows = random_rows(rng, list(schema.types), rng.choice((1, 7, 3_000)))
    whole = digest_of(inserts(schema, rows))
    shuffled = rng.sample(rows, len(rows))
    cut = rng.randint(0, len(rows))
    assert digest_of(inserts(schema, shuffled[:cut]), inserts(schema, shuffled[cut:])) == whole
    others = random_rows(rng, list(schema.types), 50)
    changes = [(Op.INSERT, row) for row in rows + others]
    rng.shuffle(changes)
    gone = [(rng.choice((Op.DELETE, Op.UPDATE_DELETE)), row) for row in others]
    stream = StreamChunk.from_rows(schema, changes + gone)
    assert digest_of(stream) == (len(changes), len(others), whole[2])
    mask = np.array([op in (Op.INSERT, Op.UPDATE_INSERT) and rng.random() < 0.5 for op, _ in changes + gone], np.uint8)
    kept = [row for (_, row), is_shown in zip(changes + gone, mask, strict=True) if is_shown]
    assert digest_of(stream.with_visibility(mask)) == digest_of(inserts(schema, kept))


@pytest.mark.parametrize("kind", ALL, ids=str)
def test_another_value_is_another_digest(kind):
    rng = random.Random(7)
    schema = Schema.of(a="bigint", b=str(kind))
    rows = random_rows(rng, list(schema.types), amount(150, 400))
    seen = {}
    for row in rows:
        digest = change_digest(inserts(schema, [row]))[2]
        key = repr(list(inserts(schema, [row]).rows()))
        if kind in EXACT:
            assert seen.setdefault(digest, key) == key
        other = (1 if row[0] is None else row[0] ^ 1, row[1])
        assert change_digest(inserts(schema, [other]))[2] != digest


def test_equal_values_of_another_form_are_equal():
    schema = Schema.of(x="double", i="interval")
    thirty_days, one_month = Interval(0, 30, 0), Interval(1, 0, 0)
    assert change_digest(inserts(schema, [(0.0, thirty_days)])) == change_digest(inserts(schema, [(-0.0, one_month)]))
