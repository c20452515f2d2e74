"""KeyEncoder: exact bytes, SQL's order, and typed errors for any other input."""

import datetime as dt
from decimal import Decimal
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from hummock.columnar.binary_column import BinaryColumn
from relational.catalog.objects import KEY_FORM_LOSES
from relational.chunk import Column, DataChunk, vnodes_of
from relational.encoding import KeyEncoder
from relational.errors import EncodingError
from relational.types import DataType, Interval, OrderType
from tests.relational.random_rows import (
    ALL,
    ORDERS,
    columns_of,
    compare_rows,
    mutated,
    random_rows,
    sort_key,
    sql_row,
)
from tests.support.drivers.seeds import amount

NUMERIC = DataType.NUMERIC
VECTORS = [
    (DataType.SMALLINT, -1, "7fff"),
    (DataType.INT, 0, "80000000"),
    (DataType.BIGINT, -(2**63), "0000000000000000"),
    (DataType.REAL, -0.0, "80000000"),
    (DataType.REAL, float("nan"), "ffc00000"),
    (DataType.DOUBLE, 1.0, "bff0000000000000"),
    (DataType.DOUBLE, -1.5, "4007ffffffffffff"),
    (DataType.DOUBLE, float("-inf"), "000fffffffffffff"),
    (DataType.DOUBLE, float("nan"), "fff8000000000000"),
    (NUMERIC, Decimal("0"), "15"),
    (NUMERIC, Decimal("12.34"), "181944"),
    (NUMERIC, Decimal("-12.34"), "12e6bb"),
    (NUMERIC, Decimal("99.01"), "18c702"),
    (NUMERIC, Decimal("100.01"), "19030102"),
    (NUMERIC, Decimal("0.0123"), "17032e"),
    (NUMERIC, Decimal("0.00123"), "16fe193c"),
    (NUMERIC, Decimal("-0.00123"), "1401e6c3"),
    (NUMERIC, Decimal("1e22"), "220c02"),
    (NUMERIC, Decimal("9223372036854775807"), "21132d439107896d9b750e"),
    (DataType.numeric(38, 0), Decimal("-" + "9" * 38), "08ec" + "38" * 18 + "39"),
    (DataType.numeric(38, 38), Decimal("1e-38"), "16ed02"),
    (DataType.VARCHAR, "", "00"),
    (DataType.VARCHAR, "abc", "01616263000000000003"),
    (DataType.VARCHAR, "12345678", "01313233343536373808"),
    (DataType.VARCHAR, "123456789", "01313233343536373809390000000000000001"),
    (DataType.DATE, dt.date(2022, 1, 1), "800b436c"),
    (DataType.TIME, dt.time(1, 2, 3, 500000), "00000e8b1dcd6500"),
    (DataType.TIMESTAMP, dt.datetime(2022, 1, 1, 0, 0, 0, 1), "8000000061cf9980000003e8"),
    (DataType.TIMESTAMPTZ, dt.datetime(1970, 1, 1, tzinfo=dt.UTC), "8000000000000000"),
    (DataType.INTERVAL, Interval(months=1), "80000000000000000000025b7f3d4000"),
    (DataType.INTERVAL, Interval(days=30), "80000000000000000000025b7f3d4000"),
    (DataType.BYTEA, b"baaaar", "016261616161720000" + "06"),
    (DataType.parse("struct<a int, b varchar>"), {"a": 1, "b": None}, "0080000001" + "01"),
    (DataType.parse("int[]"), [], "00"),
    (DataType.parse("int[]"), [1, None], "01" + "0080000001010000" + "06"),
    (DataType.JSONB, "null", "01"),
    (DataType.JSONB, '"abc"', "0201616263000000000003"),
    (DataType.JSONB, "-12.5", "0314" + "7ffffffd" + "e6" + "9b"),
    (DataType.JSONB, '{"a":[true]}', "0700000001" + "01610000000000000001" + "0600000001" + "05"),
]


@pytest.mark.parametrize(("data_type", "value", "payload"), VECTORS)
def test_vectors(data_type, value, payload):
    raw = bytes.fromhex(payload)
    for order in ORDERS:
        tag = b"\0" if order.nulls_are_largest else b"\1"
        expected = tag + raw
        null = bytes([1 - tag[0]])
        if order.descending:
            expected, null = (bytes(255 - byte for byte in each) for each in (expected, null))
        encoder = KeyEncoder([data_type], [order])
        assert encoder.encode_row((value,)).hex() == expected.hex()
        assert encoder.encode_row((None,)).hex() == null.hex()
        assert sql_row(encoder.decode_row(expected)) == sql_row((value if value == value else float("nan"),))


