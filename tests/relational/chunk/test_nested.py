"""STRUCT, LIST and JSONB as columns: Arrow's layouts, slices, takes, equality and hashes."""

import numpy as np
import pyarrow as pa
import pytest

from relational.chunk import Column, DataChunk, StreamChunk, vnodes_of
from relational.chunk.row_compare import compare_columns
from relational.errors import BindError, EncodingError
from relational.types import DataType, Interval, OrderType, Schema
from tests.relational.random_rows import ALL, COMPOSED, columns_of, compare_rows, random_rows, sql_row
from tests.support.drivers.pretty import from_pretty

DEEP = DataType.parse("struct<x double, y struct<z boolean[], t interval>[]>[]")


@pytest.mark.parametrize("data_type", [*COMPOSED, DEEP], ids=str)
def test_values_come_back_whole_sliced_taken_and_joined(data_type, rng):
    rows = random_rows(rng, [data_type], 60)
    values = [row[0] for row in rows]
    column = Column.from_pylist(values, data_type)
    assert str(column.to_pylist()) == str(values)
    part = column.slice(7, 40)
    assert str(part.to_pylist()) == str(values[7:47])
    indices = np.array([rng.randrange(-1, 40) for _ in range(90)], np.int32)
    taken = DataChunk([part]).take(indices).columns[0]
    taken.array.validate(full=True)
    assert taken.data_type == data_type
    assert str(taken.to_pylist()) == str([None if i < 0 else values[7 + i] for i in indices])
    joined = DataChunk.concat([DataChunk([part]), DataChunk([taken])]).columns[0]
    assert str(joined.to_pylist()) == str(part.to_pylist() + taken.to_pylist())
    assert Column.nulls(data_type, 3).to_pylist() == [None] * 3
    empty = DataChunk([column.slice(0, 0)]).take(np.array([-1], np.int32)).columns[0]
    assert empty.to_pylist() == [None]


@pytest.mark.parametrize("data_type", [*COMPOSED, DEEP], ids=str)
def test_equal_rows_hash_together_and_a_slice_hashes_as_its_rows(data_type, rng):
    rows = random_rows(rng, [data_type], 200)
    column = columns_of([data_type], rows)[0]
    vnodes = vnodes_of([column], 32_768)
    by_key = {}
    for row, vnode in zip(rows, vnodes, strict=True):
        assert by_key.setdefault(sql_row(row, [data_type]), vnode) == vnode
    start = rng.randrange(1, 150)
    assert (vnodes_of([column.slice(start, 50)], 32_768) == vnodes[start : start + 50]).all()


LISTS = [
    pa.array([[1, 2], None, [], [3, None]], pa.large_list(pa.int64())),
    pa.array([[1, 2], None, [], [3, None]], pa.list_view(pa.int64())),
    pa.array([[1, 2], None, [], [3, None]], pa.large_list_view(pa.int64())),
    pa.array([[1, 2], None, [], [3, None]], pa.list_(pa.field("element", pa.int64()))),
    pa.array([[1, 2], None, [], [3, None]], pa.list_(pa.uint32())),
    pa.ListArray.from_arrays(
        [0, 2, 2, 2, 4], pa.array([1, 2, 3, None]).dictionary_encode(), mask=pa.array([False, True, False, False])
    ),
]  # fmt: skip


@pytest.mark.parametrize("array", LISTS, ids=lambda array: str(array.type))
def test_other_layouts_of_lists_become_ours(array):
    expected = [[1, 2], None, [], [3, None]]
    for start, rows in ((0, 4), (1, 3), (3, 1), (4, 0)):
        column = Column(array.slice(start, rows))
        assert column.data_type == DataType.parse("bigint[]")
        assert column.array.type == column.data_type.arrow
        column.array.validate(full=True)
        assert column.to_pylist() == expected[start : start + rows]


