"""Watermarks between the barriers and the checkpoints: none early, none lost, few records."""

import random

import pytest

from hummock.base.key_watermark import KeyWatermark
from hummock.base.pending_watermarks import PendingWatermarks
from hummock.epoch import Epoch

VNODES = 8


def epoch_of(number):
    return Epoch(number << 16)


def mark(number, first, last, key):
    return KeyWatermark(epoch_of(number), ((first, last, key),))


def test_actors_of_one_barrier_make_one_watermark_of_all_their_vnodes():
    pending = PendingWatermarks(0)
    for first in (4, 0):
        pending.add(7, mark(1, first, first + 3, b"k"))
    assert pending.take(epoch_of(1)) == {7: mark(1, 0, 7, b"k")} and len(pending) == 0
    assert pending.take(epoch_of(2)) == {}


def test_a_barrier_that_is_no_checkpoint_leaves_its_watermarks_to_the_next_one():
    pending = PendingWatermarks(0)
    pending.add(7, mark(1, 0, 3, b"a"))
    pending.add(7, mark(2, 0, 1, b"b"))
    assert pending.take(epoch_of(3)) == {7: KeyWatermark(epoch_of(3), ((0, 1, b"b"), (2, 3, b"a")))}


def test_watermarks_of_later_barriers_are_not_in_an_earlier_commit():
    """An actor may pass barrier 2 before the last one has passed barrier 1: epoch 1 still needs the rows."""
    pending = PendingWatermarks(0)
    pending.add(7, mark(2, 0, 3, b"b"))
    pending.add(7, mark(1, 4, 7, b"a"))
    assert pending.take(epoch_of(1)) == {7: mark(1, 4, 7, b"a")}
    assert pending.take(epoch_of(2)) == {7: mark(2, 0, 3, b"b")}


def test_a_table_registers_at_most_every_interval():
    pending, taken = PendingWatermarks(interval_ms=5), []
    for number in range(1, 21):
        pending.add(7, mark(number, 0, 7, b"%02d" % number))
        taken += [(number, found[7]) for found in [pending.take(epoch_of(number))] if found]
        assert len(pending) <= 1
    assert taken == [(number, mark(number, 0, 7, b"%02d" % number)) for number in (1, 6, 11, 16)]
    assert pending.take(epoch_of(21)) == {7: mark(21, 0, 7, b"20")}


def test_a_recovery_forgets_and_a_dropped_table_too():
    pending = PendingWatermarks(interval_ms=100)
    pending.add(7, mark(1, 0, 7, b"a"))
    assert pending.take(epoch_of(1))
    pending.add(7, mark(2, 0, 7, b"b"))
    pending.clear()
    assert pending.take(epoch_of(200)) == {}
    pending.add(7, mark(201, 0, 7, b"c"))
    pending.forget([7, 8])
    assert pending.take(epoch_of(201)) == {}


@pytest.mark.parametrize("is_descending", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_each_commit_has_the_furthest_keys_up_to_its_epoch(seed, is_descending):
    rng = random.Random(f"{seed} {is_descending}")
    interval = rng.choice((0, 3))
    pending, known, registered = PendingWatermarks(interval), {}, None
    owners = [rng.randrange(3) for _ in range(VNODES)]
    passed, level, seen = [0, 0, 0], [0, 0, 0], {}      # per actor: the last barrier that it passed, its watermark
    for number in range(1, 40):
        while min(passed) < number:                     # an actor may be two barriers ahead of another
            actor = rng.choice([one for one in range(3) if passed[one] < number + 2])
            passed[actor] += 1
            level[actor] += rng.randrange(3)
            key = b"%03d" % (500 - level[actor] if is_descending else 500 + level[actor])
            vnodes = [vnode for vnode in range(VNODES) if owners[vnode] == actor]
            if vnodes and rng.random() < 0.8:
                added = KeyWatermark.of(epoch_of(passed[actor]), dict.fromkeys(vnodes, key), is_descending)
                pending.add(7, added)
                for vnode in vnodes:
                    seen.setdefault(vnode, []).append((passed[actor], key))
        if rng.random() < 0.4:
            continue                                    # no checkpoint
        found = pending.take(epoch_of(number)).get(7)
        if found is None:
            continue
        assert registered is None or number - registered >= interval
        assert found.epoch == epoch_of(number) and found.is_descending == is_descending
        registered = number
        known |= {vnode: found.key_of(vnode) for vnode in range(VNODES) if found.key_of(vnode) is not None}
        further = min if is_descending else max
        assert known == {vnode: further(key for at, key in keys if at <= number) for vnode, keys in seen.items()
                         if any(at <= number for at, _ in keys)}
