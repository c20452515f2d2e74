"""A compiled prefix rule extracts the prefixes that the rule defines."""

import random

import pytest

from hummock.base.key import user_key
from hummock.base.table_rules import KeyColumn, PrefixRule
from hummock.sstable.filter.prefix_extractor import key_prefix

SEED = 7


def string_payload(value: bytes) -> bytes:
    if not value:
        return b"\x00"
    groups = [value[at:at + 8] for at in range(0, len(value), 8)]
    marks = [9] * (len(groups) - 1) + [len(groups[-1])]
    return b"\x01" + b"".join(group.ljust(8, b"\0") + bytes([mark]) for group, mark in zip(groups, marks, strict=True))


def encoded(column: KeyColumn, rng: random.Random) -> bytes:
    """A random value of the column, in key encoding."""
    flip = 0xFF if column.inverted else 0
    if rng.random() < 0.2:
        return bytes([column.null_tag])
    tag = 1 - (column.null_tag ^ flip)
    text = rng.randbytes(rng.choice((0, 1, 8, 9, 20)))
    payload = rng.randbytes(column.width) if column.width else string_payload(text)
    return bytes(byte ^ flip for byte in bytes([tag]) + payload)


def some_columns(rng: random.Random) -> tuple[KeyColumn, ...]:
    columns = []
    for _ in range(rng.randint(1, 4)):
        inverted = rng.random() < 0.5
        null = rng.randint(0, 1)
        columns.append(KeyColumn(null ^ 0xFF if inverted else null, rng.choice((0, 1, 4, 8)), inverted))
    return tuple(columns)


@pytest.mark.parametrize("seed", range(SEED, SEED + 20))
def test_columns_end_where_they_were_put_together(seed):
    rng = random.Random(seed)
    rule = PrefixRule(columns=some_columns(rng))
    for _ in range(50):
        prefix = user_key(7, rng.randint(0, 9), b"".join(encoded(column, rng) for column in rule.columns))
        assert key_prefix(rule).length(prefix + rng.randbytes(rng.randint(0, 9))) == len(prefix)
        assert all(key_prefix(rule).length(prefix[:size]) == 0 for size in range(len(prefix)))


def test_fixed_bytes_count_table_and_vnode():
    rule = key_prefix(PrefixRule(8))
    assert rule.length(user_key(1, 0, b"ab")) == 8
    assert rule.length(user_key(1, 0, b"abc")) == 8
    assert rule.length(user_key(1, 0, b"a")) == 0


def test_a_string_that_does_not_parse_has_no_prefix():
    rule = key_prefix(PrefixRule(columns=(KeyColumn(1, 0),)))
    assert rule.length(user_key(1, 0, b"\x00\x02" + bytes(20))) == 0
    assert rule.length(user_key(1, 0, b"\x00\x01" + bytes(8))) == 0
    assert rule.length(user_key(1, 0, b"\x01")) == 7
    assert rule.length(user_key(1, 0, b"\x00\x00")) == 8


def test_equal_rules_share_their_compiled_form():
    assert key_prefix(PrefixRule(8)) is key_prefix(PrefixRule(8))
    assert key_prefix(PrefixRule(8)) is not key_prefix(PrefixRule(9))
