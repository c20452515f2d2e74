"""ColumnCache: scans of a committed epoch return the same rows, and the cache stays within its budget."""

import random
from itertools import pairwise

import pytest

from hummock.epoch import EpochPair
from hummock.store.memory_store import MemoryStateStore
from relational.chunk import StreamChunk
from relational.table.column_cache import ColumnCache
from relational.table.state_table import StateTable
from relational.table.storage_table import StorageTable
from tests.relational.row_formats import formatted
from tests.relational.table.test_state_table import ASC, table_of
from tests.support.drivers.seeds import seeds

EPOCHS = [number << 16 for number in range(100, 105)]
pytestmark = pytest.mark.usefixtures("row_format")


@pytest.fixture
def store():
    return MemoryStateStore()


@pytest.fixture
def catalog():
    return formatted(table_of({"k": "bigint", "v": "varchar", "j": "jsonb", "l": "int[]"}, [(0, ASC)], [0]))


def write(catalog, store, rows=300):
    """Writes `rows` rows in each epoch, the same keys every time."""
    table = StateTable(catalog, store)
    table.init_epoch(EpochPair(curr=EPOCHS[0], prev=1 << 16))
    for number, (epoch, following) in enumerate(pairwise(EPOCHS)):
        changes = [(2, (key, f"at {number}", f'{{"n":{number}}}', [number, key])) for key in range(rows)]
        table.write_chunk(StreamChunk.from_rows(catalog.schema, changes))
        table.commit(EpochPair(curr=following, prev=epoch))
        store.commit(epoch)


def rows_of(chunks):
    return sorted(map(repr, (row for chunk in chunks for row in chunk.rows())))


@pytest.mark.parametrize("budget", [0, 20_000, 1 << 20])
@pytest.mark.parametrize("seed", seeds(2, 5))
def test_scans_are_the_same_with_and_without(catalog, store, budget, seed):
    write(catalog, store)
    rng, cache = random.Random(seed), ColumnCache(budget)
    for _ in range(40):
        columns, epoch = rng.sample(range(4), rng.randrange(1, 5)), rng.choice(EPOCHS[:-1])
        plain, cached = (StorageTable(catalog, store, columns, cache=each) for each in (None, cache))
        assert rows_of(cached.scan(epoch)) == rows_of(plain.scan(epoch))
        assert cached.to_arrow(epoch).equals(plain.to_arrow(epoch))
        assert cache.counts.column_cache_bytes <= budget
    counts = cache.counts
    assert counts.column_cache_hits + counts.column_cache_misses == 80
    assert (counts.column_cache_hits == 0) == (budget == 0)
    assert (counts.column_cache_evictions > 0) == (budget == 20_000)


def test_a_scan_that_is_not_of_all_rows_or_not_finished_is_not_kept(catalog, store):
    write(catalog, store)
    cache = ColumnCache(1 << 20)
    table = StorageTable(catalog, store, cache=cache)
    next(iter(table.scan(EPOCHS[0])))
    for options in ({"limit": 3}, {"ordered": True}, {"prefix": (1,)}, {"reverse": True}):
        assert rows_of(table.scan(EPOCHS[0], **options))
    assert cache.counts.column_cache_columns == 0
    table.to_arrow(EPOCHS[0])
    assert cache.counts.column_cache_columns == 4


def test_an_epoch_that_is_not_committed_is_not_kept(catalog, store):
    write(catalog, store)
    cache = ColumnCache(1 << 20)
    writer = StateTable(catalog, store)
    writer.init_epoch(EpochPair(curr=EPOCHS[-1], prev=EPOCHS[-2]))
    table = StorageTable(catalog, store, (0,), cache=cache)
    assert table.to_arrow(EPOCHS[-1]).num_rows == 300
    writer.insert_row((1_000, "more", None, None))
    writer.commit(EpochPair(curr=EPOCHS[-1] + (1 << 16), prev=EPOCHS[-1]))
    assert table.to_arrow(EPOCHS[-1]).num_rows == 301


def test_a_table_has_its_columns_under_the_epoch_since_which_it_is_unchanged(catalog, store):
    write(catalog, store)
    cache = ColumnCache(1 << 20, lambda table_id, epoch: EPOCHS[0])
    table = StorageTable(catalog, store, cache=cache)
    first = table.to_arrow(EPOCHS[0])
    assert table.to_arrow(EPOCHS[1]).equals(first) and cache.counts.column_cache_hits == 1
