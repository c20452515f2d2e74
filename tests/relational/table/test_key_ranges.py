"""Ranges of user keys: a row's key is in one of them exactly if the row is in the set."""

import random

import pytest

from relational.catalog.objects import ColumnCatalog, TableCatalog, TableKind
from relational.chunk import DataChunk
from relational.table.key_ranges import key_ranges, ranges_of
from relational.table.row_serde import RowSerde
from relational.types import ASCENDING, DESCENDING, DataType, SortKey
from relational.types.key_set import KeySet, RowRange
from tests.support.drivers.seeds import run_seed

GROUPS, KEYS = (-1, 0, 1, None), (*range(-4, 5), None)


def serde_of(order, distribution):
    columns = tuple(ColumnCatalog(name, at, DataType.INT) for at, name in enumerate("gkv"))
    pk = (SortKey(0), SortKey(1, order))
    return RowSerde(TableCatalog(9, "t", TableKind.TABLE, columns, pk, (0, 1), distribution, (2,)))


def is_within(value, bounds):
    if value is None:
        return False
    low, high = bounds.lower, bounds.upper
    is_above = low is None or value > low or (value == low and bounds.includes_lower)
    return is_above and (high is None or value < high or (value == high and bounds.includes_upper))


@pytest.mark.parametrize("order", [ASCENDING, DESCENDING])
@pytest.mark.parametrize("distribution", [(), (0,), (1,)])
def test_a_row_is_in_a_range_exactly_if_it_is_in_the_set(order, distribution):
    rng, serde = random.Random(run_seed()), serde_of(order, distribution)
    rows = [(group, key, 0) for group in GROUPS for key in KEYS]
    keys = list(serde.keys_of(DataChunk.from_rows(serde.catalog.schema, rows))[0])
    for _ in range(60):
        prefixes = tuple((group,) for group in rng.sample(GROUPS, rng.randrange(1, 4)))
        ends = [rng.choice((None, *range(-5, 6))) for _ in range(2)]
        bounds = RowRange(*ends, rng.random() < 0.5, rng.random() < 0.5)
        ranges = ranges_of(serde, KeySet(prefixes, bounds))
        found = [sum(key in part for part in ranges) for key in keys]
        assert found == [int((group,) in prefixes and is_within(key, bounds)) for group, key, _ in rows], bounds
        starts = [part.start for part in ranges]
        assert starts == sorted(set(starts)) == list(ranges.starts) and not any(part.is_empty for part in ranges)
        assert [part.end for part in ranges[1:]] == list(ranges.ends[1:])
        if len(prefixes) == 1:
            assert key_ranges(serde, prefixes[0], bounds) == list(ranges)


def test_bounds_without_a_value_and_an_empty_set_have_no_range():
    serde = serde_of(ASCENDING, (1,))
    assert not ranges_of(serde, KeySet(((0,),), RowRange(3, 2)))
    assert not ranges_of(serde, KeySet(((0,),), RowRange(3, 3, True, False)))
    assert not ranges_of(serde, KeySet(()))
