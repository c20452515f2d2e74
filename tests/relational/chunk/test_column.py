"""Column: one layout per type, whatever the layout of the Arrow input."""

import datetime as dt
import random
import uuid
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from relational.chunk import Column, DataChunk, mask_of
from relational.errors import BindError, EncodingError, InvalidValue
from relational.types import DataType, Interval
from tests.support.drivers.seeds import run_seed

UTC = dt.UTC
SAMPLES = [
    (DataType.BOOLEAN, [True, None, False, True]),
    (DataType.SMALLINT, [1, None, -32768, 32767]),
    (DataType.INT, [1, None, -(2**31), 5]),
    (DataType.BIGINT, [1, None, -(2**63), 5]),
    (DataType.numeric(12, 2), [Decimal("1.50"), None, Decimal("-99999999.99"), Decimal("0.00")]),
    (DataType.REAL, [1.5, None, -2.0, 0.0]),
    (DataType.DOUBLE, [1.5, None, -2.0, float("inf")]),
    (DataType.VARCHAR, ["", None, "naïve", "a longer piece of text"]),
    (DataType.DATE, [dt.date(2022, 1, 1), None, dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    (DataType.TIME, [dt.time(1, 2, 3, 500000), None, dt.time(0), dt.time(23, 59, 59, 999999)]),
    (DataType.TIMESTAMP, [dt.datetime(2022, 1, 1, 0, 0, 0, 1), None, dt.datetime(1900, 1, 1), None]),
    (
        DataType.TIMESTAMPTZ,
        [dt.datetime(2022, 1, 1, tzinfo=UTC), None, dt.datetime(1, 1, 1, tzinfo=UTC), None],
    ),
    (DataType.BYTEA, [b"", None, b"\0\xff", b"a longer piece of bytes"]),
    (DataType.JSONB, ["null", None, '{"a":[1.5]}', '"a"']),
    (DataType.parse("int[]"), [[], None, [1, None], [3]]),
    (
        DataType.parse("struct<a int, b varchar[]>"),
        [{"a": 1, "b": []}, None, {"a": None, "b": None}, {"a": 2, "b": ["x"]}],
    ),
    (DataType.INTERVAL, [Interval(1, 2, 3), None, Interval(-1, 0, -5), Interval()]),
]


@pytest.mark.parametrize(("data_type", "values"), SAMPLES, ids=[str(kind) for kind, _ in SAMPLES])
def test_values_come_back_whole_sliced_and_taken(data_type, values):
    column = Column.from_pylist(values, data_type)
    assert column.data_type == data_type
    assert column.to_pylist() == values
    assert [column[i] for i in range(len(column))] == values
    assert column.slice(1, 2).to_pylist() == values[1:3]
    taken = DataChunk([column.slice(1, 3)]).take(np.array([2, 0, -1, 1, 2], np.int32)).columns[0]
    assert taken.to_pylist() == [values[3], values[1], None, values[2], values[3]]
    taken.array.validate(full=True)
    assert DataChunk([column.slice(0, 0)]).take(np.array([-1], np.int32)).columns[0].to_pylist() == [None]


@pytest.mark.parametrize(
    ("array", "data_type"),
    [
        (pa.array(["a", None, "b"], pa.large_utf8()), DataType.VARCHAR),
        (pa.array(["a", None, "b"], pa.string_view()), DataType.VARCHAR),
        (pa.array(["a", None, "b"]).dictionary_encode(), DataType.VARCHAR),
        (pa.chunked_array([["a"], [None, "b"]]), DataType.VARCHAR),
        (pa.RunEndEncodedArray.from_arrays([1, 2, 3], ["a", None, "b"]), DataType.VARCHAR),
    ],
)
def test_other_layouts_of_strings_become_ours(array, data_type):
    column = Column(array)
    assert column.data_type == data_type
    assert column.array.type == data_type.arrow
    assert column.to_pylist() == ["a", None, "b"]


def test_other_time_units_are_cut_to_microseconds():
    nanoseconds = pa.array([1_001], pa.timestamp("ns"))
    assert Column(nanoseconds).to_pylist() == [dt.datetime(1970, 1, 1, 0, 0, 0, 1)]
    assert Column(pa.array([1], pa.time32("s"))).to_pylist() == [dt.time(0, 0, 1)]


def test_what_is_no_sql_type_and_what_does_not_fit_is_refused():
    with pytest.raises(BindError):
        Column(pa.array([None]))
    with pytest.raises(EncodingError, match="SMALLINT"):
        Column.from_pylist([2**15], DataType.SMALLINT)
    with pytest.raises(EncodingError, match="NUMERIC"):
        Column.from_pylist([Decimal("1.234")], DataType.numeric(5, 2))
    with pytest.raises(EncodingError, match="BIGINT"):
        Column.from_pylist(["x"], DataType.BIGINT)


def test_a_mask_counts_null_as_false_and_honours_offsets():
    column = Column(pa.array([True, True, None, False, True, None, True, True, True, False]).slice(1))
    assert mask_of(column).tolist() == [1, 0, 0, 1, 0, 1, 1, 1, 0]
    rng = random.Random(run_seed())
    for rows in (0, 1, 7, 8, 9, 15, 16, 17, 64, 1_000, 70_000):
        values = rng.choices((True, False, None) if rng.random() < .7 else (True, False), k=rows + 11)
        for start in range(11):
            sliced = Column(pa.array(values, pa.bool_()).slice(start, rows))
            assert mask_of(sliced).tolist() == [int(value is True) for value in values[start:start + rows]]
    with pytest.raises(ValueError, match="BOOLEAN"):
        mask_of(Column(pa.array([1])))


def test_every_row_null_and_no_row_at_all():
    for data_type, _ in SAMPLES:
        assert Column.nulls(data_type, 3).to_pylist() == [None] * 3
        assert Column.from_pylist([], data_type).to_pylist() == []


def test_json_values_are_texts_or_dicts_and_lists():
    deep: list = []
    for _ in range(5_000):
        deep = [deep]
    given = [{"b": [1.5, "ü", None, True], "a": {}}, [1, 2], '"x"', None]
    assert Column.from_pylist(given, DataType.JSONB).to_pylist() == [
        '{"a":{},"b":[1.5,"ü",null,true]}', "[1,2]", '"x"', None]
    assert Column.from_pylist([[{"x": 1}, "[]"]], DataType.parse("jsonb[]")).to_pylist() == [['{"x":1}', "[]"]]
    for wrong in ({"a": float("nan")}, {"a": object()}, {"a": "\ud800"}, {(1, 2): 3}, 5, (1, 2), deep):
        with pytest.raises(InvalidValue, match=r"row 1: .* is not a value of JSONB"):
            Column.from_pylist(["{}", wrong], DataType.JSONB)


def test_durations_are_intervals_of_days_and_microseconds():
    day = 86_400
    for unit, second in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        spans = pa.array([7, day * second + second, -second, None], pa.duration(unit)).slice(1)
        column = Column(spans)
        assert column.data_type == DataType.INTERVAL
        assert column.to_pylist() == [Interval(0, 1, 10**6), Interval(0, -1, (day - 1) * 10**6), None]
        rows = [None if each is None else each for each in spans.cast(pa.duration("us")).to_pylist()]
        assert Column.from_pylist(rows, DataType.INTERVAL).to_pylist() == column.to_pylist()
    assert Column(pa.array([1_999, -1], pa.duration("ns"))).to_pylist() == [
        Interval(0, 0, 1), Interval(0, -1, day * 10**6 - 1)]
    assert Column(pa.array([], pa.duration("s"))).to_pylist() == []
    with pytest.raises(InvalidValue, match="row 1: an INTERVAL has at most"):
        Column(pa.array([0, 2**31 * day, 1], pa.duration("s")))


def test_uuids_are_their_texts():
    keys = [uuid.UUID(int=5), None, uuid.UUID(int=2**128 - 1)]
    column = Column(pa.array(keys, pa.uuid()).slice(1))
    assert column.data_type == DataType.VARCHAR
    assert column.to_pylist() == [None, "ffffffff-ffff-ffff-ffff-ffffffffffff"]
