"""User keys and ranges of them."""

import pickle
import random

import pytest

from hummock.base.key import KeyRange, successor_of_prefix, table_id_of, user_key, vnode_of
from hummock.errors import InvalidKey


def test_a_user_key_is_table_id_then_vnode_then_table_key():
    key = user_key(table_id=0x01020304, vnode=0x0506, key=b"k")
    assert key == b"\x01\x02\x03\x04\x05\x06k"
    assert (table_id_of(key), vnode_of(key)) == (0x01020304, 0x0506)


def test_numbers_that_do_not_fit_are_refused():
    with pytest.raises(InvalidKey):
        user_key(1 << 32, 0, b"")
    with pytest.raises(InvalidKey):
        user_key(1, 1 << 16, b"")


def test_a_short_key_has_the_table_id_of_its_padded_form():
    assert table_id_of(b"a") == 0x61000000
    assert vnode_of(b"abcde") == 0x6500


def test_a_range_holds_exactly_the_keys_with_its_prefix():
    rng = random.Random(7)
    for _ in range(2_000):
        prefix = bytes(rng.choice(b"\x00\x01\xfe\xff") for _ in range(rng.randrange(4)))
        key = bytes(rng.choice(b"\x00\x01\xfe\xff") for _ in range(rng.randrange(6)))
        assert (key in KeyRange.prefix(prefix)) == key.startswith(prefix)


def test_the_last_prefix_has_no_successor():
    assert successor_of_prefix(b"\xff\xff") is None
    assert successor_of_prefix(b"a\xff") == b"b"
    assert KeyRange.table(0xFFFF_FFFF).end is None


def test_tables_and_vnodes_are_ranges():
    assert KeyRange.table(1) == KeyRange(b"\0\0\0\1", b"\0\0\0\2")
    assert KeyRange.vnode(1, 255) == KeyRange(b"\0\0\0\1\0\xff", b"\0\0\0\1\1")


def test_a_range_survives_pickling():
    assert pickle.loads(pickle.dumps(KeyRange(b"a", None))) == KeyRange(b"a", None)