def test_a_whole_row_is_its_columns_one_after_the_other():
    descending = OrderType(descending=True)
    types = [
        DataType.INT,
        DataType.BIGINT,
        DataType.TIMESTAMP,
        DataType.REAL,
        DataType.VARCHAR,
        DataType.VARCHAR,
    ]
    orders = [OrderType(), descending, OrderType(), OrderType(), descending, OrderType()]
    encoder = KeyEncoder(types, orders)
    expected = "008000002a ff7fffffffffffffd5 01 00c1baa3d7 fffe999090909090fffff9 0001626161616172000006".replace(
        " ", ""
    )
    assert encoder.encode_row((42, 42, None, 23.33, "fooooo", "baaaar")).hex() == expected


def random_encoder(rng):
    types = rng.sample(ALL, rng.randrange(1, 5))
    return KeyEncoder(types, [rng.choice(ORDERS) for _ in types])


@pytest.mark.parametrize("data_type", ALL, ids=str)
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_bytes_order_as_sql_does_for_one_column(data_type, order, rng):
    encoder = KeyEncoder([data_type], [order])
    check_order(encoder, random_rows(rng, [data_type], 150), rng)


@pytest.mark.parametrize("orders", list(product(ORDERS, repeat=2)), ids=str)
def test_bytes_order_as_sql_does_for_two_columns(orders, rng):
    for _ in range(4):
        encoder = KeyEncoder(rng.choices(ALL, k=2), orders)
        check_order(encoder, random_rows(rng, list(encoder.types), 60), rng)


def test_bytes_order_as_sql_does_for_several_columns(rng):
    for _ in range(amount(20, 60)):
        encoder = random_encoder(rng)
        check_order(encoder, random_rows(rng, list(encoder.types), 100), rng)


def check_order(encoder, rows, rng):
    """Keys sort as SQL orders the rows; decoded rows are equal in SQL and have the same vnodes."""
    columns = columns_of(encoder.types, rows)
    encoded = encoder.encode(columns)
    decoded = DataChunk(encoder.decode(encoded))
    assert [sql_row(row, encoder.types) for row in decoded.rows()] == [sql_row(row, encoder.types) for row in rows]
    assert (vnodes_of(decoded.columns, 1 << 15) == vnodes_of(columns, 1 << 15)).all()
    keys = list(encoded)
    for _ in range(400):
        i, j = rng.randrange(len(rows)), rng.randrange(len(rows))
        order = (keys[i] > keys[j]) - (keys[i] < keys[j])
        assert order == compare_rows(rows[i], rows[j], encoder.orders, encoder.types), (rows[i], rows[j])
    by_bytes = [row for _, row in sorted(zip(keys, rows, strict=True), key=lambda pair: pair[0])]
    assert [sql_row(row) for row in by_bytes] == [
        sql_row(row) for row in sorted(rows, key=sort_key(encoder.orders, encoder.types))
    ]


def test_keys_decode_to_sql_equal_rows_sliced_or_not(rng):
    for _ in range(amount(25, 80)):
        encoder = random_encoder(rng)
        rows = random_rows(rng, list(encoder.types), rng.choice([1, 7, 1024, 1025, 2500]))
        columns = columns_of(encoder.types, rows)
        first = rng.randrange(len(rows))
        keys = encoder.encode([column.slice(first, len(rows) - first) for column in columns])
        decoded = DataChunk(encoder.decode(keys))
        assert decoded.types == encoder.types
        assert [sql_row(row) for row in decoded.rows()] == [sql_row(row) for row in rows[first:]]
        for column, data_type, before in zip(decoded.columns, encoder.types, columns, strict=True):
            column.array.validate(full=True)
            if not any(map(data_type.contains, KEY_FORM_LOSES)):
                assert column.array.equals(before.array[first:])


def test_user_keys_carry_table_and_vnode(rng):
    encoder = KeyEncoder([DataType.BIGINT, DataType.VARCHAR])
    rows = random_rows(rng, list(encoder.types), 3000)
    columns = columns_of(encoder.types, rows)
    vnodes = np.array([rng.randrange(256) for _ in rows], np.uint16)
    plain = list(encoder.encode(columns))
    keys = encoder.encode(columns, table_id=7, vnodes=vnodes)
    assert list(keys) == [
        b"\0\0\0\7" + int(vnode).to_bytes(2, "big") + key for vnode, key in zip(vnodes, plain, strict=True)
    ]
    assert list(DataChunk(encoder.decode(keys, skip=6)).rows()) == rows
    assert encoder.encode_row(rows[0], table_id=7, vnode=int(vnodes[0])) == keys[0]
    assert list(encoder.encode([], table_id=2**32 - 1, rows=2)) == [b"\xff\xff\xff\xff\0\0"] * 2


