"""MemTable: folding rules one by one, and random programs against a plain dict."""

import random

import numpy as np
import pytest

from hummock.columnar.binary_column import BinaryColumn
from relational.errors import ConsistencyError
from relational.table.mem_table import MemTable

INSERT, DELETE, UPDATE_INSERT, UPDATE_DELETE = range(4)
TABLE = b"\0\0\0\7\0\0"


def column(items):
    return BinaryColumn.from_pylist(list(items))


def write(table, operations, **options):
    """`operations`: (op, key, value)."""
    ops, keys, values = zip(*operations, strict=True)
    table.write(column(TABLE + key for key in keys), column(values), np.array(ops, np.uint8), **options)


def drained(table):
    return [(key[len(TABLE) :], value) for batch, _ in table.drain() for key, value in batch]


FOLDS = {
    "insert": ([(INSERT, b"1")], [b"1"]),
    "delete": ([(DELETE, b"0")], [None]),
    "update": ([(UPDATE_DELETE, b"0"), (UPDATE_INSERT, b"1")], [b"1"]),
    "insert, delete": ([(INSERT, b"1"), (DELETE, b"1")], []),
    "insert, delete, insert": ([(INSERT, b"1"), (DELETE, b"1"), (INSERT, b"2")], [b"2"]),
    "insert, update": ([(INSERT, b"1"), (UPDATE_DELETE, b"1"), (UPDATE_INSERT, b"22")], [b"22"]),
    "insert, update, delete": (
        [(INSERT, b"1"), (UPDATE_DELETE, b"1"), (UPDATE_INSERT, b"2"), (DELETE, b"2")],
        [],
    ),
    "delete, insert": ([(DELETE, b"0"), (INSERT, b"1")], [b"1"]),
    "delete, insert, delete": ([(DELETE, b"0"), (INSERT, b"1"), (DELETE, b"1")], [None]),
    "update, delete": ([(UPDATE_DELETE, b"0"), (UPDATE_INSERT, b"1"), (DELETE, b"1")], [None]),
}


@pytest.mark.parametrize("name", FOLDS)
@pytest.mark.parametrize("one_by_one", [False, True])
def test_fold(name, one_by_one):
    operations, expected = FOLDS[name]
    table = MemTable("t")
    rows = [(op, b"k", value) for op, value in operations]
    if one_by_one and not any(op == UPDATE_DELETE for op, _ in operations):
        for row in rows:
            write(table, [row])
    else:
        write(table, rows)
    assert drained(table) == [(b"k", value) for value in expected]
    assert len(table) == 0 and drained(table) == []


@pytest.mark.parametrize(
    "operations",
    [
        [INSERT, INSERT],
        [DELETE, DELETE],
        [INSERT, DELETE, DELETE],
        [DELETE, INSERT, INSERT],
        [DELETE, UPDATE_DELETE, UPDATE_INSERT],
        [INSERT, DELETE, UPDATE_DELETE, UPDATE_INSERT],
    ],
)
def test_contradictions_name_table_and_key(operations):
    with pytest.raises(ConsistencyError) as caught:
        write(MemTable("orders"), [(op, b"k", b"v") for op in operations])
    assert caught.value.table == "orders" and caught.value.key == TABLE + b"k"


def test_update_with_two_keys_is_delete_and_insert():
    table = MemTable("t")
    write(table, [(UPDATE_DELETE, b"a", b"1"), (UPDATE_INSERT, b"b", b"2")])
    assert drained(table) == [(b"a", None), (b"b", b"2")]


def test_half_hidden_update():
    table = MemTable("t")
    update = [(UPDATE_DELETE, b"a", b"1"), (UPDATE_INSERT, b"a", b"2")]
    write(table, update, visibility=np.array([1, 0], np.uint8))
    assert drained(table) == [(b"a", None)]
    write(table, update, visibility=np.array([0, 1], np.uint8))
    assert drained(table) == [(b"a", b"2")]


def test_new_half_alone_puts_whatever_was_there():
    table = MemTable("t")
    write(table, [(UPDATE_INSERT, b"a", b"1"), (UPDATE_INSERT, b"a", b"2"), (DELETE, b"a", b"")])
    write(table, [(UPDATE_INSERT, b"a", b"333"), (INSERT, b"b", b"")])
    write(table, [(UPDATE_INSERT, b"b", b"4")])
    write(table, [(DELETE, b"b", b"4")])
    assert drained(table) == [(b"a", b"333")]


def test_range_shows_deletes_and_is_a_copy():
    table = MemTable("t")
    write(table, [(INSERT, b"c", b"3"), (DELETE, b"a", b"1"), (INSERT, b"b", b"2"), (INSERT, b"d", b"4")])
    rows = table.range(TABLE + b"a", TABLE + b"d")
    write(table, [(DELETE, b"c", b"3"), (INSERT, b"aa", b"5")])
    assert list(rows) == [(TABLE + b"a", None), (TABLE + b"b", b"2"), (TABLE + b"c", b"3")]
    assert [key[6:] for key, _ in table.range(TABLE + b"a")] == [b"a", b"aa", b"b", b"d"]


