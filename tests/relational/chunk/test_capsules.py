"""Arrow's PyCapsule protocol for chunks and columns: export, import, and ownership of the memory in between."""

import gc
import random
import weakref

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from relational.chunk import Column, DataChunk, Op, StreamChunk
from relational.errors import BindError
from relational.types import DataType, Schema
from tests.relational.random_rows import TYPES, columns_of, random_rows
from tests.support.drivers.pretty import from_pretty

NESTED = [DataType.parse("bigint[]"), DataType.parse("struct<a double, b varchar[]>"), DataType.JSONB]
SCHEMA = Schema.of(id="bigint", name="varchar")


def exporter(verb, export):
    """An object that implements one method of the protocol and nothing else."""
    return type("Exporter", (), {verb: lambda self, requested_schema=None: export()})()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("verb", ["__arrow_c_array__", "__arrow_c_stream__"])
def test_visible_rows_of_any_types_leave_and_enter_again(verb, seed):
    rng = random.Random(f"{seed} {verb}")
    types = rng.sample([*TYPES, *NESTED], rng.randrange(1, 6))
    rows = random_rows(rng, types, rng.randrange(40))
    shown = rng.choice([None, np.array([rng.random() < 0.6 for _ in rows], np.uint8)])
    chunk = DataChunk(columns_of(types, rows), shown)
    again = DataChunk.from_arrow(exporter(verb, getattr(chunk, verb)))
    assert again.types == chunk.types and again.visibility is None
    assert repr(list(again.rows())) == repr(list(chunk.rows()))
    assert pa.schema(chunk).names == [f"c{at}" for at in range(len(types))]


def test_changes_leave_with_their_ops_and_hidden_ones_stay():
    chunk = from_pretty("+ 1 a\n- 2 b D\nU- 3 c\nU+ 3 d", SCHEMA)
    batch = pa.record_batch(chunk)
    assert batch.schema.names == ["c0", "c1", "_op"]
    assert batch.column("_op").to_pylist() == [Op.INSERT, Op.UPDATE_DELETE, Op.UPDATE_INSERT]
    assert StreamChunk.from_arrow(batch).to_pretty() == "+ 1 a\nU- 3 c\nU+ 3 d"
    assert StreamChunk.from_arrow(pa.table({"x": [5]})).to_pretty() == "+ 5"
    assert pa.schema(chunk) == batch.schema


def test_a_chunk_without_columns_keeps_its_rows():
    assert DataChunk.from_arrow(DataChunk([], capacity=3)).capacity == 3
    changes = StreamChunk([], np.array([0, 1], np.uint8))
    assert StreamChunk.from_arrow(changes).ops.tolist() == [0, 1]


@pytest.mark.parametrize("op", [4, -1, None])
def test_an_op_that_is_none_is_refused(op):
    with pytest.raises(ValueError, match="ops are 0 to 3"):
        StreamChunk.from_arrow(pa.table({"a": [1, 2], "_op": pa.array([0, op], pa.int64())}))


def test_what_is_no_table_is_refused():
    with pytest.raises(TypeError, match="list does not speak"):
        DataChunk.from_arrow([1, 2])
    with pytest.raises(TypeError, match="int does not speak"):
        Column(7)
    with pytest.raises(ValueError, match="rows are structs, not int64"):
        DataChunk.from_arrow(pa.array([1, 2]))
    with pytest.raises(ValueError, match="1 rows are NULL"):
        DataChunk.from_arrow(pa.array([{"a": 1}, None]))
    with pytest.raises(BindError, match="decimal256"):
        DataChunk.from_arrow(pa.table({"a": pa.array([1], pa.decimal256(50, 0))}))


