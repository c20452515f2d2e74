"""The size that state structures report is the size that they allocated with malloc."""

import gc

import numpy as np
import pyarrow as pa
import pytest

from hummock.base.pages import mapped_page_bytes
from hummock.columnar.buffer_pool import set_pool_limit
from relational.agg import AggGroups, AggSpec
from relational.chunk.stream_chunk import StreamChunk
from relational.hash.record_arena import pooled_record_bytes
from relational.join.join_index import JoinIndex
from relational.types import DataType
from tests.support.suites.process_memory import has_gnu_malloc, malloc_counts

POOL_BYTES = 256 << 20  # the pool's own limit
HUGE_PAGE_BYTES = 2 << 20
ROWS = 300_000


@pytest.fixture
def in_use():
    """A function that returns the bytes in use by malloc and in pages of their own, and the number of malloc's
    mappings, with the pool disabled."""
    if not has_gnu_malloc():
        pytest.skip("needs the statistics of GNU malloc")

    def count():
        gc.collect()
        held, mappings = malloc_counts()
        return held + mapped_page_bytes() - pooled_record_bytes(), mappings

    set_pool_limit(0)
    yield count
    set_pool_limit(POOL_BYTES)


def changes():
    rng = np.random.default_rng(7)
    for first in range(0, ROWS, 10_000):
        ids = np.arange(first, first + 10_000)
        names = pa.array([f"name {number}" for number in ids])
        columns = [pa.array(ids), pa.array(rng.integers(0, ROWS // 3, 10_000)), names]
        yield StreamChunk(columns, np.zeros(10_000, np.uint8))


def grown_groups(group_by):
    calls = [AggSpec("count", None, None, DataType.BIGINT), AggSpec("max", 2, DataType.VARCHAR, DataType.VARCHAR)]
    types = [DataType.BIGINT, DataType.BIGINT, DataType.VARCHAR]
    groups = AggGroups(group_by, [types[column] for column in group_by], calls)
    for chunk in changes():
        groups.apply(chunk, groups.locate(chunk).ids)
        list(groups.flush())
    return groups


def grown_join(stream_key):
    index = JoinIndex([DataType.BIGINT, DataType.BIGINT, DataType.VARCHAR], (1,), stream_key)
    for chunk in changes():
        index.apply(chunk, index.locate([chunk.columns[1]]).ids)
    index.end_epoch()
    return index


@pytest.mark.parametrize(
    "grow",
    [
        lambda: grown_groups((0,)),
        lambda: grown_groups((2, 1)),
        lambda: grown_join((0,)),
        lambda: grown_join((2,)),
        lambda: grown_join(()),
    ],
    ids=["groups", "groups by text", "join", "join by text", "join that appends"],
)
def test_bytes_reported_are_bytes_held(in_use, grow):
    grow()
    before, mappings = in_use()
    held = grow()
    after, more = in_use()
    taken, addresses = after - before, (more - mappings) * HUGE_PAGE_BYTES  # unused alignment gaps before the buffers
    slack = taken * 0.03 + 200_000
    assert held.size_bytes - slack < taken < held.size_bytes + slack + addresses
    del held
    assert abs(in_use()[0] - before) < 300_000
