"""InsertBuffer: rows are drained in key order; anything but the first insert of a key is an error with the key."""

import random

import numpy as np
import pytest

from hummock.columnar.binary_column import BinaryColumn
from relational.errors import ConsistencyError
from relational.table import insert_buffer
from relational.table.insert_buffer import InsertBuffer
from tests.support.drivers.seeds import run_seed

TABLE = b"\0\0\0\7\0\0"
INSERT, DELETE = 0, 1


def written(buffer, rows, ops=None):
    keys, values = zip(*rows, strict=True)
    ops = np.zeros(len(rows), np.uint8) if ops is None else np.array(ops, np.uint8)
    buffer.write(BinaryColumn.from_pylist([TABLE + key for key in keys]), BinaryColumn.from_pylist(list(values)), ops)


def drained(buffer):
    return [(key[len(TABLE) :], value) for batch, old in buffer.drain() for key, value in batch if old is None]


def shown(key):
    return key[len(TABLE) :].decode()


@pytest.fixture
def buffer():
    return InsertBuffer("t", shown)


@pytest.fixture
def rng():
    return random.Random(run_seed())


@pytest.mark.parametrize("tail", [False, True], ids=["keys of one size", "keys of many sizes"])
def test_what_leaves_is_what_came_by_key(buffer, rng, tail):
    for _ in range(3):
        rows = {rng.randrange(1 << 20).to_bytes(9, "big") + b"x" * (rng.randrange(30) if tail else 0):
                rng.randbytes(rng.randrange(9)) for _ in range(rng.randrange(1, 3_000))}
        waiting = list(rows.items())
        while waiting:
            part = rng.randint(1, 500)
            written(buffer, waiting[:part])
            waiting = waiting[part:]
        assert len(buffer) == len(rows)
        assert buffer.waiting_bytes > sum(len(TABLE) + len(key) + len(value) for key, value in rows.items())
        assert drained(buffer) == sorted(rows.items())
        assert (len(buffer), buffer.size_bytes, drained(buffer)) == (0, 0, [])


def test_a_key_that_comes_twice_is_named(buffer):
    written(buffer, [(b"b", b"1"), (b"a", b"2")])
    written(buffer, [(b"c", b"3"), (b"b", b"1")])
    with pytest.raises(ConsistencyError, match="inserted before") as caught:
        buffer.drain()
    assert (caught.value.table, caught.value.key) == ("t", "b")


def test_a_change_that_is_no_insert_is_named_and_nothing_of_its_chunk_is_taken(buffer):
    written(buffer, [(b"a", b"1")])
    with pytest.raises(ConsistencyError, match="no insert") as caught:
        written(buffer, [(b"b", b"2"), (b"a", b"1")], [INSERT, DELETE])
    assert (caught.value.table, caught.value.key) == ("t", "a")
    assert drained(buffer) == [(b"a", b"1")]


def test_more_than_one_batch_holds_leaves_in_several(buffer, monkeypatch):
    monkeypatch.setattr(insert_buffer, "DRAIN_BYTES", 100)
    for number in range(9, -1, -1):
        written(buffer, [(b"%d" % number, b"." * 20)])
    batches = [[shown(key) for key, _ in batch] for batch, _ in buffer.drain()]
    assert len(batches) > 1 and all(batch == sorted(batch) for batch in batches)
    assert sorted(key for batch in batches for key in batch) == list("0123456789")
