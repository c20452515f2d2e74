"""Vnodes depend on values, not on their Arrow layout; the examples of FORMAT.md are correct."""

import ast
import datetime as dt
import zlib
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from relational.chunk import Column, StreamChunk, VnodeMap, vnodes_of
from relational.encoding import KeyEncoder, ValueEncoder
from relational.types import DataType, Interval, TypeKind, VnodeRule
from tests.relational.random_rows import TYPES, columns_of, random_rows
from tests.support.drivers.pretty import from_pretty

FORMAT = Path(__file__).parents[3] / "relational" / "encoding" / "FORMAT.md"
READERS = {
    TypeKind.NUMERIC: Decimal,
    TypeKind.REAL: float,
    TypeKind.DOUBLE: float,
    TypeKind.DATE: dt.date.fromisoformat,
    TypeKind.TIME: dt.time.fromisoformat,
    TypeKind.TIMESTAMP: dt.datetime.fromisoformat,
    TypeKind.TIMESTAMPTZ: dt.datetime.fromisoformat,
    TypeKind.INTERVAL: lambda parts: Interval(*parts),
}


def documented(heading):
    """The rows of the table under a heading of FORMAT.md, as lists of cells."""
    section = FORMAT.read_text().split(f"### {heading}")[1].split("\n#")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    return [[cell.strip(" `") for cell in line.strip("|").split(" | ")] for line in lines]


def value_of(data_type, literal):
    value = ast.literal_eval(literal)
    reader = READERS.get(data_type.kind)
    return reader(value) if reader is not None and value is not None else value


def test_documented_keys_and_values():
    for heading, encoder_of in (("Examples of keys", KeyEncoder), ("Examples of values", ValueEncoder)):
        examples = documented(heading)
        assert len(examples) > 10
        for spelled, literal, expected in examples:
            data_type = DataType.parse(spelled)
            assert encoder_of([data_type]).encode_row((value_of(data_type, literal),)).hex() == expected, spelled


def columns_of_text(text):
    """(types, ids, defaults) of a list of `id type = default`, separated by semicolons."""
    parts = [part.split(" = ") for part in text.split("; ")]
    ids = [int(part[0].split(" ")[0]) for part in parts]
    types = [DataType.parse(part[0].split(" ", 1)[1]) for part in parts]
    defaults = [value_of(kind, part[1]) if len(part) > 1 else None for kind, part in zip(types, parts, strict=True)]
    return types, ids, defaults


def test_documented_rows_under_other_schemas():
    examples = documented("Examples of rows under other schemas")
    assert len(examples) >= 4
    for written, literals, raw, asked, found in examples:
        writer, reader = ValueEncoder(*columns_of_text(written)), ValueEncoder(*columns_of_text(asked))
        row = tuple(value_of(*pair) for pair in zip(writer.types, literals.split("; "), strict=True))
        assert writer.encode_row(row).hex() == raw
        expected = tuple(value_of(*pair) for pair in zip(reader.types, found.split("; "), strict=True))
        assert reader.decode_row(bytes.fromhex(raw)) == expected


def test_documented_vnodes():
    examples = documented("Examples of vnodes\n")
    assert len(examples) >= 50
    for spelled, literals, raw, crc, vnode in examples:
        types = [DataType.parse(each) for each in spelled.split("; ")]
        values = [value_of(*pair) for pair in zip(types, literals.split("; "), strict=True)]
        columns = [Column.from_pylist([value], kind) for value, kind in zip(values, types, strict=True)]
        assert zlib.crc32(bytes.fromhex(raw)) == int(crc, 16)
        assert vnodes_of(columns)[0] == int(vnode) == int(crc, 16) % 256, (spelled, literals)
        assert vnodes_of(columns, 1000)[0] == int(crc, 16) % 1000


@pytest.mark.parametrize("is_second", [False, True])
def test_texts_of_every_length(is_second, rng):
    """Near the end of a column too, behind which nothing may be read."""
    sizes = [*range(70), *rng.sample(range(70), 70), *range(70, -1, -1)]
    texts = [rng.randbytes(size) for size in sizes for _ in range(9)]
    numbers = [rng.getrandbits(63) for _ in texts]
    heads = [number.to_bytes(8, "little") if is_second else b"" for number in numbers]
    columns = [pa.array(numbers)] * is_second + [pa.array(texts, pa.binary())]
    expected = [zlib.crc32(head + text + b"\xff") % 32_768 for head, text in zip(heads, texts, strict=True)]
    assert vnodes_of(columns, 32_768).tolist() == expected
    for first in range(len(texts) - 20, len(texts)):
        assert vnodes_of([column[first:] for column in columns], 32_768).tolist() == expected[first:]


