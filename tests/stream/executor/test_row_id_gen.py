from dataclasses import replace

import numpy as np
import pytest

from relational.chunk import DataChunk, StreamChunk, vnodes_of
from relational.types import Schema, VnodeRule
from stream.errors import InconsistentStream
from stream.executor.base import ExecutorInfo
from stream.executor.row_id_gen import RowIdGenExecutor
from stream.message import InsertRows, Watermark
from tests.support.drivers.catalogs import table_catalog
from tests.support.drivers.pretty import from_pretty
from tests.support.drivers.stream_driver import ScriptedExecutor, barrier

SCHEMA = Schema.of(a="int", _row_id="bigint")
TABLE = table_catalog("t", SCHEMA, (1,), row_id_index=1, vnode_count=4)


def executed(*messages):
    source = ScriptedExecutor(SCHEMA, (1,), messages)
    return RowIdGenExecutor(ExecutorInfo(SCHEMA, (1,), "RowIdGen"), source, TABLE, 1).execute()


def ids_of(chunk):
    return chunk.columns[1].array.to_pylist()


def chunk(text):
    return from_pretty(text, SCHEMA)


def test_rows_get_new_ids_with_the_milliseconds_of_their_epoch():
    messages = [barrier(5), chunk("+ 1 .\n+ 2 ."), chunk("+ 3 ."), barrier(6), chunk("+ 4 .")]
    chunks = [message for message in executed(*messages) if isinstance(message, StreamChunk)]
    ids = [row_id for each in chunks for row_id in ids_of(each)]
    assert len(set(ids)) == 4 and [row_id >> 22 for row_id in ids] == [5, 5, 5, 6]


@pytest.mark.parametrize("rule", [VnodeRule.HASH, VnodeRule.ROW_ID, VnodeRule.WIDE_ROW_ID])
def test_an_actor_generates_ids_of_its_own_vnodes_in_the_layout_of_the_table(rule):
    table = replace(TABLE, vnode_rule=rule, vnode_count=20_000 if rule is VnodeRule.WIDE_ROW_ID else 4)
    source = ScriptedExecutor(SCHEMA, (1,), [barrier(5), chunk("+ 1 .\n+ 2 .")])
    executor = RowIdGenExecutor(ExecutorInfo(SCHEMA, (1,), "RowIdGen"), source, table, 1, np.array([3]))
    _, generated = executor.execute()
    vnodes = vnodes_of([generated.columns[1]], table.vnode_count, rule=table.row_id_layout)
    assert vnodes.tolist() == [3, 3]


def test_statements_get_ids_and_keep_their_future():
    rows = StreamChunk.inserts(DataChunk.from_rows(SCHEMA, [(1, None), (2, None)]))
    statement = InsertRows(1, rows)
    _, passed = executed(barrier(1), statement)
    assert passed.result is statement.result
    assert len(set(ids_of(passed.chunk))) == 2 and None not in ids_of(passed.chunk)


def test_a_change_that_names_a_row_is_refused():
    with pytest.raises(InconsistentStream, match="row 1 is no insert"):
        list(executed(barrier(1), chunk("+ 1 .\n- 2 .")))


def test_a_watermark_follows_its_column_behind_the_generated_one():
    lacking, whole = Schema.of(a="int", b="int"), Schema.of(a="int", _row_id="bigint", b="int")
    table = table_catalog("t", whole, (1,), row_id_index=1)
    source = ScriptedExecutor(lacking, (), [barrier(1), Watermark(0, 5), Watermark(1, 6)])
    executor = RowIdGenExecutor(ExecutorInfo(whole, (1,), "RowIdGen"), source, table, 1)
    assert list(executor.execute())[1:] == [Watermark(0, 5), Watermark(2, 6)]
    executor = RowIdGenExecutor(ExecutorInfo(SCHEMA, (1,), "RowIdGen"), ScriptedExecutor(SCHEMA, (1,), [
        barrier(1), Watermark(0, 5)]), TABLE, 1)
    assert list(executor.execute())[1:] == [Watermark(0, 5)]
