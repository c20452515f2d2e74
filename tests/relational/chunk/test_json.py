"""JSONB's canonical text: one form per value, and typed errors for invalid JSON."""

import json
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from relational.chunk import Column
from relational.chunk.json import canonical_json
from relational.errors import EncodingError
from relational.types import DataType
from tests.relational.random_rows import canonical, json_order, random_json

CASES = [
    (' { "bb" : 1 , "a" : [ ] , "a" : null } ', '{"a":null,"bb":1}'),
    ("1.50", "1.5"),
    ("-0.0", "0"),
    ("1e2", "100"),
    ("10E-3", "0.01"),
    ("1e20", "100000000000000000000"),
    ("1e21", "1e+21"),
    ("12e-30", "1.2e-29"),
    ("123456789012345678901234567890.10", "123456789012345678901234567890.1"),
    (r'"\u0041\/\n\u001F\"\ud83d\ude42é"', '"A/\\n\\u001f\\"🙂é"'),
    ('{"é":1,"zz":2,"a":3}', '{"a":3,"zz":2,"é":1}'),
    (r'{"\n":1,"a":2}', r'{"\n":1,"a":2}'),
]
REFUSED = [
    "", " ", "nul", "tru", "01", "1.", ".5", "+1", "1e", "1e999999", "[1,]", "[1", "{", '{"a"}', '{"a":1,}', "{a:1}",
    '"a', '"\t"', r'"\x"', r'"\u00"', r'"\u0000"', r'"\ud800"', r'"\ud800\u0041"', "1 2", "[" * 1001 + "]" * 1001,
    "nan",
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_a_value_has_one_form(text, expected):
    assert canonical_json(pa.array([text, None])).to_pylist() == [expected, None]
    assert canonical_json(pa.array([expected])).to_pylist() == [expected]


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_json_is_refused_with_its_position(text):
    with pytest.raises(EncodingError, match="no JSON") as caught:
        canonical_json(pa.array(["1", text]))
    assert caught.value.row == 1
    bad = np.zeros(2, np.uint8)
    assert canonical_json(pa.array(["1", text]), bad).to_pylist() == ["1", None]
    assert bad.tolist() == [0, 1]


def test_random_values_in_random_spelling_become_the_oracle_s_text(rng):
    for _ in range(500):
        value = random_json(rng, 4)
        spelled = json.dumps(
            value,
            default=lambda number: float(number),
            ensure_ascii=rng.random() < 0.5,
            indent=rng.choice([None, 1]),
        )
        exact = json.loads(spelled, parse_int=Decimal, parse_float=Decimal)
        assert canonical_json(pa.array([spelled])).to_pylist() == [canonical(exact)]
        again = canonical(value)
        assert canonical_json(pa.array([again])).to_pylist() == [again]
        assert json_order(again) == json_order(again)


def test_a_thousand_arrays_in_each_other_are_the_most():
    deep = "[" * 1000 + "]" * 1000
    assert canonical_json(pa.array([deep])).to_pylist() == [deep]


def test_json_from_elsewhere_becomes_canonical_on_entry():
    for array in (
        pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"b":1, "a":2}', None])),
        pa.array(['{"b":1, "a":2}', None]),
    ):
        column = Column(array, DataType.JSONB)
        assert column.to_pylist() == ['{"a":2,"b":1}', None]
        assert column.array.type == DataType.JSONB.arrow
    with pytest.raises(EncodingError, match="no JSON"):
        Column.from_pylist(["{"], DataType.JSONB)
