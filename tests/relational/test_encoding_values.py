"""ValueEncoder: exact bytes, nothing lost, nothing but typed errors for what it did not write."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from hummock.binary_column import BinaryColumn
from relational.chunk import Column, DataChunk
from relational.encoding import ValueEncoder
from relational.errors import EncodingError
from relational.types import DataType, Interval
from tests.relational.random_rows import TYPES, columns_of, mutated, random_rows

VECTORS = [
    (DataType.BOOLEAN, True, "01"),
    (DataType.SMALLINT, -2, "feff"),
    (DataType.INT, 1, "01000000"),
    (DataType.BIGINT, 258, "0201000000000000"),
    (DataType.numeric(10, 2), Decimal("-1.00"), "9c" + "ff" * 15),
    (DataType.REAL, 1.5, "0000c03f"),
    (DataType.DOUBLE, -0.0, "0000000000000080"),
    (DataType.VARCHAR, "", "00000000"),
    (DataType.VARCHAR, "abc", "03000000616263"),
    (DataType.DATE, dt.date(1970, 1, 1), "3bf90a00"),
    (DataType.TIME, dt.time(1, 2, 3, 500000), "8b0e00000065cd1d"),
    (DataType.TIMESTAMP, dt.datetime(1969, 12, 31, 23, 59, 59, 999999), "ffffffffffffffff18c69a3b"),
    (DataType.TIMESTAMPTZ, dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC), "40420f0000000000"),
    (DataType.INTERVAL, Interval(1, -1, 2), "01000000ffffffff0200000000000000"),
]


@pytest.mark.parametrize(("data_type", "value", "payload"), VECTORS)
def test_vectors(data_type, value, payload):
    encoder = ValueEncoder([data_type])
    assert encoder.encode_row((value,)).hex() == "01" + payload
    assert encoder.encode_row((None,)).hex() == "00"
    assert encoder.decode_row(bytes.fromhex("01" + payload)) == (value,)


def test_rows_come_back_bit_for_bit_sliced_or_not(rng):
    for _ in range(80):
        types = rng.sample(TYPES, rng.randrange(1, 6))
        encoder = ValueEncoder(types)
        rows = random_rows(rng, types, rng.choice([1, 9, 1024, 1025, 2500]))
        first = rng.randrange(len(rows))
        columns = [column.slice(first, len(rows) - first) for column in columns_of(types, rows)]
        values = encoder.encode(columns)
        for array, column in zip(encoder.decode(values), columns, strict=True):
            array.validate(full=True)
            assert same_bits(array, column.array)
        wanted = rng.sample(range(len(types)), rng.randrange(1, len(types) + 1))
        for array, index in zip(encoder.decode(values, wanted), wanted, strict=True):
            assert same_bits(array, columns[index].array)


def same_bits(a, b):
    """Equal even where a float is NaN or -0.0."""
    if pa.types.is_floating(a.type):
        bits = pa.int64() if a.type == pa.float64() else pa.int32()
        return a.is_null().equals(b.is_null()) and a.view(bits).drop_null().equals(b.view(bits).drop_null())
    return a.equals(b)


def test_absent_rows_become_nulls_where_asked():
    encoder = ValueEncoder([DataType.BIGINT, DataType.VARCHAR, DataType.BOOLEAN])
    values = BinaryColumn.from_pylist([None, encoder.encode_row((1, "a", True)), None])
    chunk = DataChunk(encoder.decode(values, absent="null"))
    assert list(chunk.rows()) == [(None,) * 3, (1, "a", True), (None,) * 3]
    with pytest.raises(EncodingError, match="row 0"):
        encoder.decode(values)


def test_a_row_without_columns_has_no_bytes():
    encoder = ValueEncoder([])
    assert list(encoder.encode([], rows=3)) == [b"", b"", b""]
    assert encoder.decode(BinaryColumn.from_pylist([b""])) == []


def test_mutated_values_are_refused_or_are_the_value_of_what_they_decode_to(rng):
    refused = 0
    for _ in range(250):
        types = rng.sample(TYPES, rng.randrange(1, 5))
        encoder = ValueEncoder(types)
        values = list(encoder.encode(columns_of(types, random_rows(rng, types, 20))))
        for _ in range(100):
            value = mutated(rng, rng.choice(values))
            try:
                arrays = encoder.decode(BinaryColumn.from_pylist([value]))
            except EncodingError as error:
                assert error.reason
                refused += 1
                continue
            assert encoder.encode([Column(array) for array in arrays], rows=1)[0] == value
    assert refused > 5000


def test_text_that_is_not_utf8_is_refused():
    encoder = ValueEncoder([DataType.VARCHAR])
    for raw in (
        b"\xff",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xe6\xbc",
        b"a\x80",
        b"\xf8\x88\x80\x80",
    ):
        with pytest.raises(EncodingError, match="UTF-8"):
            encoder.decode(BinaryColumn.from_pylist([b"\1" + len(raw).to_bytes(4, "little") + raw]))
    split = [b"\1\1\0\0\0\xc3", b"\1\1\0\0\0\xa9"]
    with pytest.raises(EncodingError, match="UTF-8"):
        encoder.decode(BinaryColumn.from_pylist(split))
