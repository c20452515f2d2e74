"""SliceBuffer: the newest write of each key leaves in key order, whatever the order in which rows came."""

import random

import numpy as np
import pytest

from hummock.columnar.binary_column import BinaryColumn
from relational.errors import ConsistencyError
from relational.table.slice_buffer import SliceBuffer
from tests.support.drivers.seeds import run_seed

TABLE = b"\0\0\0\7"
VNODE = b"\0\0"
INSERT, DELETE, UPDATE_INSERT, UPDATE_DELETE = range(4)


def written(buffer, rows, ops=None):
    """`rows`: (key after the table id, value)."""
    keys, values = zip(*rows, strict=True)
    ops = np.zeros(len(rows), np.uint8) if ops is None else np.array(ops, np.uint8)
    buffer.write(BinaryColumn.from_pylist([TABLE + key for key in keys]), BinaryColumn.from_pylist(list(values)), ops)


def drained(buffer):
    return [(key[len(TABLE) :], value) for batch, old in buffer.drain() for key, value in batch if old is None]


def shown(key):
    return key[len(TABLE) + len(VNODE) :].decode()


@pytest.fixture(params=[False, True], ids=["slices", "inserts"])
def buffer(request):
    return SliceBuffer("t", shown, request.param)


@pytest.fixture
def inserts():
    return SliceBuffer("t", shown, True)


@pytest.fixture
def slices():
    return SliceBuffer("t", shown)


@pytest.fixture
def rng():
    return random.Random(run_seed())


def random_key(rng, shape):
    if shape == "one size":
        return VNODE + rng.randrange(1 << 20).to_bytes(9, "big")
    if shape == "vnodes":
        return rng.randrange(256).to_bytes(2, "big") + rng.randrange(1 << 34).to_bytes(8, "big")
    if shape == "long":
        return VNODE + b"the same first bytes of every key" + b"%d" % rng.randrange(1 << 16)
    return rng.randrange(3).to_bytes(2, "big") + b"x" * rng.randrange(20) + rng.randbytes(rng.randrange(20))


@pytest.mark.parametrize("shape", ["one size", "vnodes", "long", "any"])
def test_what_leaves_is_what_came_by_key(buffer, rng, shape):
    for most in (20, 3_000, 30_000):
        size = rng.choice([0, 7, 40])
        rows = {random_key(rng, shape): rng.randbytes(size or rng.randrange(9)) for _ in range(rng.randrange(1, most))}
        waiting = list(rows.items())
        while waiting:
            part = rng.choice([1, rng.randint(1, 500), 20_000])
            written(buffer, waiting[:part])
            waiting = waiting[part:]
        assert len(buffer) == len(rows)
        assert buffer.data_bytes == sum(len(TABLE) + len(key) + len(value) for key, value in rows.items())
        assert buffer.waiting_bytes > buffer.data_bytes
        assert drained(buffer) == sorted(rows.items())
        assert (len(buffer), buffer.size_bytes, drained(buffer)) == (0, 0, [])


@pytest.mark.parametrize("order", ["in order", "slices shuffled", "overlapping"])
@pytest.mark.parametrize("tail", [False, True], ids=["values of one size", "values of many sizes"])
def test_runs_of_ascending_keys_leave_in_order(buffer, rng, order, tail):
    """As generated keys come: blocks of ascending ids, each of one vnode."""
    blocks = []
    for _ in range(rng.randrange(1, 40)):
        vnode, first = rng.randrange(9).to_bytes(2, "big"), rng.randrange(1 << 30)
        blocks.append([(vnode + (first + row).to_bytes(8, "big"), b"v" * (rng.randrange(9) if tail else 5))
                       for row in range(rng.choice([1, 40, 200]))])
    if order == "overlapping":
        rows = sorted({key: value for block in blocks for key, value in block}.items())
        blocks = [part for part in (rows[0::2], rows[1::2]) if part]
    if order == "slices shuffled":
        rng.shuffle(blocks)
    expected = {}
    for block in blocks:
        fresh = [row for row in block if row[0] not in expected]
        if fresh:
            written(buffer, fresh)
            expected |= fresh
    assert drained(buffer) == sorted(expected.items())


