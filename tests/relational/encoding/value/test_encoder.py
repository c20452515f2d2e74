"""ValueEncoder: exact bytes, lossless, and typed errors for any other input."""

import datetime as dt
from decimal import Decimal

import pytest

from hummock.columnar.binary_column import BinaryColumn
from relational.chunk import Column, DataChunk
from relational.encoding import ValueEncoder
from relational.errors import EncodingError
from relational.types import DataType, Interval
from tests.relational.random_rows import ALL, columns_of, mutated, random_rows, random_value
from tests.support.drivers.seeds import amount

VECTORS = [
    (DataType.BOOLEAN, True, "01"),
    (DataType.SMALLINT, -2, "feff"),
    (DataType.INT, 1, "01000000"),
    (DataType.BIGINT, 258, "0201000000000000"),
    (DataType.numeric(10, 2), Decimal("-1.00"), "9c" + "ff" * 15),
    (DataType.REAL, 1.5, "0000c03f"),
    (DataType.DOUBLE, -0.0, "0000000000000080"),
    (DataType.VARCHAR, "", ""),
    (DataType.VARCHAR, "abc", "616263"),
    (DataType.DATE, dt.date(1970, 1, 1), "3bf90a00"),
    (DataType.TIME, dt.time(1, 2, 3, 500000), "8b0e00000065cd1d"),
    (DataType.TIMESTAMP, dt.datetime(1969, 12, 31, 23, 59, 59, 999999), "ffffffffffffffff18c69a3b"),
    (DataType.TIMESTAMPTZ, dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC), "40420f0000000000"),
    (DataType.INTERVAL, Interval(1, -1, 2), "01000000ffffffff0200000000000000"),
    (DataType.BYTEA, b"\0\xff", "00ff"),
    (DataType.JSONB, '{"a":1}', "7b2261223a317d"),
    (DataType.parse("smallint[]"), [1, None, -1], "03000000" + "02" + "010000" + "00ffff"),
    (DataType.parse("varchar[]"), ["ab", None, "c"], "03000000" + "02" + "020000000200000003000000" + "616263"),
    (
        DataType.parse("struct<a varchar, b int, c varchar>"),
        {"a": None, "b": 7, "c": "x"},
        "01" + "07000000" + "0000000001000000" + "78",
    ),
]
RUN_OF_WIDTH = {0: "00", 1: "01", 2: "02", 4: "03", 8: "04", 12: "05", 16: "06"}
FIXED = (*range(7), *range(8, 13))


