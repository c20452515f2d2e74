"""Members of JSON objects, against json of the standard library."""

import json
import random

import pyarrow as pa
import pytest

from relational.chunk.json import canonical_json
from relational.chunk.json_members import json_members
from relational.errors import EncodingError
from tests.support.drivers.seeds import run_seed

NAMES = ["a", "b", 'q"', "\\", "länge", "ab", ""]


def value(rng, depth=0):
    kinds = [lambda: rng.randint(-99, 99), lambda: rng.choice((None, True, "", '"', "\\}", "é"))]
    if depth < 3:
        kinds += [lambda: {name: value(rng, depth + 1) for name in rng.sample(NAMES, rng.randrange(5))}] * 3
        kinds.append(lambda: [value(rng, depth + 1) for _ in range(rng.randrange(4))])
    return rng.choice(kinds)()


def test_members_are_those_of_the_standard_library():
    rng = random.Random(run_seed())
    rows = [value(rng) for _ in range(800)]
    texts = pa.array([json.dumps(row, ensure_ascii=rng.random() < 0.5) for row in rows])
    for path in ([], ["a"], ['q"'], ["\\"], ["länge"], [""], ["a", "b"], ["ab", 'q"', "a"]):
        expected = []
        for row in rows:
            for name in path:
                row = row.get(name) if isinstance(row, dict) else None
            expected.append(None if row is None else json.dumps(row))
        assert json_members(texts, path).equals(canonical_json(pa.array(expected, pa.utf8())))


def test_the_last_of_equal_names_and_rows_without_a_text():
    texts = pa.array(['{"a": 1, "a": {"b": 2}}', None, "[]", "3", '{"a": null}'])
    assert json_members(texts, ["a"]).to_pylist() == ['{"b":2}', None, None, None, None]
    nulls = pa.array(['{"a":null}', '{"b":null}', "null"])
    assert json_members(nulls, ["a"], True).to_pylist() == ["null", None, None]
    assert json_members(texts.slice(1), ["a"]).to_pylist() == [None, None, None, None]


def test_what_is_no_json_is_an_error_of_its_row():
    with pytest.raises(EncodingError, match="no JSON") as caught:
        json_members(pa.array(['{"a":1}', '{"a":']), ["a"])
    assert caught.value.row == 1