def test_fixed_lists_maps_and_structs_become_ours():
    fixed = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2))
    assert Column(fixed.slice(1)).to_pylist() == [None, [3, 4]]
    mapped = Column(pa.array([[("a", 1)], None, [], [("b", None), ("c", 3)]], pa.map_(pa.utf8(), pa.int64())).slice(1))
    assert mapped.data_type == DataType.parse("struct<key varchar, value bigint>[]")
    assert mapped.to_pylist() == [None, [], [{"key": "b", "value": None}, {"key": "c", "value": 3}]]
    strict = pa.struct([pa.field("a", pa.large_utf8(), nullable=False), pa.field("b", pa.int8())])
    column = Column(pa.array([{"a": "x", "b": 1}, None, {"a": "y", "b": None}], strict).slice(1))
    assert column.data_type == DataType.parse("struct<a varchar, b smallint>")
    assert column.to_pylist() == [None, {"a": "y", "b": None}]
    turned = Column(column.array, DataType.parse("struct<b bigint, a varchar>"))
    assert turned.to_pylist() == [None, {"b": None, "a": "y"}]
    coded = Column(pa.DictionaryArray.from_arrays([0, 0, None], pa.array([{"a": 1}])))
    assert coded.to_pylist() == [{"a": 1}, {"a": 1}, None]


def test_our_own_layout_is_taken_without_a_copy():
    array = pa.array([[{"a": 1, "b": "x"}], None], pa.list_(pa.struct({"a": pa.int64(), "b": pa.utf8()})))
    column = Column(array)
    assert column.array is array
    renamed = pa.array([["x"]], pa.list_(pa.field("element", pa.utf8(), nullable=False)))
    assert Column(renamed).array.values.buffers()[2].address == renamed.values.buffers()[2].address


def test_what_does_not_fit_is_refused():
    pair = DataType.parse("struct<a int, b int>")
    with pytest.raises(BindError, match="fields"):
        Column(pa.array([{"a": 1}]), pair)
    with pytest.raises(BindError, match="no list"):
        Column(pa.array([1]), DataType.parse("int[]"))
    for value in ({"c": 1}, (1, 2, 3), 7):
        with pytest.raises(EncodingError):
            Column.from_pylist([value], pair)
    assert Column.from_pylist([(1, 2), {"b": 3}], pair).to_pylist() == [{"a": 1, "b": 2}, {"a": None, "b": 3}]


def test_nested_columns_travel_through_chunks():
    schema = Schema.of(k="bigint", v="struct<a int[], i interval>")
    rows = [(1, {"a": [1], "i": Interval(1)}), (2, None), (3, {"a": None, "i": None})]
    chunk = DataChunk.from_rows(schema, rows)
    assert list(chunk.filter(np.array([1, 0, 1], np.uint8)).compact().rows()) == [rows[0], rows[2]]
    assert DataChunk.from_arrow(chunk.to_arrow(schema)).types == schema.types
    same = StreamChunk(chunk.take(np.array([0, 0, 2, 1], np.int32)).columns, np.array([3, 2, 3, 2], np.uint8))
    assert same.capacity == 4


def test_changes_with_composed_values_are_written_and_read_as_text():
    schema = Schema.of(k="bigint", v="struct<a int[], b text>", j="jsonb", raw="bytea")
    text = '+ 1 {"a":[1,null],"b":"x"} {"k":[1.5]} 00ff\n- 2 . null .\n+ 3 {"a":null,"b":null} "a" 61'
    assert from_pretty(text, schema).to_pretty() == text


@pytest.mark.parametrize("data_type", [*ALL, DEEP], ids=str)
def test_columns_compare_row_by_row_as_sql_does(data_type, rng):
    rows = random_rows(rng, [data_type], 120)
    others = [rng.choice(rows) for _ in rows]
    signs = compare_columns(columns_of([data_type], rows)[0], columns_of([data_type], others)[0])
    expected = [compare_rows(a, b, [OrderType()], [data_type]) for a, b in zip(rows, others, strict=True)]
    assert signs.tolist() == expected


def test_lists_of_more_elements_than_an_offset_can_say_are_refused():
    """An error of the rows, which fewer of them do not have: not of memory, which would end all."""
    column = Column(pa.array([[True] * (1 << 20), None]))
    for data in (column, Column(pa.StructArray.from_arrays([column.array], ["flags"]))):
        with pytest.raises(OverflowError, match="ends at 2147483647 elements, not 2147483648"):
            DataChunk([data]).take(np.zeros(1 << 11, np.int32))
        assert len(DataChunk([data]).take(np.array([1, 0], np.int32)).columns[0]) == 2