def test_of_several_writes_of_a_key_the_latest_slice_wins(slices, rng):
    for rows_of_slice in (1, 1, 5, 300, 9_000):
        model = {}
        for _ in range(12):
            keys = rng.sample(range(2 * rows_of_slice), rng.randint(1, rows_of_slice))
            rows, ops = [], []
            for key in keys:
                op, key = rng.choice([INSERT, DELETE, UPDATE_INSERT]), VNODE + key.to_bytes(4, "big")
                if op == UPDATE_INSERT and rng.random() < 0.5:
                    rows.append((key, b"old"))
                    ops.append(UPDATE_DELETE)
                model[key] = None if op == DELETE else rng.randbytes(rng.randrange(6))
                rows.append((key, model[key] or b""))
                ops.append(op)
            written(slices, rows, ops)
        assert drained(slices) == sorted(model.items())


def test_ascending_slices_keep_their_deletes(slices):
    written(slices, [(VNODE + b"%03d" % row, b"v") for row in range(100)], [row % 3 == 0 for row in range(100)])
    written(slices, [(VNODE + b"%03d" % row, b"w") for row in range(100, 200)])
    expected = [None if row % 3 == 0 else b"v" for row in range(100)] + [b"w"] * 100
    assert drained(slices) == [(VNODE + b"%03d" % row, value) for row, value in enumerate(expected)]


def test_an_update_of_two_keys_deletes_one_and_puts_the_other(slices):
    written(slices, [(VNODE + b"a", b"1"), (VNODE + b"b", b"2"), (VNODE + b"c", b"3")],
            [UPDATE_DELETE, UPDATE_INSERT, UPDATE_DELETE])
    assert drained(slices) == [(VNODE + b"a", None), (VNODE + b"b", b"2"), (VNODE + b"c", None)]


def test_slices_can_be_taken_back_in_the_order_in_which_they_came(slices):
    written(slices, [(VNODE + b"b", b"1"), (VNODE + b"a", b"2")])
    written(slices, [(VNODE + b"a", b"")], [DELETE])
    assert [list(batch) for batch in slices.take()] == [
        [(TABLE + VNODE + b"b", b"1"), (TABLE + VNODE + b"a", b"2")], [(TABLE + VNODE + b"a", None)]]
    assert len(slices) == 0 and slices.drain() == []


def test_a_key_that_comes_twice_is_named(inserts, slices):
    written(inserts, [(VNODE + b"b", b"1"), (VNODE + b"a", b"2")])
    written(inserts, [(VNODE + b"c", b"3"), (VNODE + b"b", b"1")])
    with pytest.raises(ConsistencyError, match="inserted before") as caught:
        inserts.drain()
    assert (caught.value.table, caught.value.key) == ("t", "b")
    written(slices, [(VNODE + b"b", b"1"), (VNODE + b"a", b"2"), (VNODE + b"b", b"2")])
    with pytest.raises(ConsistencyError, match="twice") as caught:
        slices.drain()
    assert (caught.value.table, caught.value.key) == ("t", "b")


@pytest.mark.parametrize("rows", [1, 100])
def test_a_key_that_is_inserted_twice_in_runs_is_named(inserts, rows):
    for _ in range(2):
        written(inserts, [(VNODE + b"%03d" % row, b"v") for row in range(rows)])
    with pytest.raises(ConsistencyError, match="inserted before"):
        inserts.drain()


@pytest.mark.parametrize("op", [DELETE, UPDATE_INSERT, UPDATE_DELETE])
def test_a_change_that_is_no_insert_is_named_and_nothing_of_its_chunk_is_taken(inserts, op):
    written(inserts, [(VNODE + b"a", b"1")])
    with pytest.raises(ConsistencyError, match="no insert") as caught:
        written(inserts, [(VNODE + b"b", b"2"), (VNODE + b"a", b"1")], [INSERT, op])
    assert (caught.value.table, caught.value.key) == ("t", "a")
    assert drained(inserts) == [(VNODE + b"a", b"1")]


@pytest.mark.parametrize("keys", [range(9, -1, -1), range(10)], ids=["descending", "ascending"])
def test_more_than_one_batch_holds_leaves_in_several(keys):
    buffer = SliceBuffer("t", shown, drain_bytes=100)
    for number in keys:
        written(buffer, [(VNODE + b"%d" % number, b"." * 20)])
    batches = [[shown(key) for key, _ in batch] for batch, _ in buffer.drain()]
    assert len(batches) > 1 and [key for batch in batches for key in batch] == list("0123456789")


def test_columns_of_other_lengths_are_refused(slices):
    keys = BinaryColumn.from_pylist([TABLE + VNODE + b"a"])
    with pytest.raises(ValueError, match="1 keys, 0 values, 1 ops"):
        slices.write(keys, BinaryColumn.from_pylist([]), np.zeros(1, np.uint8))
    slices.write(BinaryColumn.from_pylist([]), BinaryColumn.from_pylist([]), np.zeros(0, np.uint8))
    assert len(slices) == 0