def test_a_row_that_vanished_before_a_sort_can_come_back():
    table = MemTable("t")
    write(table, [(INSERT, b"b", b"2"), (INSERT, b"a", b"1"), (DELETE, b"a", b"1"), (DELETE, b"z", b"9")])
    assert list(table.range(TABLE)) == [(TABLE + b"b", b"2"), (TABLE + b"z", None)]
    with pytest.raises(ConsistencyError, match="deleted before"):
        write(table, [(DELETE, b"a", b"1")])
    write(table, [(INSERT, b"a", b"3"), (INSERT, b"c", b"4"), (DELETE, b"c", b"4")])
    assert list(table.range(TABLE)) == [(TABLE + b"a", b"3"), (TABLE + b"b", b"2"), (TABLE + b"z", None)]
    write(table, [(DELETE, b"a", b"3"), (UPDATE_INSERT, b"c", b"5")])
    assert list(table.range(TABLE)) == [(TABLE + b"b", b"2"), (TABLE + b"c", b"5"), (TABLE + b"z", None)]
    write(table, [(INSERT, b"a", b"6")])
    assert drained(table) == [(b"a", b"6"), (b"b", b"2"), (b"c", b"5"), (b"z", None)]


def test_get_many_asks_once_for_what_is_unknown():
    table, asked = MemTable("t"), []

    def fetch(keys):
        asked.append([key[6:] for key in keys])
        return column(b"store" if key.endswith(b"s") else None for key in keys)

    keys = column(TABLE + key for key in (b"s", b"a", b"x", b"b", b"ss"))
    assert list(table.get_many(keys, fetch)) == [b"store", None, None, None, b"store"]
    write(table, [(INSERT, b"a", b"1"), (DELETE, b"b", b"")])
    assert list(table.get_many(keys, fetch)) == [b"store", b"1", None, None, b"store"]
    assert asked[1] == [b"s", b"x", b"ss"]
    assert list(table.get_many(keys.slice(1, 1), fetch)) == [b"1"] and len(asked) == 2


def legal_operations(rng, rows, count, tail):
    """Operations consistent with `rows` (key -> value), to which they are applied."""
    operations = []
    for _ in range(count):
        key = rng.randrange(300).to_bytes(9, "big") + b"x" * (rng.randrange(30) if tail else 0)
        old, new = rows.get(key), bytes(rng.randrange(256) for _ in range(rng.randrange(20)))
        if old is None:
            operations.append((INSERT, key, new))
            rows[key] = new
        elif rng.random() < 0.5:
            operations += [(UPDATE_DELETE, key, old), (UPDATE_INSERT, key, new)]
            rows[key] = new
        else:
            operations.append((DELETE, key, old))
            del rows[key]
    return operations


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed):
    rng = random.Random(seed)
    stored, rows, table = {}, {}, MemTable("t")
    for _ in range(6):
        for _ in range(rng.randrange(5)):
            operations = legal_operations(rng, rows, rng.randrange(1, 400), seed % 2)
            write(table, operations)
            low, high = sorted(rng.randrange(300).to_bytes(9, "big") for _ in range(2))
            seen = {key[6:]: value for key, value in table.range(TABLE + low, TABLE + high)}
            merged = {key: value for key, value in (stored | seen).items() if value is not None}
            merged = {key: value for key, value in merged.items() if low <= key < high}
            assert merged == {key: value for key, value in rows.items() if low <= key < high}
        changes = drained(table)
        assert [key for key, _ in changes] == sorted({key for key, _ in changes})
        for key, value in changes:
            assert value is not None or key in stored
            stored[key] = value
        stored = {key: value for key, value in stored.items() if value is not None}
        assert stored == rows


def test_size_bytes_follows_what_is_held():
    table = MemTable("t")
    empty = table.size_bytes
    write(table, [(INSERT, number.to_bytes(4, "big"), b"v" * 100) for number in range(1_000)])
    assert table.size_bytes - empty >= 1_000 * (10 + 100)
    table.drain()
    assert table.size_bytes <= empty + 64 * 1024


def test_an_overwrite_replaces_whatever_this_epoch_did_to_a_key():
    table = MemTable("t")
    write(table, [(INSERT, b"a", b"1"), (INSERT, b"b", b"2"), (DELETE, b"b", b"2"), (DELETE, b"c", b"3")])
    table.overwrite(column(TABLE + key for key in (b"c", b"b", b"a", b"d", b"e")),
                    column([b"33", b"22", None, b"44", None]))
    assert drained(table) == [(b"a", None), (b"b", b"22"), (b"c", b"33"), (b"d", b"44"), (b"e", None)]
    table.overwrite(column([]), column([]))
    assert drained(table) == []
    with pytest.raises(ValueError, match="1 keys, 0 values"):
        table.overwrite(column([TABLE]), column([]))
