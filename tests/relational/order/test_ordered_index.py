"""OrderedIndex and update_window against a sorted list."""

import random
from bisect import bisect_left, insort

import numpy as np
import pytest

from hummock.columnar.binary_column import BinaryColumn
from relational.errors import ConsistencyError
from relational.order.order_window import update_window
from relational.order.ordered_index import OrderedIndex


def column(values):
    return BinaryColumn.from_pylist(list(values))


def pairs(columns):
    keys, values = columns
    return list(zip(keys, values, strict=True))


def random_key(rng, spread):
    group = rng.choice([b"\x00a", b"\x00b", b"\x01", b""])
    return group + rng.randrange(spread).to_bytes(rng.choice([2, 9]), "big") + b"k" * rng.choice([0, 0, 12])


def value_of(key):
    return key[::-1] * (len(key) % 3)


def random_changes(rng, present, count, spread):
    """Consistent (key, value, op); they are applied to `present`, a sorted list of keys."""
    out = []
    for _ in range(count):
        if present and rng.random() < 0.48:
            key = present.pop(rng.randrange(len(present)))
            out.append((key, b"not looked at", rng.choice([1, 3])))
        else:
            key = rng.choice(present) if present and rng.random() < 0.2 else random_key(rng, spread)
            insort(present, key)
            out.append((key, value_of(key), rng.choice([0, 2])))
    return out


def columns_of(changes):
    keys, values, ops = zip(*changes, strict=True)
    return column(keys), column(values), np.array(ops, np.uint8)


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("spread", [20, 60_000])
def test_order_follows_the_oracle(seed, spread):
    rng = random.Random(f"{seed} {spread}")
    index, present = OrderedIndex(), []
    for _ in range(15):
        index.update(*columns_of(random_changes(rng, present, rng.randrange(1, 400), spread)))
        assert len(index) == len(present) and index.keys == len(set(present))
        assert pairs(index.slice(0, 10**9)) == [(key, value_of(key)) for key in present]
        start, stop = sorted(rng.randrange(len(present) + 2) for _ in range(2))
        part = present[start:stop]
        assert list(index.slice(start, stop)[0]) == part
        assert list(index.slice(start, stop, reverse=True)[0]) == part[::-1]
        asked = [random_key(rng, spread) for _ in range(20)] + present[::7]
        assert index.rank(column(asked)).tolist() == [bisect_left(present, key) for key in asked]
        low, high = sorted(random_key(rng, spread) for _ in range(2))
        assert index.span(low, high) == (bisect_left(present, low), bisect_left(present, high))
        assert index.span(None, high)[0] == 0 and index.span(low)[1] == len(present)
        if rng.random() < 0.2:
            index.update(column(present), None, np.ones(len(present), np.uint8))
            present.clear()
            assert len(index) == index.keys == 0


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("is_grouped", [False, True])
def test_windows_report_what_left_and_what_entered(seed, is_grouped):
    rng = random.Random(f"{seed} {is_grouped}")
    index, present = OrderedIndex(), []
    offset, limit = rng.randrange(4), rng.choice([0, 1, 3, 50])
    for _ in range(25):
        before = list(present)
        changes = random_changes(rng, present, rng.randrange(1, 40), 300)
        groups = [key[:2] if is_grouped else b"" for key, _, _ in changes]
        sizes = np.array([len(group) for group in groups], np.int32) if is_grouped else None
        left, entered = update_window(index, *columns_of(changes), offset, limit, sizes)
        expected_left, expected_entered = [], []
        for group in dict.fromkeys(groups):
            old, new = (
                [key for key in rows if key.startswith(group)][offset : offset + limit] for rows in (before, present)
            )
            expected_left += less(old, new)
            expected_entered += less(new, old)
        assert pairs(left) == [(key, value_of(key)) for key in expected_left]
        assert pairs(entered) == [(key, value_of(key)) for key in expected_entered]
        assert list(index.slice(0, len(index))[0]) == present


def less(keys, others):
    """The multiset difference, in order."""
    others, out = list(others), []
    for key in reversed(keys):
        if key in others:
            others.remove(key)
        else:
            out.append(key)
    return out[::-1]


def test_a_changed_value_leaves_and_enters():
    index = OrderedIndex()
    index.update(column([b"a", b"b"]), column([b"1", b"2"]))
    left, entered = update_window(index, column([b"b", b"b"]), column([b"2", b"3"]), np.array([1, 0], np.uint8), 0, 5)
    assert (pairs(left), pairs(entered)) == ([(b"b", b"2")], [(b"b", b"3")])


@pytest.mark.parametrize("seed", range(8))
def test_a_budget_forgets_the_far_end(seed):
    rng = random.Random(seed)
    budget = rng.choice([30_000, 100_000])
    index, present = OrderedIndex(capacity_bytes=budget), []
    for _ in range(12):
        index.update(*columns_of(random_changes(rng, present, 400, 60_000)))
        forgotten = index.end_epoch()
        assert index.size_bytes <= budget and (forgotten == 0 or not index.is_complete)
        held = present if index.is_complete else [key for key in present if key < index.bound]
        assert pairs(index.slice(0, 10**6)) == [(key, value_of(key)) for key in held]
        if not index.is_complete and rng.random() < 0.7:
            far = bisect_left(present, index.bound)
            until = present[far + 50] if far + 50 < len(present) and rng.random() < 0.5 else None
            missing = [key for key in present[far:] if until is None or key < until]
            index.load(column(missing), column(map(value_of, missing)), until)
            assert index.bound == until
            assert list(index.slice(0, 10**6)[0]) == [key for key in present if until is None or key < until]


def test_what_contradicts():
    index = OrderedIndex()
    index.update(column([b"a", b"a", b"c"]), column([b"1", b"1", b""]))
    with pytest.raises(ConsistencyError, match="comes with another value") as caught:
        index.update(column([b"b", b"a"]), column([b"", b"2"]))
    assert caught.value.key == b"a" and list(index.slice(0, 9)[0]) == [b"a", b"a", b"b", b"c"]
    with pytest.raises(ConsistencyError, match="goes that is not there"):
        index.update(column([b"a", b"a", b"a"]), None, np.ones(3, np.uint8))
    assert list(index.slice(-5, 9)[0]) == [b"b", b"c"]
    for wrong in (lambda: index.load(column([]), column([])), lambda: index.update(column([b"x"]), column([])),
                  lambda: index.update(column([b"x"]), None, np.ones(2, np.uint8)),
                  lambda: update_window(index, column([b"x"]), None, None, -1, 3),
                  lambda: update_window(index, column([b"x"]), None, None, 0, 3, np.array([2], np.int32))):  # fmt: skip
        with pytest.raises(ValueError):
            wrong()
    assert OrderedIndex().slice(0, 5)[0].rows == 0 and OrderedIndex().rank(column([b"x"])).tolist() == [0]
    assert OrderedIndex().span(b"a", b"b") == (0, 0)


def test_ascending_keys_fill_their_leaves():
    index = OrderedIndex()
    keys = [number.to_bytes(8, "big") for number in range(64_000)]
    index.update(column(keys), column([b""] * len(keys)))
    assert index.size_bytes < 64_000 * (8 + 40) * 1.7
    index.update(column(keys[:-10]), None, np.ones(len(keys) - 10, np.uint8))
    assert list(index.slice(0, 99)[0]) == keys[-10:]
    assert index.size_bytes < 400_000
