import numpy as np
import pytest

from relational.chunk import DataChunk, StreamChunk
from relational.types import Schema
from stream.errors import InconsistentStream
from stream.executor.base import ExecutorInfo
from stream.executor.row_id_gen import SEQUENCE_BITS, RowIdGenerator, RowIdGenExecutor
from stream.message import InsertRows
from tests.support.drivers.catalogs import table_catalog
from tests.support.drivers.stream_driver import ScriptedExecutor, barrier, epoch

SCHEMA = Schema.of(a="int", _row_id="bigint")
TABLE = table_catalog("t", SCHEMA, (1,), row_id_index=1, vnode_count=4)


def executed(*messages):
    source = ScriptedExecutor(SCHEMA, (1,), messages)
    return RowIdGenExecutor(ExecutorInfo(SCHEMA, (1,), "RowIdGen"), source, TABLE, 1).execute()


def ids_of(chunk):
    return chunk.columns[1].array.to_pylist()


def chunk(text):
    return StreamChunk.from_pretty(text, SCHEMA)


def test_ids_are_new_and_ascend_across_chunks_and_epochs():
    messages = [barrier(5), chunk("+ 1 .\n+ 2 ."), chunk("+ 3 ."), barrier(6), chunk("+ 4 .")]
    chunks = [message for message in executed(*messages) if isinstance(message, StreamChunk)]
    ids = [row_id for each in chunks for row_id in ids_of(each)]
    assert ids == sorted(set(ids)) and len(ids) == 4


def test_an_id_carries_a_vnode_of_its_generator_and_the_milliseconds_of_its_epoch():
    generator = RowIdGenerator([3, 9])
    generator.open_epoch(epoch(77))
    ids = generator.next_ids(5)
    assert set((ids >> SEQUENCE_BITS) & 1023) == {3}
    assert set(ids >> 22) == {77}


def test_a_recovery_with_an_older_clock_hands_out_no_id_again():
    before, after = RowIdGenerator(range(256)), RowIdGenerator(range(256))
    before.open_epoch(epoch(100))
    after.open_epoch(epoch(101))  # the next epoch is above the committed one, whatever the clock
    assert before.next_ids(1_000_000).max() < after.next_ids(1).min()


def test_more_ids_than_a_millisecond_holds_run_into_the_next():
    generator = RowIdGenerator([0])
    generator.open_epoch(epoch(1))
    ids = generator.next_ids(10_000)
    assert len(np.unique(ids)) == 10_000 and (np.diff(ids) > 0).all()
    assert ids[-1] >> 22 == 3


def test_an_earlier_epoch_does_not_turn_ids_back():
    generator = RowIdGenerator([0])
    generator.open_epoch(epoch(9))
    first = generator.next_ids(1)[0]
    generator.open_epoch(epoch(3))
    assert generator.next_ids(1)[0] > first


def test_ids_of_parallel_generators_never_meet():
    left, right = RowIdGenerator([0, 2]), RowIdGenerator([1, 3])
    assert not set(left.next_ids(9000)) & set(right.next_ids(9000))


def test_statements_get_ids_and_keep_their_future():
    rows = StreamChunk.inserts(DataChunk.from_rows(SCHEMA, [(1, None), (2, None)]))
    statement = InsertRows(1, rows)
    _, passed = executed(barrier(1), statement)
    assert passed.result is statement.result
    assert len(set(ids_of(passed.chunk))) == 2 and None not in ids_of(passed.chunk)


def test_a_change_that_names_a_row_is_refused():
    with pytest.raises(InconsistentStream, match="row 1 is no insert"):
        list(executed(barrier(1), chunk("+ 1 .\n- 2 .")))


@pytest.mark.parametrize("vnodes", [[], [1024], [-1]])
def test_impossible_vnodes_are_refused(vnodes):
    with pytest.raises(ValueError, match="vnodes"):
        RowIdGenerator(vnodes)