def test_other_libraries_are_understood_and_understand():
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    want = [(1, "a"), (2, None), (3, "ccc")]
    frame = polars.DataFrame(want, schema=["id", "name"], orient="row")
    relation = duckdb.sql("SELECT * FROM (VALUES (1::BIGINT, 'a'), (2, NULL), (3, 'ccc')) AS t(id, name)")
    tables = [frame, relation, frame.to_arrow(), pa.Table.from_pandas(frame.to_pandas())]
    for table in [*tables, pd.DataFrame({"id": [1, 2, 3], "name": ["a", None, "ccc"]})]:
        chunk = DataChunk.from_arrow(table)
        assert (chunk.types, list(chunk.rows())) == (SCHEMA.types, want)
    assert Column(frame["name"]).to_pylist() == ["a", None, "ccc"]
    hidden = DataChunk.from_arrow(frame).filter(np.array([1, 0, 1], np.uint8))
    assert polars.DataFrame(hidden).rows() == [want[0], want[2]]
    assert duckdb.sql("SELECT sum(c0), max(c1) FROM hidden").fetchall() == [(4, "ccc")]
    assert polars.Series(hidden.columns[0]).to_list() == [1, 2, 3]
    assert hidden.columns[0].data_type == DataType.from_arrow(pa.field(hidden.columns[0]).type)


def test_nothing_is_copied_where_no_row_is_hidden():
    numbers, texts = pa.array(np.arange(1000)), pa.array([f"text {n}" for n in range(1000)])
    chunk = DataChunk([numbers, texts]).slice(100, 500)
    batch = pa.record_batch(chunk)
    for array, source in zip(batch.columns, (numbers, texts), strict=True):
        assert array.offset == 100
        assert array.buffers()[1].address == source.buffers()[1].address
    for again in (DataChunk.from_arrow(batch), DataChunk.from_arrow(pa.table(chunk))):
        assert again.arrays[0].buffers()[1].address == numbers.buffers()[1].address
        assert list(again.rows()) == list(chunk.rows())


def tracked(rows):
    """A column, and a weak reference to its memory."""
    memory = np.arange(rows)
    return Column(pa.array(memory)), weakref.ref(memory)


@pytest.mark.parametrize("verb", ["__arrow_c_array__", "__arrow_c_stream__"])
def test_capsules_keep_the_memory_until_they_are_read_and_let_go(verb):
    column, memory = tracked(1000)
    chunk = StreamChunk([column], np.zeros(1000, np.uint8))
    capsules = [[getattr(chunk, verb)()] for _ in range(50)]
    del column, chunk
    gc.collect()
    assert memory() is not None
    exporters = [exporter(verb, each.pop) for each in capsules[:25]]
    del capsules
    gc.collect()
    batches = [StreamChunk.from_arrow(each) for each in exporters]
    assert all(list(batch.rows()) == [(n,) for n in range(1000)] for batch in batches[::8])
    kept = batches[7].columns[0]
    del exporters, batches
    gc.collect()
    assert memory() is not None and kept[999] == 999
    del kept
    gc.collect()
    assert memory() is None


def test_a_capsule_is_read_once():
    chunk = DataChunk([pa.array([1, 2])])
    capsules = chunk.__arrow_c_array__()
    again = exporter("__arrow_c_array__", lambda: capsules)
    assert len(DataChunk.from_arrow(again).columns) == 1
    with pytest.raises((ValueError, pa.ArrowInvalid)):
        DataChunk.from_arrow(again)


@pytest.mark.parametrize("data_type", [DataType.BIGINT, DataType.VARCHAR, *NESTED[:2]], ids=str)
def test_columns_that_were_built_here_are_given_back_once(data_type):
    """`take` allocates from the buffer pool and Arrow calls the release callback: no leak and no double free."""
    rng = random.Random(11)
    chunk = DataChunk(columns_of([data_type], random_rows(rng, [data_type], 500)))
    want = repr(list(chunk.rows()))
    for turn in range(30):
        built = chunk.take(np.arange(500))
        copies = [pa.record_batch(built) for _ in range(5)]
        del built
        if turn % 3 == 0:
            gc.collect()
        for copy in copies:
            assert repr(list(DataChunk.from_arrow(copy).rows())) == want


def test_a_requested_schema_is_followed_as_far_as_arrow_casts():
    chunk = DataChunk([pa.array([1, 2])])
    wanted = pa.schema({"c0": pa.int32()})
    assert pa.record_batch(chunk, schema=wanted).schema == wanted
