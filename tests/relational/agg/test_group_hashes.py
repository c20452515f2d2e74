"""The hashes of groups against SipHash-2-4-128 as its paper describes it, and where the vnode of a group is."""

import random
import re

import numpy as np
import pytest

from relational.agg import group_hashes as group_hashes_module
from relational.agg.group_hashes import GroupHashes, hash_key_for
from relational.chunk.column import Column
from relational.chunk.vnode import vnodes_of
from relational.encoding.key.encoder import KeyEncoder
from relational.hash.key_ids import KeyInterner
from relational.types import DataType, VnodeRule
from tests.support.drivers.seeds import run_seed

KEY = bytes(range(16))
WORD = (1 << 64) - 1
TYPES = (DataType.VARCHAR, DataType.BIGINT)
DATE, DOUBLE = DataType.DATE, DataType.DOUBLE


def rotated(word, bits):
    return (word << bits | word >> (64 - bits)) & WORD


def rounds(v, count):
    v0, v1, v2, v3 = v
    for _ in range(count):
        v0, v2 = (v0 + v1) & WORD, (v2 + v3) & WORD
        v1, v3 = rotated(v1, 13) ^ v0, rotated(v3, 16) ^ v2
        v0, v2 = (rotated(v0, 32) + v3) & WORD, (v2 + v1) & WORD
        v3, v1 = rotated(v3, 21) ^ v0, rotated(v1, 17) ^ v2
        v2 = rotated(v2, 32)
    return [v0, v1, v2, v3]


def siphash(key, data):
    """The two words of output."""
    low, high = (int.from_bytes(key[at : at + 8], "little") for at in (0, 8))
    v = [low ^ 0x736F6D6570736575, high ^ 0x646F72616E646F6D ^ 0xEE, low ^ 0x6C7967656E657261,
         high ^ 0x7465646279746573]
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) % 256])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        v = rounds(v, 2)
        v[0] ^= word
    v[2] ^= 0xEE
    v = rounds(v, 4)
    first = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    v = rounds(v, 4)
    return first, v[0] ^ v[1] ^ v[2] ^ v[3]


def columns_of(types, rows):
    return [Column.from_pylist([row[at] for row in rows], each) for at, each in enumerate(types)]


def interned(types, rows):
    numbers = KeyInterner(types)
    numbers.find(columns_of(types, rows))
    return numbers


def hashes_of(groups, distribution, vnode_count, key=KEY):
    hashes = GroupHashes(distribution, vnode_count, key)
    hashes.add(groups)
    return hashes


def words_of(groups, ids):
    columns = groups.keys(np.array(ids, np.int32))
    return list(zip(*(column.array.to_pylist() for column in columns), strict=True))


@pytest.mark.parametrize(("size", "output"), [
    (0, "a3817f04ba25a8e66df67214c7550293"), (1, "da87c1d86b99af44347659119b22fc45"),
    (2, "8177228da4a45dc7fca38bdef60affe4")])
def test_the_reference_gives_the_published_outputs(size, output):
    assert b"".join(word.to_bytes(8, "little") for word in siphash(KEY, bytes(range(size)))).hex() == output


@pytest.mark.parametrize(("vnode_count", "rule"), [(256, VnodeRule.ROW_ID), (7, VnodeRule.ROW_ID),
                                                   (4_096, VnodeRule.WIDE_ROW_ID), (32_768, VnodeRule.WIDE_ROW_ID)])
