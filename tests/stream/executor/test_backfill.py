import pytest

from hummock.store.memory_store import MemoryStateStore
from relational.chunk import StreamChunk
from relational.table.state_table import StateTable
from relational.table.storage_table import StorageTable
from relational.types import Schema
from stream.errors import ChannelClosed
from stream.executor.backfill import BackfillExecutor
from stream.executor.base import ExecutorInfo
from stream.message import Barrier
from stream.runtime.channel import Channel
from tests.support.drivers.catalogs import table_catalog
from tests.support.drivers.stream_driver import Folded, barrier

TABLE = Schema.of(id="bigint", note="varchar", v="bigint")
CATALOG = table_catalog("t", TABLE, (0,))
COLUMNS = (0, 2)


def store_with(text):
    """A store to which the table's executor has committed `text` in the epoch that barrier 2 ends."""
    store = MemoryStateStore()
    table = StateTable(CATALOG, store)
    table.init_epoch(barrier(1).epoch)
    if text:
        table.write_chunk(StreamChunk.from_pretty(text, TABLE))
    table.commit(barrier(2).epoch)
    return store


def backfill(upstream, store, *, has_snapshot=True, chunk_rows=4096):
    def rows(epoch):
        return map(StreamChunk.inserts, StorageTable(CATALOG, store, COLUMNS).scan(epoch))

    info = ExecutorInfo(TABLE.project(COLUMNS), (0,), "StreamScan")
    history = rows if has_snapshot else None
    return BackfillExecutor(info, upstream, CATALOG, COLUMNS, history, chunk_rows).execute()


def upstream_with(*messages):
    channel = Channel(1000)
    for message in messages:
        channel.send(message)
    channel.close()
    return channel


def changes(text):
    return StreamChunk.from_pretty(text, TABLE)


def test_rows_that_are_there_come_first_then_what_changes():
    upstream = upstream_with(
        barrier(2), changes("- 1 a 10\nU- 2 b 20\nU+ 2 b 21"), barrier(3), changes("+ 4 d 40")
    )
    messages = list(backfill(upstream, store_with("+ 1 a 10\n+ 2 b 20\n+ 3 c 30")))
    assert [each for each in messages if isinstance(each, Barrier)] == [barrier(2), barrier(3)]
    assert messages[0] == barrier(2)
    before = Folded((0,)).apply_all(messages[: messages.index(barrier(3))])
    assert sorted(before.rows.values()) == [(2, 21), (3, 30)]
    assert before.apply_all(messages[messages.index(barrier(3)) :]).rows[(4,)] == (4, 40)


def test_the_whole_snapshot_is_in_the_first_epoch():
    rows = "\n".join(f"+ {number} n {number}" for number in range(50))
    messages = list(backfill(upstream_with(barrier(2), barrier(3)), store_with(rows), chunk_rows=7))
    assert isinstance(messages[-1], Barrier) and len(messages) > 2
    assert all(each.capacity <= 7 for each in messages[1:-1])


def test_an_update_of_columns_that_are_not_read_is_no_change():
    messages = list(backfill(upstream_with(barrier(2), changes("U- 1 a 10\nU+ 1 b 10")), store_with("")))
    assert messages == [barrier(2)]


def test_a_rebuilt_view_reads_changes_only():
    upstream = upstream_with(barrier(2), changes("- 1 a 10"))
    first, chunk = backfill(upstream, store_with("+ 1 a 10"), has_snapshot=False)
    assert first == barrier(2) and chunk.to_pretty() == "- 1 10"


def test_an_error_of_the_upstream_ends_it_with_that_error():
    channel = Channel(10)
    channel.send(barrier(2))
    messages = backfill(channel, store_with(""))
    next(messages)
    channel.close(RuntimeError("the table's actor failed"))
    with pytest.raises(ChannelClosed) as caught:
        next(messages)
    assert "the table's actor failed" in str(caught.value.__cause__)