@pytest.mark.parametrize(("data_type", "value", "payload"), VECTORS)
def test_vectors(data_type, value, payload):
    encoder = ValueEncoder([data_type])
    width = len(payload) // 2 if data_type.kind in FIXED else 0
    end = "" if width else (len(payload) // 2).to_bytes(4, "little").hex()
    row = "81" + RUN_OF_WIDTH[width] + "00" + end + payload
    assert encoder.encode_row((value,)).hex() == row
    assert encoder.encode_row((None,)).hex() == "81" + RUN_OF_WIDTH[width] + "01" + ("00" * width or "00000000")
    assert encoder.decode_row(bytes.fromhex(row)) == (value,)


def test_the_shape_names_ids_in_runs_of_one_width():
    types = [DataType.BIGINT, DataType.DOUBLE, DataType.VARCHAR]
    assert ValueEncoder(types).shape.hex() == "82" + "14" + "00"
    assert ValueEncoder(types, [1, 2, 300]).shape.hex() == "85" + "1c01" + "08" + "a902"
    assert ValueEncoder(types, [7, 2, 3]).shape.hex() == "85" + "0c02" + "00" + "0c03"
    assert ValueEncoder([DataType.INT] * 40).shape.hex() == "83" + "f3" + "f3" + "73"
    wide = ValueEncoder([DataType.INT, DataType.VARCHAR] * 200)
    assert wide.shape[0] == 0xFF
    row = tuple(value for i in range(200) for value in (i, str(i)))
    assert wide.decode_row(wide.encode_row(row)) == row
    for ids in ([0, 0, 1], [0, 1], [-1, 0, 1], [0, 1, 2**31]):
        with pytest.raises(ValueError, match=r"ids|id is"):
            ValueEncoder(types, ids)


def test_a_row_outlives_columns_that_are_added_dropped_and_moved(rng):
    for _ in range(60):
        ids = rng.sample(range(60), 8)
        kinds = dict(zip(ids, [rng.choice(ALL) for _ in ids], strict=True))
        written = rng.sample(ids, rng.randrange(0, 6))
        asked = rng.sample(ids, rng.randrange(1, 8))
        defaults = {id_: rng.choice([None, random_value(rng, kinds[id_])]) for id_ in asked}
        rows = random_rows(rng, [kinds[id_] for id_ in written], 1100 if rng.random() < 0.1 else 30)
        writer = ValueEncoder([kinds[id_] for id_ in written], written)
        reader = ValueEncoder([kinds[id_] for id_ in asked], asked, [defaults[id_] for id_ in asked])
        values = writer.encode(columns_of(list(writer.types), rows), rows=len(rows))
        found = zip(*[Column(array).to_pylist() for array in reader.decode(values)], strict=True)
        for row, before in zip(found, rows, strict=True):
            held = dict(zip(written, before, strict=True))
            expected = str(tuple(held.get(id_, defaults[id_]) for id_ in asked))
            assert str(row).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc") == expected


def test_rows_of_several_schemas_are_mixed(rng):
    old, new = (
        ValueEncoder([DataType.BIGINT], [4]),
        ValueEncoder([DataType.VARCHAR, DataType.BIGINT], [9, 4], ["?", None]),
    )
    rows = [(old, (i,)) if rng.random() < 0.5 else (new, (str(i), i)) for i in range(3000)]
    values = BinaryColumn.from_pylist([encoder.encode_row(row) for encoder, row in rows])
    expected = [row if encoder is new else ("?", *row) for encoder, row in rows]
    assert list(DataChunk(new.decode(values)).rows()) == expected
    assert list(DataChunk(old.decode(values)).rows()) == [row[-1:] for row in expected]


def test_rows_of_the_first_form_and_of_another_width_are_refused():
    encoder = ValueEncoder([DataType.INT])
    with pytest.raises(EncodingError, match="without column ids"):
        encoder.decode_row(bytes.fromhex("0101000000"))
    with pytest.raises(EncodingError, match="form"):
        encoder.decode_row(ValueEncoder([DataType.BIGINT]).encode_row((1,)))


def test_rows_come_back_bit_for_bit_sliced_or_not(rng):
    for _ in range(amount(25, 80)):
        types = rng.sample(ALL, rng.randrange(1, 6))
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
    """Whether values are equal bit by bit, also NaN and -0.0 inside nested values."""
    return str(Column(a).to_pylist()) == str(Column(b).to_pylist())


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


def check_mutated(rng, encoder, values):
    """Whether a mutation of one of `values` is refused; if not, it decodes to a value that encodes again."""
    value = mutated(rng, rng.choice(values))
    try:
        arrays = encoder.decode(BinaryColumn.from_pylist([value]))
    except EncodingError as error:
        assert error.reason
        return True
    columns = [Column(array) for array in arrays]
    for column in columns:
        column.array.validate(full=True)
    written = encoder.encode(columns, rows=1)
    assert encoder.encode(encoder.decode(written), rows=1)[0] == written[0]
    return False


def test_mutated_values_are_refused_or_are_values(rng):
    refused = 0
    for _ in range(100):
        types = rng.sample(ALL, rng.randrange(1, 5))
        encoder = ValueEncoder(types)
        values = list(encoder.encode(columns_of(types, random_rows(rng, types, 20))))
        refused += sum(check_mutated(rng, encoder, values) for _ in range(100))
    assert refused > 2000


@pytest.mark.slow
def test_a_hundred_thousand_mutated_values_of_every_type(rng):
    for round_ in range(1000):
        data_type = ALL[round_ % len(ALL)]
        encoder = ValueEncoder([data_type])
        values = list(encoder.encode(columns_of([data_type], random_rows(rng, [data_type], 20))))
        for _ in range(100):
            check_mutated(rng, encoder, values)


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
            encoder.decode_row(row_of(raw))
    with pytest.raises(EncodingError, match="UTF-8"):
        encoder.decode(BinaryColumn.from_pylist([row_of(b"\xc3"), row_of(b"\xa9")]))
    with pytest.raises(EncodingError, match="canonical"):
        ValueEncoder([DataType.JSONB]).decode_row(row_of(b'{"a": 1}'))


def row_of(raw):
    """The encoded row of one column of bytes."""
    return b"\x81\0\0" + len(raw).to_bytes(4, "little") + raw