@pytest.mark.parametrize("count", [1, 7, 256, 1_024, 32_768])
def test_a_vnode_is_the_documented_checksum_modulo_the_count(count, rng):
    examples = [(types, values, int(crc, 16)) for types, values, _, crc, _ in documented("Examples of vnodes\n")]
    assert len(examples) > 50
    for spelled, literals, crc in examples:
        types = [DataType.parse(each) for each in spelled.split("; ")]
        row = tuple(value_of(kind, text) for kind, text in zip(types, literals.split("; "), strict=True))
        assert vnodes_of(columns_of(types, [row]), count).tolist() == [crc % count], (spelled, literals)
    rows = 100_000
    found = np.bincount(vnodes_of([pa.array(rng.sample(range(1 << 40), rows))], count), minlength=count)
    assert len(found) == count and (found > 0).mean() > 0.94
    assert abs(found - rows / count).max() < 7 * (rows / count) ** 0.5 + 2 * (count > 1)


@pytest.mark.parametrize("count", [0, -1, 32_769, 65_536])
def test_no_other_count_is_taken(count):
    with pytest.raises(ValueError, match="1 to 32768 vnodes"):
        vnodes_of([pa.array([1])], count)


def test_documented_vnodes_by_other_rules():
    examples = documented("Examples of vnodes by other rules")
    assert {rule for rule, *_ in examples} == {rule for rule in VnodeRule if rule is not VnodeRule.HASH}
    for rule, vnode_count, spelled, literal, vnode in examples:
        column = Column.from_pylist([ast.literal_eval(literal)], DataType.parse(spelled))
        assert vnodes_of([column], int(vnode_count), rule=VnodeRule(rule)).tolist() == [int(vnode)]


@pytest.mark.parametrize("rule", [VnodeRule.ROW_ID, VnodeRule.WIDE_ROW_ID])
@pytest.mark.parametrize("vnode_count", [1, 7, 256, 1_024, 1_025, 32_768])
def test_vnodes_of_row_ids_are_their_bits(rule, vnode_count, rng):
    ids = [None if rng.random() < 0.1 else rng.randrange(-(1 << 63), 1 << 63) for _ in range(500)]
    expected = [0 if each is None else (each >> rule.sequence_bits) % (1 << rule.vnode_bits) % vnode_count
                for each in ids]
    array = pa.array(ids)
    assert vnodes_of([array], vnode_count, rule=rule).tolist() == expected
    assert vnodes_of([array.slice(33, 200)], vnode_count, rule=rule).tolist() == expected[33:233]


def test_stored_vnodes_are_those_of_the_table():
    for kind in (pa.int16(), pa.int32(), pa.int64()):
        assert vnodes_of([pa.array([0, 255, 3], kind)], 256, rule=VnodeRule.STORED).tolist() == [0, 255, 3]
        for wrong in (256, -1, None):
            with pytest.raises(ValueError, match=f"a stored vnode {wrong} of 256"):
                vnodes_of([pa.array([1, wrong], kind)], 256, rule=VnodeRule.STORED)


@pytest.mark.parametrize("rule", [VnodeRule.ROW_ID, VnodeRule.WIDE_ROW_ID, VnodeRule.STORED])
def test_other_rules_than_the_hash_have_one_integer(rule):
    assert vnodes_of([], rows=2, rule=rule).tolist() == [0, 0]
    assert vnodes_of([pa.array([], pa.int64())], rule=rule).tolist() == []
    for columns in ([pa.array(["a"])], [pa.array([1]), pa.array([2])], [pa.array([1.5])]):
        with pytest.raises(ValueError, match="one column of an integer type"):
            vnodes_of(columns, rule=rule)


def test_the_rule_of_row_ids_follows_from_the_number_of_vnodes():
    assert VnodeRule.of_row_ids(1) is VnodeRule.of_row_ids(1_024) is VnodeRule.ROW_ID
    assert VnodeRule.of_row_ids(1_025) is VnodeRule.of_row_ids(32_768) is VnodeRule.WIDE_ROW_ID


def test_targets_and_parts_of_chunks_follow_the_rule():
    ids = np.arange(0, 6 << 12, 1 << 11)
    owners = VnodeMap([1, 2, 1, 2, 1, 2])
    assert owners.targets_of([pa.array(ids)], rule=VnodeRule.ROW_ID).tolist() == [1, 1, 2, 2] * 3
    chunk = StreamChunk([pa.array(ids)], np.zeros(12, np.uint8))
    parts = chunk.split_by_vnode([0], owners, VnodeRule.ROW_ID)
    assert {target: np.flatnonzero(part.visibility).tolist() for target, part in parts.items()} == {
        1: [0, 1, 4, 5, 8, 9], 2: [2, 3, 6, 7, 10, 11]}


