"""Every chunk operation against a list of changes, over random types, nested ones and slices included."""

import random
from itertools import pairwise

import numpy as np
import pytest

from relational.chunk import DataChunk, Op, StreamChunk, VnodeMap, vnodes_of
from relational.types import DataType
from tests.relational.random_rows import COMPOSED, TYPES, columns_of, random_rows
from tests.support.drivers.seeds import run_seed

KEY = DataType.BIGINT


class Model:
    """A chunk, and the same changes as lists of (op, row) and visibility."""

    def __init__(self, rng, rows):
        self.types = [KEY, *rng.sample([*TYPES, *COMPOSED], rng.randrange(4))]
        values = random_rows(rng, self.types[1:], rows + 7)
        live, self.changes = {}, []
        while len(self.changes) < rows:
            key = rng.randrange(8)
            if key not in live:
                live[key] = rng.choice(values)
                self.changes.append((Op.INSERT, (key, *live[key])))
            elif rng.random() < 0.5:
                self.changes.append((Op.DELETE, (key, *live.pop(key))))
            else:
                old, live[key] = live[key], rng.choice([live[key], rng.choice(values)])
                self.changes += [(Op.UPDATE_DELETE, (key, *old)), (Op.UPDATE_INSERT, (key, *live[key]))]
        before = random_rows(rng, self.types, 3)
        whole = columns_of(self.types, [*before, *(row for _, row in self.changes), *before])
        ops = np.array([op for op, _ in self.changes], np.uint8)
        self.chunk = StreamChunk([column.slice(3, len(ops)) for column in whole], ops)
        self.shown = np.ones(len(ops), np.uint8)

    def filtered(self, keep):
        """Applies a filter; split update pairs become plain changes."""
        shown = self.shown & keep
        self.changes = plain(self.changes, shown.tolist())
        self.chunk, self.shown = self.chunk.filter(keep), shown
        return self

    @property
    def visible(self):
        return [change for change, bit in zip(self.changes, self.shown, strict=True) if bit]


def plain(changes, sides):
    """Replaces update pairs whose halves are on different sides by a delete and an insert."""
    out = list(changes)
    for at in range(len(out) - 1):
        if out[at][0] is Op.UPDATE_DELETE and sides[at] != sides[at + 1]:
            out[at], out[at + 1] = (Op.DELETE, out[at][1]), (Op.INSERT, out[at + 1][1])
    return out


def changes_of(chunk):
    return [(op, repr(row)) for op, row in chunk.changes()]


def expected(chunk_of, changes):
    """The changes of a chunk that is built from `changes`."""
    columns = columns_of(chunk_of.types, [row for _, row in changes])
    return changes_of(StreamChunk(columns, np.array([op for op, _ in changes], np.uint8)))


@pytest.fixture(params=range(25))
def model(request):
    rng = random.Random(f"chunk verbs {request.param}")
    model = Model(rng, rng.randrange(1, 60))
    if rng.random() < 0.7:
        model.filtered(np.array([rng.random() < 0.7 for _ in model.changes], np.uint8))
    model.rng = rng
    return model


def test_filter_hides_and_compact_drops(model):
    keep = np.array([model.rng.random() < 0.6 for _ in model.changes], np.uint8)
    model.filtered(keep)
    assert changes_of(model.chunk) == expected(model, model.visible)
    dense = model.chunk.compact()
    assert changes_of(dense) == expected(model, model.visible)
    assert dense.visibility is None and dense.capacity == len(model.visible)


def test_take_picks_rows_hidden_or_not_and_nulls(model):
    picks = [model.rng.randrange(-1, len(model.changes)) for _ in range(model.rng.randrange(40))]
    taken = DataChunk(model.chunk.columns).take(np.array(picks, np.int32))
    rows = [(None,) * len(model.types) if at < 0 else model.changes[at][1] for at in picks]
    assert list(map(repr, taken.rows())) == [row for _, row in expected(model, [(Op.INSERT, row) for row in rows])]


def test_rows_taken_of_several_chunks_come_one_chunk_after_the_other(model):
    cuts = sorted(model.rng.randrange(len(model.changes) + 1) for _ in range(model.rng.randrange(4)))
    parts, rows = [], []
    for start, end in pairwise([0, *cuts, len(model.changes)]):
        picks = [model.rng.randrange(-1, end - start) for _ in range(model.rng.randrange(20))]
        parts.append((DataChunk(model.chunk.columns).slice(start, end - start), np.array(picks, np.int32)))
        rows += [(None,) * len(model.types) if at < 0 else model.changes[start + at][1] for at in picks]
    taken = DataChunk.taken(parts)
    assert list(map(repr, taken.rows())) == [row for _, row in expected(model, [(Op.INSERT, row) for row in rows])]


def test_slices_side_by_side_are_the_whole(model):
    cuts = [0, len(model.changes)]
    for at in range(1, len(model.changes)):
        if model.changes[at - 1][0] is not Op.UPDATE_DELETE and model.rng.random() < 0.2:
            cuts.append(at)
    cuts.sort()
    parts = [model.chunk.slice(start, end - start) for start, end in pairwise(cuts)]
    whole = StreamChunk.concat(parts)
    assert changes_of(whole) == expected(model, model.visible) and whole.capacity == len(model.changes)


def test_a_split_by_vnode_deals_every_change_to_its_owner(model):
    owners = VnodeMap([model.rng.choice([3, 5, 9]) for _ in range(16)])
    keys = [at for at in range(len(model.types)) if at == 0 or model.rng.random() < 0.3]
    sides = owners.targets[vnodes_of([model.chunk.columns[at] for at in keys], 16)].tolist()
    changes = plain(model.changes, sides)
    parts = model.chunk.split_by_vnode(keys, owners)
    shown = [at for at in range(len(changes)) if model.shown[at]]
    assert set(parts) == {sides[at] for at in shown}
    for owner, part in parts.items():
        assert changes_of(part) == expected(model, [changes[at] for at in shown if sides[at] == owner])


def test_updates_that_change_nothing_are_left_out(model):
    wanted, kept = expected(model, model.visible), []
    for at, change in enumerate(wanted):
        follows = at + 1 < len(wanted) and change[0] is Op.UPDATE_DELETE and wanted[at + 1][1] == change[1]
        preceded = at > 0 and change[0] is Op.UPDATE_INSERT and wanted[at - 1][1] == change[1]
        kept += [] if follows or preceded else [change]
    assert changes_of(model.chunk.without_unchanged_updates()) == kept


@pytest.mark.parametrize("rows", [0, 1, 2, 30])
def test_updates_pair_the_old_row_with_the_new_one(rows):
    rng = random.Random(run_seed())
    for _ in range(20):
        types = [KEY, *rng.sample([*TYPES, *COMPOSED], rng.randrange(5))]
        before, after = (columns_of(types, random_rows(rng, types, rows + 2)) for _ in range(2))
        old = DataChunk([column.slice(1, rows) for column in before])
        changed = [rng.random() < 0.5 for _ in types]
        news = [after[at].slice(1, rows) if is_new else old.columns[at] for at, is_new in enumerate(changed)]
        new = DataChunk(news)
        expected = [
            (op, row)
            for pair in zip(old.rows(), new.rows(), strict=True)
            for op, row in zip((Op.UPDATE_DELETE, Op.UPDATE_INSERT), pair, strict=True)
        ]
        assert repr(list(StreamChunk.updates(old, new).changes())) == repr(expected)