def test_keys_of_leading_columns_are_prefixes_and_no_key_begins_another(rng):
    for _ in range(30):
        encoder = random_encoder(rng)
        rows = random_rows(rng, list(encoder.types), 60)
        columns = columns_of(encoder.types, rows)
        keys = list(encoder.encode(columns))
        leading = list(encoder.encode(columns[:1]))
        assert all(key.startswith(prefix) for key, prefix in zip(keys, leading, strict=True))
        for a in keys:
            assert all(a == b or not b.startswith(a) for b in keys)


def test_the_size_of_a_key_is_known_where_it_is_fixed():
    assert KeyEncoder([DataType.BIGINT, DataType.INTERVAL]).fixed_bytes == 26
    assert KeyEncoder([DataType.BIGINT, DataType.VARCHAR]).fixed_bytes == -1


def test_values_without_a_key_are_named():
    encoder = KeyEncoder([DataType.BIGINT, DataType.DATE])
    dates = pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32())
    with pytest.raises(EncodingError, match="row 1, column 1"):
        encoder.encode([pa.array([1, 2]), dates])
    times = pa.array([-1], pa.int64()).cast(pa.time64("us"))
    with pytest.raises(EncodingError):
        KeyEncoder([DataType.TIME]).encode([times])


def test_rows_beyond_two_gigabytes_are_refused_before_anything_is_written():
    text = pa.array(["x" * (1 << 20)])
    wide = KeyEncoder([DataType.VARCHAR] * 2000)
    with pytest.raises(OverflowError, match="2 GiB"):
        wide.encode([text] * 2000)


def test_wrong_columns_are_refused():
    encoder = KeyEncoder([DataType.BIGINT])
    with pytest.raises(ValueError, match="column 0"):
        encoder.encode([pa.array(["a"])])
    with pytest.raises(ValueError, match="2 columns"):
        encoder.encode([pa.array([1]), pa.array([1])])
    with pytest.raises(ValueError, match="vnodes"):
        encoder.encode([pa.array([1])], table_id=1, vnodes=np.zeros(2, np.uint16))
    with pytest.raises(EncodingError, match="no bytes"):
        encoder.decode(BinaryColumn.from_pylist([None]))


def test_mutated_keys_are_refused_or_are_the_key_of_what_they_decode_to(rng):
    refused = 0
    for _ in range(250):
        encoder = random_encoder(rng)
        keys = list(encoder.encode(columns_of(encoder.types, random_rows(rng, list(encoder.types), 20))))
        for _ in range(100):
            key = mutated(rng, rng.choice(keys))
            try:
                arrays = encoder.decode(BinaryColumn.from_pylist([key]))
            except EncodingError as error:
                assert error.reason
                refused += 1
                continue
            assert encoder.encode([Column(array) for array in arrays], rows=1)[0] == key
    assert refused > 5000


@pytest.mark.slow
def test_a_hundred_thousand_mutated_keys_of_every_type(rng):
    for round_ in range(1000):
        data_type, order = ALL[round_ % len(ALL)], ORDERS[round_ // len(ALL) % 4]
        encoder = KeyEncoder([data_type], [order])
        keys = list(encoder.encode(columns_of([data_type], random_rows(rng, [data_type], 20))))
        for _ in range(100):
            key = mutated(rng, rng.choice(keys))
            try:
                arrays = encoder.decode(BinaryColumn.from_pylist([key]))
            except EncodingError:
                continue
            assert encoder.encode([Column(array) for array in arrays], rows=1)[0] == key


def test_an_error_names_row_column_and_byte():
    encoder = KeyEncoder([DataType.BIGINT, DataType.BOOLEAN])
    good = encoder.encode_row((1, True))
    with pytest.raises(EncodingError) as caught:
        encoder.decode(BinaryColumn.from_pylist([good] * 1500 + [good[:-1] + b"\7"]))
    assert (caught.value.row, caught.value.column, caught.value.offset) == (1500, 1, 10)
    with pytest.raises(EncodingError, match="follow the last column"):
        encoder.decode(BinaryColumn.from_pylist([good + b"\0"]))