def test_vnodes_do_not_see_how_arrow_holds_the_values(rng):
    words = [rng.choice(["", "a", "EUROPE", "a longer piece of text", "漢字", None]) for _ in range(500)]
    array = pa.array(words, pa.utf8())
    expected = vnodes_of([Column(array)])
    others = [
        array.cast(pa.large_utf8()),
        array.cast(pa.string_view()),
        array.dictionary_encode(),
        pa.chunked_array([array.slice(0, 100), array.slice(100)]),
    ]
    for other in others:
        assert (vnodes_of([other]) == expected).all()
    for _ in range(20):
        start, rows = rng.randrange(400), rng.randrange(100)
        assert (vnodes_of([array.slice(start, rows)]) == expected[start : start + rows]).all()


@pytest.mark.parametrize("data_type", TYPES, ids=str)
def test_a_slice_hashes_as_its_rows_do(data_type, rng):
    column = columns_of([data_type], random_rows(rng, [data_type], 200))[0]
    expected = vnodes_of([column])
    start = rng.randrange(1, 150)
    assert (vnodes_of([column.slice(start, 50)]) == expected[start : start + 50]).all()


def test_equal_values_of_sql_have_one_vnode():
    def vnode(value, data_type):
        return vnodes_of([Column.from_pylist([value], data_type)], 32_768)[0]

    assert vnode(-0.0, DataType.DOUBLE) == vnode(0.0, DataType.DOUBLE)
    assert vnode(7, DataType.SMALLINT) == vnode(7, DataType.INT) == vnode(7, DataType.BIGINT)
    assert vnode(Interval(1), DataType.INTERVAL) == vnode(Interval(0, 30), DataType.INTERVAL)
    assert vnode(Decimal("1.5"), DataType.numeric(5, 1)) == vnode(Decimal("1.5"), DataType.NUMERIC)
    nanoseconds = pa.array([1_000_000_000], pa.timestamp("ns"))
    assert vnodes_of([nanoseconds]) == vnodes_of([nanoseconds.cast(pa.timestamp("us"))])


def test_without_a_key_every_row_is_at_vnode_0():
    assert vnodes_of([], rows=3).tolist() == [0, 0, 0]
    assert vnodes_of([pa.array([], pa.int64())]).tolist() == []
    with pytest.raises(ValueError, match="vnodes"):
        vnodes_of([pa.array([1])], 0)
    with pytest.raises(ValueError, match="2 rows among 1"):
        vnodes_of([pa.array([1]), pa.array([1, 2])])


def test_vnodes_are_spread_evenly():
    counts = np.bincount(vnodes_of([pa.array(range(100_000))]), minlength=256)
    assert counts.min() > 300
    assert counts.max() < 500


def test_a_chunk_splits_by_vnode_and_parted_updates_become_plain():
    chunk = from_pretty("+ 1 a\nU- 1 a\nU+ 1 b\nU- 1 b\nU+ 2 b\n- 9 z D\n- 2 b")
    keys = [1, 2]
    owners = np.zeros(256, np.int32)
    owners[vnodes_of([pa.array([2])])[0]] = 1
    parts = chunk.split_by_vnode([0], VnodeMap(owners))
    assert len({*vnodes_of([pa.array(keys)]).tolist()}) == 2
    assert parts[0].to_pretty() == "+ 1 a\nU- 1 a\nU+ 1 b\n- 1 b"
    assert parts[1].to_pretty() == "+ 2 b\n- 2 b"
    assert sum(part.visible_rows for part in parts.values()) == chunk.visible_rows
    assert list(chunk.split_by_vnode([], VnodeMap.even([5]))) == [5]


def test_edges_with_one_partition_share_vnodes_and_masks():
    chunk = from_pretty("+ 1 a\nU- 1 a\nU+ 2 b\n- 9 z D\n- 2 b")
    vnodes = chunk.vnodes([0], 256)
    assert vnodes.tolist() == vnodes_of([chunk.columns[0]]).tolist()
    assert chunk.vnodes((0,), 256) is vnodes
    assert chunk.vnodes([0], 4).tolist() == vnodes_of([chunk.columns[0]], 4).tolist()
    with pytest.raises(ValueError, match="read-only"):
        vnodes[0] = 1
    by_key = chunk.split_by_vnode([0], VnodeMap.even([1, 2]))
    other = chunk.split_by_vnode([0], VnodeMap.even([5, 7]))
    uneven = chunk.split_by_vnode([0], VnodeMap([7] * 4 + [5] * 252))
    by_text = chunk.split_by_vnode([1], VnodeMap.even([1, 2]))
    again = from_pretty(chunk.to_pretty())
    for parts, owners, key in [
        (by_key, VnodeMap.even([1, 2]), 0),
        (other, VnodeMap.even([5, 7]), 0),
        (uneven, VnodeMap([7] * 4 + [5] * 252), 0),
        (by_text, VnodeMap.even([1, 2]), 1),
    ]:
        alone = again.split_by_vnode([key], owners)
        assert {owner: part.to_pretty() for owner, part in parts.items()} == {
            owner: part.to_pretty() for owner, part in alone.items()
        }
        again = from_pretty(chunk.to_pretty())
    assert all(by_key[1 if owner == 5 else 2].visibility is part.visibility for owner, part in other.items())
