"""Key watermarks of ranges of vnodes say the same as one key for each vnode."""

import random
from itertools import pairwise

import pytest

from hummock.base.key import USER_KEY_PREFIX_BYTES, user_key, vnode_of
from hummock.base.key_watermark import KeyWatermark, compact, passed_ranges, sections

VNODES = 12


def drawn(rng, epoch=1, is_descending=False):
    """Few keys, so that neighbours often share one."""
    keys = {vnode: rng.choice((b"", b"a", b"ab", b"b", b"c")) for vnode in rng.sample(range(VNODES), rng.randint(0, 9))}
    return keys, KeyWatermark.of(epoch, keys, is_descending)


@pytest.mark.parametrize("seed", range(100))
def test_ranges_have_the_keys_of_their_vnodes(seed):
    rng = random.Random(seed)
    keys, mark = drawn(rng)
    assert [mark.key_of(vnode) for vnode in range(VNODES)] == [keys.get(vnode) for vnode in range(VNODES)]
    assert len(mark.marks) <= len(keys) and KeyWatermark.from_json(mark.to_json()) == mark
    other, another = drawn(rng)
    found = {}
    for first, last, key, second in sections(mark.marks, another.marks):
        found |= dict.fromkeys(range(first, last + 1), (key, second))
    assert found == {vnode: (keys.get(vnode), other.get(vnode)) for vnode in keys | other}


def test_a_mark_common_to_all_vnodes_is_one_entry():
    mark = KeyWatermark.of(7 << 16, dict.fromkeys(range(32_768), b"key"))
    assert mark.marks == ((0, 32_767, b"key"),)
    assert mark.to_json() == {"epoch": 7 << 16, "is_descending": False, "keys": [[0, 32_767, "6b6579"]]}
    later = mark.followed_by(KeyWatermark(8 << 16, ((0, 32_767, b"more"),)))
    assert later.marks == ((0, 32_767, b"more"),)


def test_records_of_older_releases_have_a_key_for_each_vnode():
    record = {"epoch": 7, "is_descending": True, "keys": [[0, "61"], [1, "61"], [9, ""]]}
    mark = KeyWatermark.from_json(record)
    assert [mark.key_of(vnode) for vnode in (0, 1, 2, 9, 10)] == [b"a", b"a", None, b"", None]
    assert mark.to_json() == record


@pytest.mark.parametrize("marks", [
    ((3, 2, b""),), ((0, 5, b""), (5, 6, b"a")), ((4, 4, b""), (1, 1, b"")), ((-1, 2, b""),), ((0, 1 << 16, b""),),
])
def test_vnodes_that_are_not_ascending_are_refused(marks):
    with pytest.raises(ValueError, match="ascending"):
        KeyWatermark(1, marks)


@pytest.mark.parametrize("keys", [
    [[]], [[0]], [["0", "61"]], [[0, 1, 2, 3]], [[0, None]], [[0, "6"]], [[1 << 16, "61"]], [[True, "61"]], [5], None,
])
def test_records_that_nobody_wrote_are_refused(keys):
    with pytest.raises((KeyError, TypeError, ValueError)):
        KeyWatermark.from_json({"epoch": 7, "is_descending": False, "keys": keys})


@pytest.mark.parametrize("seed", range(60))
def test_outside_of_the_passed_ranges_both_hide_the_same_keys(seed):
    rng = random.Random(seed)
    (_, before), (_, added) = drawn(rng, 1, rng.random() < 0.5), drawn(rng, 2, rng.random() < 0.5)
    before = None if rng.random() < 0.2 else before
    after = added if before is None else before.followed_by(added)
    ranges = passed_ranges(5, before, after)
    assert all(left.end <= right.start for left, right in pairwise(ranges) if left.start)
    for vnode in range(VNODES + 1):
        for tail in (b"", b"a", b"a0", b"ab", b"abc", b"b", b"bb", b"c", b"cc", b"d"):
            key = user_key(5, vnode, tail)
            is_within = any(part.start <= key and (part.end is None or key < part.end) for part in ranges)
            assert is_within or hides(before, key) == hides(after, key), (vnode, tail)


def hides(mark, key):
    bound, own = None if mark is None else mark.key_of(vnode_of(key)), key[USER_KEY_PREFIX_BYTES:]
    if bound is None:
        return False
    return own > bound and not own.startswith(bound) if mark.is_descending else own < bound


def test_neighbours_with_one_key_become_one_range():
    assert compact([(0, 0, b"a"), (1, 4, b"a"), (5, 5, b"b"), (7, 7, b"b")]) == (
        (0, 4, b"a"), (5, 5, b"b"), (7, 7, b"b"))
