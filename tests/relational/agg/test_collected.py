"""Results over rows in an order: empty groups, elements of every type, NULLs, keys of objects, and texts of JSON."""

import json
import random

import numpy as np
import pyarrow as pa
import pytest

from relational.agg.collected import CollectedCall, collected
from relational.chunk import Column, DataChunk
from relational.chunk.json import canonical_json
from relational.chunk.json_members import json_strings
from relational.encoding import KeyEncoder, ValueEncoder
from relational.types import DataType, Schema
from tests.relational.random_rows import random_value
from tests.support.drivers.seeds import run_seed

TYPES = ("boolean", "smallint", "int", "bigint", "numeric(12, 3)", "real", "double", "varchar", "date", "time",
         "timestamp", "timestamptz", "interval", "bytea", "jsonb", "int[]", "struct<a int, b varchar>", "varchar[][]")
STARTS = np.array([0, 0, 3, 4, 4, 9])


@pytest.mark.parametrize("name", TYPES)
def test_lists_of_every_type_have_their_elements_and_can_be_stored(name):
    data_type, rng = DataType.parse(name), random.Random(f"{run_seed()} {name}")
    values = [None if rng.random() < 0.3 else random_value(rng, data_type) for _ in range(9)]
    column = Column.from_pylist(values, data_type)
    call = CollectedCall("array_agg", (0,), DataType.list_of(data_type))
    found = collected(call, DataChunk([column]), STARTS).column
    elements = column.to_pylist()
    assert found.data_type == call.output_type
    assert repr(found.to_pylist()) == repr([None, elements[:3], elements[3:4], None, elements[4:]])
    encoder = ValueEncoder([call.output_type])
    again = Column(encoder.decode(encoder.encode([found]).to_arrow())[0], call.output_type)
    assert repr(again.to_pylist()) == repr(found.to_pylist())
    keys = KeyEncoder([call.output_type]).encode([found])
    assert len(Column(KeyEncoder([call.output_type]).decode(keys)[0], call.output_type)) == 5


@pytest.mark.parametrize("kind", ["first_value", "mode", "percentile_disc"])
@pytest.mark.parametrize("name", TYPES)
def test_one_of_the_values_of_every_type(kind, name):
    data_type, rng = DataType.parse(name), random.Random(f"{run_seed()} {name}")
    column = Column.from_pylist([random_value(rng, data_type) for _ in range(9)], data_type)
    call = CollectedCall(kind, (0,), data_type, constants=(0.0,))
    found = collected(call, DataChunk([column]), STARTS).column.to_pylist()
    values = column.to_pylist()
    assert [each is None for each in found] == [True, False, False, True, False]
    if kind != "mode":
        assert repr(found) == repr([None, values[0], values[3], None, values[4]])


def test_no_rows():
    for kind, data_type, constants in (
        ("array_agg", "int[]", ()), ("percentile_disc", "int", (0.5,)), ("mode", "int", ()),
        ("percentile_disc", "int[]", ([0.5, None],)), ("first_value", "int", ()),
    ):
        call = CollectedCall(kind, (0,), DataType.parse(data_type), constants=constants)
        rows = DataChunk([Column.nulls(DataType.INT, 0)], capacity=0)
        assert collected(call, rows, np.zeros(3, np.int64)).column.to_pylist() == [None, None]
        assert collected(call, rows, np.zeros(1, np.int64)).column.to_pylist() == []


def test_keys_of_objects():
    """The last value of a key counts; a key that cannot be one makes the result of its group NULL."""
    rows = DataChunk.from_rows(Schema.of(k="varchar", v="jsonb"), [
        ("b", "1"), ("a", None), ("b", "[2]"), (None, "1"), ("x", "1"), ("y\0", "1"), ("", "0"), ("é\"", "1")])
    call = CollectedCall("jsonb_object_agg", (0, 1), DataType.JSONB)
    found = collected(call, rows, np.array([0, 3, 5, 6, 8]))
    assert found.column.to_pylist() == ['{"a":null,"b":[2]}', None, None, '{"":0,"é\\"":1}']
    assert {reason: each.tolist() for reason, each in found.failures.items()} == {
        "a key of jsonb_object_agg is NULL": [False, True, False, False],
        "invalid text for JSONB": [False, False, True, False]}


def test_the_json_string_of_a_text():
    texts = ["", "a\"b\\c/", "\n\t\b\f\r\x1f\x7f", "é😀", None]
    written = [None if text is None else json.dumps(text, ensure_ascii=False) for text in texts]
    assert json_strings(pa.array(texts)).to_pylist() == canonical_json(pa.array(written)).to_pylist()
