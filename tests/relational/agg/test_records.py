"""GroupRecords: which groups were touched last."""

import numpy as np
import pytest

from relational.agg.distinct_records import DistinctRecords
from tests.support.drivers.seeds import varied_rng

ENTRIES, AGES = 300, 1 << 16


@pytest.mark.parametrize("seed", range(4))
def test_the_latest_groups_are_those_touched_last_and_of_one_epoch_those_that_came_last(seed):
    print("seed", seed)
    rng = varied_rng(seed)
    records, touched = DistinctRecords(1, True), np.zeros(ENTRIES, np.int64)
    records.find(np.zeros(ENTRIES, np.int32), np.arange(ENTRIES, dtype=np.int32))
    for epoch in range(1, 12):
        if epoch > 1:
            some = rng.choice(ENTRIES, 20).astype(np.int32)
            records.touch(some)
            touched[some] = epoch
        records.finish()
    exists = rng.random(ENTRIES) < 0.8
    living = np.flatnonzero(exists)
    order = living[np.lexsort((living, touched[living]))]
    for wanted in (0, 1, 7, 100, len(living) - 1, len(living), ENTRIES):
        assert records.latest(wanted, exists).tolist() == sorted(order[max(len(order) - wanted, 0) :].tolist())


def test_groups_that_were_touched_very_long_ago_count_as_equally_old():
    records = DistinctRecords(1, True)
    records.find(np.zeros(3, np.int32), np.arange(3, dtype=np.int32))
    for number in (2, 1, 0):
        records.touch(np.array([number], np.int32))
        records.finish()
    for _ in range(AGES):
        records.finish()
    assert records.latest(1, np.ones(3, bool)).tolist() == [2]


def test_renumbering_in_parts_keeps_records_and_pairs():
    records = DistinctRecords(1, True)
    groups, values = np.arange(20, dtype=np.int32) % 3, np.arange(20, dtype=np.int32)
    ids = records.find(groups, values)
    records.apply(np.repeat(ids, np.arange(20)), [None])
    records.finish()
    kept = np.array([1, 2, 5, 9, 14, 19], np.int32)
    records.begin_renumbering(len(kept))
    for part in (kept[:2], kept[2:5], kept[5:]):
        records.renumber(part, groups[part] + 7, values[part] + 100)
    records.end_renumbering()
    assert records.groups == len(kept)
    assert [each.tolist() for each in records.owners(np.arange(6, dtype=np.int32))] == [
        (groups[kept] + 7).tolist(), (values[kept] + 100).tolist()]
    records.gather(np.arange(6, dtype=np.int32))
    assert records.columns(np.arange(6, dtype=np.int32))[0].tolist() == kept.tolist()
    again = records.find(groups[kept] + 7, values[kept] + 100)
    assert again.tolist() == list(range(6)) and records.groups == 6
    records.begin_renumbering(2)
    with pytest.raises(ValueError, match="same group and value"):
        records.renumber(np.array([0, 1], np.int32), np.zeros(2, np.int32), np.zeros(2, np.int32))
