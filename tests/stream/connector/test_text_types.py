"""Types of the numbers and moments of text files: what a DOUBLE would lose, and what JSON says of times."""

from __future__ import annotations

import random
from decimal import Decimal

import pyarrow as pa
import pytest

from relational.errors import BindError
from stream.connector.text_types import has_long_numbers, json_objects, number_type, with_long_numbers, with_moments
from tests.support.drivers.seeds import run_seed

DOUBLE, TEXT = pa.float64(), pa.utf8()
ZONED, PLAIN = pa.timestamp("us", "UTC"), pa.timestamp("us")


@pytest.mark.parametrize(("texts", "expected"), [
    (["1", "1.5"], DOUBLE),
    ([], DOUBLE),
    ([None, "nan", "1e300"], DOUBLE),
    (["9007199254740992", "0.5", "-9007199254740992"], DOUBLE),
    (["0009007199254740992", "0.5"], DOUBLE),
    (["9007199254740993", "0.5"], pa.decimal128(38, 10)),
    (["-9007199254740993", " 0.5 ", None], pa.decimal128(38, 10)),
    (["18446744073709551615", "1"], pa.decimal128(38, 0)),
    (["18446744073709551615", "1."], pa.decimal128(38, 0)),
    (["9007199254740993", ".123456789012300"], pa.decimal128(38, 13)),
    (["9" * 30, "0.5"], pa.decimal128(38, 8)),
    (["9" * 38], pa.decimal128(38, 0)),
    (["9" * 37, "0.5"], pa.decimal128(38, 1)),
    (["9" * 37, "0.55"], TEXT),
    (["9" * 39], TEXT),
    (["9007199254740993", "1e300"], TEXT),
    (["9007199254740993", "nan"], TEXT),
    (["1152921504606847000", "1e21"], DOUBLE),
], ids=str)  # fmt: skip
def test_numbers_have_a_type_that_holds_them(texts, expected):
    assert number_type(pa.array(texts, TEXT)) == expected


def test_random_numbers_are_told_apart_by_their_type():
    rng = random.Random(run_seed())
    for _ in range(200):
        texts = [str(rng.randrange(-1 << rng.randrange(1, 130), 1 << rng.randrange(1, 130)))
                 + rng.choice(["", "", f".{rng.randrange(1, 10 ** 6)}"]) for _ in range(rng.randrange(1, 9))]
        found = number_type(pa.array(texts))
        if pa.types.is_decimal(found):
            assert pa.array(texts).cast(found).to_pylist() == [Decimal(text) for text in texts]
        elif found == DOUBLE:
            assert not any(abs(int(text)) > 1 << 53 for text in texts if "." not in text)
        else:
            assert max(len(text) for text in texts) > 30


def test_numbers_of_objects_are_found_at_any_level():
    text = b'{"a": [{"x": 18446744073709551616}, {"x": 1}, null], "s": {"y": 9007199254740993}, "z": 1.5}\n' \
           b'{"s": {"y": 0.5}, "a": null, "note": "18446744073709551616"}\nno object\n[1]\n\n'
    arrow = pa.struct([("a", pa.list_(pa.struct([("x", DOUBLE)]))), ("s", pa.struct([("y", DOUBLE)])), ("z", DOUBLE),
                       ("note", TEXT)])
    assert has_long_numbers(text) and not has_long_numbers(b'{"a": 123456789012345}')
    assert with_long_numbers(arrow, json_objects(text)) == pa.struct([
        ("a", pa.list_(pa.struct([("x", pa.decimal128(38, 0))]))), ("s", pa.struct([("y", pa.decimal128(38, 10))])),
        ("z", DOUBLE), ("note", TEXT)])
    with pytest.raises(BindError, match="its whole numbers"):
        with_long_numbers(DOUBLE, ["9" * 40])


@pytest.mark.parametrize(("texts", "expected"), [
    (["2020-01-01T10:00:00+02:00", "2020-01-01T10:00:00.123Z", None], ZONED),
    (["2020-01-01T10:00:00", "2020-01-01 10:00:00.123456"], PLAIN),
    (["2020-01-01"], PLAIN),
    (["2020-01-01T10:00:00", "2020-01-01T10:00:00Z"], TEXT),
    (["2020-01-01T10:00:00.123456789Z"], TEXT),
    (["2020-13-01T10:00:00Z"], TEXT),
    (["", "2020-01-01"], TEXT),
    ([None], TEXT),
], ids=str)  # fmt: skip
def test_moments_have_a_zone_if_all_of_them_do(texts, expected):
    array = pa.array(texts, TEXT)
    assert with_moments(array) == expected
    nested = pa.array([{"l": [text]} for text in texts], pa.struct([("l", pa.list_(TEXT))]))
    assert with_moments(nested) == pa.struct([("l", pa.list_(expected))])
