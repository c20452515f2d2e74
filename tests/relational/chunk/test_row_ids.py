"""Row ids: all different, ascending within each vnode, each with the vnode and the time in its bits."""

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from relational.chunk import RowIdGenerator, vnodes_of
from relational.types import VnodeRule
from tests.support.drivers.seeds import run_seed

RULES = (VnodeRule.ROW_ID, VnodeRule.WIDE_ROW_ID)


def vnodes_in(ids, rule=VnodeRule.ROW_ID, vnode_count=None):
    return vnodes_of([pa.array(ids)], vnode_count or 1 << rule.vnode_bits, rule=rule)


def ascend_by_vnode(ids, vnodes):
    order = np.argsort(vnodes, kind="stable")
    ascends = np.diff(ids[order]) > 0
    return bool((ascends | (np.diff(vnodes[order]) > 0)).all())


@pytest.mark.parametrize("rule", RULES)
def test_ids_are_new_and_ascend_within_their_vnodes_across_calls_and_epochs(rule):
    rng = random.Random(run_seed())
    for _ in range(10):
        own = rng.sample(range(1 << rule.vnode_bits), rng.choice([1, 2, 3, 100, 256]))
        generator, parts = RowIdGenerator(own, rule), []
        millisecond = rng.randrange(1, 1 << 40)
        for _ in range(8):
            generator.open_epoch(millisecond)
            parts += [generator.next_ids(rng.choice([0, 1, 5, 127, 128, 129, 5_000])) for _ in range(rng.randrange(4))]
            millisecond += rng.randrange(1_000, 2_000)
        ids = np.concatenate([np.empty(0, np.int64), *parts])
        vnodes = vnodes_in(ids, rule)
        assert len(np.unique(ids)) == len(ids) and set(vnodes.tolist()) <= set(own)
        assert ascend_by_vnode(ids, vnodes)


@pytest.mark.parametrize("rule", RULES)
def test_an_id_carries_a_vnode_of_its_generator_and_the_milliseconds_of_its_epoch(rule):
    generator = RowIdGenerator([3, 9], rule)
    generator.open_epoch(77)
    ids = generator.next_ids(5)
    assert len(set(vnodes_in(ids, rule).tolist())) == 1 and set(vnodes_in(ids, rule).tolist()) < {3, 9}
    assert set(ids >> 22) == {77}


def test_the_first_ids_of_an_epoch_are_these():
    generator = RowIdGenerator(range(4))
    generator.open_epoch(5)
    blocks = generator.next_ids(4 * 128).reshape(4, 128)
    assert (blocks[:, 0] >> 12).tolist() == [(5 << 10) + vnode for vnode in (3, 2, 1, 0)]
    assert (np.diff(blocks) == 1).all() and (blocks[:, 0] & 4095 == 0).all()
    assert generator.next_ids(1)[0] == (5 << 22) + (3 << 12) + 128


@pytest.mark.parametrize("vnode_count", [1, 2, 7, 256, 1_000])
def test_consecutive_blocks_are_far_apart_and_fill_all_vnodes(vnode_count):
    generator = RowIdGenerator(range(vnode_count))
    generator.open_epoch(1)
    vnodes = vnodes_in(generator.next_ids(128 * vnode_count)[::128])
    assert sorted(vnodes.tolist()) == list(range(vnode_count))
    if vnode_count >= 256:
        apart = [min(abs(a - b), vnode_count - abs(a - b)) for a, b in pairwise(vnodes.astype(int).tolist())]
        assert min(apart) > vnode_count // 4


def test_small_epochs_fill_all_vnodes_as_well():
    generator, counts = RowIdGenerator(range(16)), np.zeros(16, int)
    for millisecond in range(1, 1_601):
        generator.open_epoch(millisecond)
        counts += np.bincount(vnodes_in(generator.next_ids(3)), minlength=16)
    assert counts.tolist() == [300] * 16


def test_a_recovery_with_an_older_clock_hands_out_no_id_again():
    before, after = RowIdGenerator(range(256)), RowIdGenerator(range(256))
    before.open_epoch(100)
    after.open_epoch(101)  # the next epoch is above the committed one, whatever the clock
    assert before.next_ids(1_000_000).max() < after.next_ids(1).min()


@pytest.mark.parametrize("rule", RULES)
def test_more_ids_than_a_millisecond_holds_run_into_the_next(rule):
    generator, most = RowIdGenerator([0], rule), 1 << rule.sequence_bits
    generator.open_epoch(1)
    ids = generator.next_ids(3 * most)
    assert len(np.unique(ids)) == 3 * most and (np.diff(ids) > 0).all()
    assert ids[most - 1] >> 22 == 1 and ids[most] >> 22 == 2 and ids[-1] >> 22 == 3


def test_an_earlier_epoch_does_not_turn_ids_back():
    generator = RowIdGenerator([0])
    generator.open_epoch(9)
    first = generator.next_ids(1)[0]
    generator.open_epoch(3)
    assert generator.next_ids(1)[0] > first


def test_ids_follow_those_of_replayed_rows():
    generator = RowIdGenerator(range(4))
    generator.open_epoch(9)
    generator.skip_past((20 << 22) + 17)
    assert generator.next_ids(600).min() > (20 << 22) + 17
    newest = generator.next_ids(1)[0]
    generator.skip_past((3 << 22) + 5)
    assert generator.next_ids(1)[0] >> 22 == newest >> 22


def test_ids_of_parallel_generators_never_meet():
    left, right = RowIdGenerator([0, 2]), RowIdGenerator([1, 3])
    assert not set(left.next_ids(9000)) & set(right.next_ids(9000))


@pytest.mark.parametrize("vnodes", [[], [1 << 15], [-1]])
def test_impossible_vnodes_are_refused(vnodes):
    with pytest.raises(ValueError, match="vnodes"):
        RowIdGenerator(vnodes, VnodeRule.WIDE_ROW_ID)
    with pytest.raises(ValueError, match="1023"):
        RowIdGenerator([1_024])