@pytest.mark.parametrize("distribution", [(0,), (1,), (0, 1), ()])
def test_the_columns_are_the_hash_of_the_key_and_the_vnode_of_the_group(vnode_count, rule, distribution):
    rng = random.Random(run_seed())
    texts = [None, *("ü" * size for size in range(9)), *("x" * size for size in range(300))]
    rows = list({(rng.choice(texts), rng.choice([None, rng.randrange(99)])) for _ in range(300)})
    hashes = hashes_of(interned(TYPES, rows), distribution, vnode_count)
    columns = columns_of(TYPES, rows)
    vnodes = vnodes_of([columns[each] for each in distribution], vnode_count, rows=len(rows))
    found = words_of(hashes, range(len(rows)))
    above = (1 << rule.vnode_bits) - 1 << rule.sequence_bits | 1 << 63
    for row, (first, second), vnode in zip(rows, found, vnodes.tolist(), strict=True):
        high, low = siphash(KEY, KeyEncoder(TYPES).encode(columns_of(TYPES, [row])).to_arrow()[0].as_py())
        assert (first, second & WORD) == (high & ~above | vnode << rule.sequence_bits, low)
    assert len(set(found)) == len(rows) == hashes.count
    if distribution:
        table_vnodes = vnodes_of([hashes.keys(np.arange(len(rows), dtype=np.int32))[0]], vnode_count, rule=rule)
        assert table_vnodes.tolist() == vnodes.tolist()


def test_the_example_of_the_format():
    text = group_hashes_module.__doc__
    (vnode,), values = re.findall(r"has the vnode (\d+)", text), re.findall(r"0x[0-9a-f]{16}", text)
    ((first, second),) = words_of(hashes_of(interned(TYPES, [("a", 1)]), (0, 1), 256), [0])
    assert [f"{first:#018x}", f"{second & WORD:#018x}"] == values
    assert first >> 12 & 1023 == int(vnode)


def test_equal_values_have_equal_hashes_and_groups_of_one_column_too():
    zeros = [hashes_of(interned((DOUBLE,), [(value,)]), (0,), 256) for value in (0.0, -0.0)]
    assert words_of(zeros[0], [0]) == words_of(zeros[1], [0])
    assert words_of(hashes_of(interned(TYPES, [("a", 1)]), (0,), 256, bytes(16)), [0]) \
        != words_of(hashes_of(interned(TYPES, [("a", 1)]), (0,), 256), [0])


def test_groups_are_added_and_kept():
    rng, rows = random.Random(run_seed()), [(f"g{number}", number) for number in range(2_000)]
    numbers, hashes, known = KeyInterner(TYPES), GroupHashes((0,), 256, KEY), {}
    for first in range(0, len(rows), 250):
        numbers.find(columns_of(TYPES, rows[first : first + 250]))
        hashes.add(numbers)
        hashes.add(numbers)
        ids = range(numbers.count)
        for key, words in zip(words_of(numbers, ids), words_of(hashes, ids), strict=True):
            assert known.setdefault(key, words) == words
        kept = np.array(sorted(rng.sample(range(numbers.count), numbers.count // 2)), np.int32)
        numbers.keep(kept)
        hashes.keep(kept)
        assert hashes.count == numbers.count == len(kept)
    assert len(set(known.values())) == len(rows)


def test_wrong_numbers_are_refused():
    hashes = hashes_of(interned(TYPES, [("a", 1), ("b", 2)]), (0,), 256)
    for wrong in (-1, 2):
        with pytest.raises(IndexError, match=f"group number {wrong} of 2"):
            hashes.keys(np.array([wrong], np.int32))
    for kept in ([1, 0], [2], [0, 0], [-1]):
        with pytest.raises(ValueError, match="group number"):
            hashes.keep(np.array(kept, np.int32))
    with pytest.raises(ValueError, match="16 bytes, not 3"):
        GroupHashes((0,), 256, b"abc")


@pytest.mark.parametrize(("types", "is_hashed"), [
    ((), False), ((DataType.BIGINT,), False), ((DataType.TIMESTAMP,), False), ((DataType.INTERVAL,), False),
    ((DataType.BIGINT, DataType.BIGINT), False), ((DataType.BIGINT, DataType.TIMESTAMP), True),
    ((DataType.BIGINT, DATE, DATE), True), ((DataType.VARCHAR,), True), ((DataType.numeric(10, 2),), True)])
def test_columns_that_are_longer_than_a_hash_are_hashed(types, is_hashed):
    keys = {hash_key_for(types) for _ in range(3)}
    assert (len(keys) == 3 and {len(key) for key in keys} == {16}) if is_hashed else keys == {None}
