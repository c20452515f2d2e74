"""Random values of every type, biased to edge cases, and their order in SQL."""

import datetime as dt
import functools
import json
import math
import random
from collections.abc import Sequence
from decimal import Context, Decimal

from relational.chunk import Column, DataChunk
from relational.types import DataType, Interval, OrderType, Schema, TypeKind

UTC = dt.UTC
TYPES = [
    DataType.BOOLEAN,
    DataType.SMALLINT,
    DataType.INT,
    DataType.BIGINT,
    DataType.numeric(38, 10),
    DataType.numeric(38, 0),
    DataType.numeric(38, 37),
    DataType.numeric(7, 3),
    DataType.REAL,
    DataType.DOUBLE,
    DataType.VARCHAR,
    DataType.DATE,
    DataType.TIME,
    DataType.TIMESTAMP,
    DataType.TIMESTAMPTZ,
    DataType.INTERVAL,
    DataType.BYTEA,
]
COMPOSED = [
    DataType.JSONB,
    *map(
        DataType.parse,
        [
            "bigint[]",
            "varchar[]",
            "interval[][]",
            "numeric(9, 2)[]",
            "struct<a int, b varchar>",
            "struct<x double, y struct<z boolean[], t timestamp>>[]",
            "struct<d date, j jsonb, n numeric(38, 10), raw bytea>",
        ],
    ),
]
ALL = TYPES + COMPOSED
ORDERS = [OrderType(descending, first) for descending in (False, True) for first in (False, True)]
_BITS = {TypeKind.SMALLINT: 16, TypeKind.INT: 32, TypeKind.BIGINT: 64}
_FLOATS = [0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -1.5, 2.0**-149, 2.0**100, -(2.0**100)]
_EXACT = Context(prec=50)
_TEXT = "ab\0é漢🙂\x7f"


def _integer(rng: random.Random, bits: int) -> int:
    top = 2 ** (bits - 1)
    return rng.choice([0, 1, -1, top - 1, -top, rng.randrange(-top, top), rng.randrange(-300, 300)])


def _decimal(rng: random.Random, data_type: DataType) -> Decimal:
    digits = rng.randrange(1, data_type.precision + 1)
    mantissa = rng.choice([0, 1, 10**digits - 1, rng.randrange(10**digits), 10 ** (digits - 1)])
    return Decimal(rng.choice([-1, 1]) * mantissa).scaleb(-data_type.scale, context=_EXACT)


def _microseconds(rng: random.Random, most: int) -> int:
    return rng.choice([0, 1, most - 1, rng.randrange(most), rng.randrange(most) // 1_000_000 * 1_000_000])


def random_json(rng: random.Random, depth: int = 3) -> object:
    """A Python value as `json` parses it, with Decimal for numbers."""
    kind = rng.randrange(8 if depth else 5)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind in (1, 2):
        return rng.choice(
            [
                Decimal(0),
                Decimal(rng.randrange(-120, 120)),
                Decimal(rng.randrange(-9999, 9999)).scaleb(rng.choice([-300, -30, -3, -1, 1, 2, 19, 20, 21, 300])),
                Decimal("12345678901234567890.123456789"),
            ]
        )
    if kind in (3, 4):
        return "".join(rng.choice('ab\n"\\\x01é漢🙂') for _ in range(rng.choice([0, 1, 2, 7, 8, 9, 17])))
    if kind in (5, 6):
        return [random_json(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {
        rng.choice(["", "a", "b", "aa", "é", "\n", '"', "key"]): random_json(rng, depth - 1)
        for _ in range(rng.randrange(4))
    }


def canonical(value: object) -> str:
    """The canonical text of JSONB."""
    if isinstance(value, Decimal):
        return canonical_number(value)
    if isinstance(value, list):
        return f"[{','.join(map(canonical, value))}]"
    if isinstance(value, dict):
        pairs = sorted((len(key.encode()), key.encode(), key) for key in value)
        return f"{{{','.join(f'{canonical(key)}:{canonical(value[key])}' for _, _, key in pairs)}}}"
    return json.dumps(value, ensure_ascii=False)


def canonical_number(value: Decimal) -> str:
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    point = len(text) + int(exponent)
    text = text.rstrip("0")
    if not text:
        return "0"
    if point > 0 and point - len(text) <= 20:
        plain = text.ljust(point, "0") if point >= len(text) else f"{text[:point]}.{text[point:]}"
    elif -20 <= point <= 0:
        plain = "0." + "0" * -point + text
    else:
        fraction = f".{text[1:]}" if len(text) > 1 else ""
        plain = f"{text[0]}{fraction}e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return "-" * sign + plain


def json_order(text: str) -> tuple:
    """A sort key with the order of PostgreSQL's JSONB."""
    value = json.loads(text, parse_int=Decimal, parse_float=Decimal)
    return (0,) if value == [] else _json_order(value)


def _json_order(value: object) -> tuple:
    if value is None:
        return (1,)
    if isinstance(value, str):
        return (2, value.encode())
    if isinstance(value, bool):
        return (4 + value,)
    if isinstance(value, Decimal):
        return (3, value)
    if isinstance(value, list):
        return (6, len(value), *map(_json_order, value))
    assert isinstance(value, dict)
    keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
    return (7, len(value), *[(key.encode(), _json_order(value[key])) for key in keys])


def random_value(rng: random.Random, data_type: DataType) -> object:
    """A value of the type, never None."""
    kind = data_type.kind
    if data_type.element is not None:
        return [random_part(rng, data_type.element) for _ in range(rng.choice([0, 1, 2, 3, 9]))]
    if kind is TypeKind.STRUCT:
        return {field.name: random_part(rng, field.data_type) for field in data_type.fields}
    if kind is TypeKind.JSONB:
        return canonical(random_json(rng))
    if kind is TypeKind.BYTEA:
        return bytes(rng.choice([0, 1, 97, 255]) for _ in range(rng.choice([0, 1, 7, 8, 9, 16, 17, rng.randrange(40)])))
    if kind in _BITS:
        return _integer(rng, _BITS[kind])
    if kind is TypeKind.NUMERIC:
        return _decimal(rng, data_type)
    if kind is TypeKind.BOOLEAN:
        return rng.random() < 0.5
    if kind in (TypeKind.REAL, TypeKind.DOUBLE):
        return rng.choice(_FLOATS) if rng.random() < 0.7 else float(rng.randrange(-1000, 1000)) / 8
    if kind is TypeKind.VARCHAR:
        return "".join(rng.choice(_TEXT) for _ in range(rng.choice([0, 1, 7, 8, 9, 15, 16, 17, rng.randrange(40)])))
    if kind is TypeKind.DATE:
        return dt.date.fromordinal(rng.choice([1, 719163, 3652059, rng.randrange(1, 3652059)]))
    if kind is TypeKind.TIME:
        return (dt.datetime.min + dt.timedelta(microseconds=_microseconds(rng, 86_400_000_000))).time()
    if kind is TypeKind.INTERVAL:
        parts = [rng.choice([0, 1, -1, 30, 2**31 - 1, -(2**31), rng.randrange(-99, 99)]) for _ in range(2)]
        return Interval(*parts, rng.choice([-1, 1]) * _microseconds(rng, 10**15))
    instant = dt.datetime(1, 1, 1) + dt.timedelta(microseconds=_microseconds(rng, 315_537_897_599_999_999))
    instant = rng.choice([instant, dt.datetime(1970, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999999)])
    return instant.replace(tzinfo=UTC) if kind is TypeKind.TIMESTAMPTZ else instant


def random_part(rng: random.Random, data_type: DataType) -> object:
    return None if rng.random() < 0.15 else random_value(rng, data_type)


def random_rows(rng: random.Random, types: list[DataType], rows: int, nulls: float = 0.15) -> list[tuple]:
    """Rows with few distinct values per column, so that later columns affect the order."""
    pools = [[random_value(rng, data_type) for _ in range(max(2, rows // 3))] for data_type in types]
    return [tuple(None if rng.random() < nulls else rng.choice(pool) for pool in pools) for _ in range(rows)]


def sql_value(value: object, data_type: DataType | None = None) -> object:
    """A sort key with SQL's order: NaN equals itself and is above every number, a nested NULL is above all values.
    JSONB and values that contain it need the type.
    """
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    if isinstance(value, dict):
        types = data_type.children if data_type is not None else (None,) * len(value)
        return tuple(_part(part, child) for part, child in zip(value.values(), types, strict=True))
    if isinstance(value, list):
        return tuple(_part(part, data_type.element if data_type is not None else None) for part in value)
    if data_type is not None and data_type.kind is TypeKind.JSONB:
        return json_order(str(value))
    return value


def _part(value: object, data_type: DataType | None) -> tuple:
    return (1,) if value is None else (0, sql_value(value, data_type))


def sql_row(row: tuple, types: Sequence[DataType] | None = None) -> tuple:
    kinds = (None,) * len(row) if types is None else types
    return tuple(None if value is None else sql_value(value, kind) for value, kind in zip(row, kinds, strict=True))


def compare_rows(a: tuple, b: tuple, orders: Sequence[OrderType], types: Sequence[DataType] | None = None) -> int:
    """-1, 0 or 1 in SQL's order of rows."""
    for left, right, order in zip(sql_row(a, types), sql_row(b, types), orders, strict=True):
        if left == right:
            continue
        if left is None or right is None:
            return -1 if (left is None) == order.nulls_first else 1
        return -1 if (left < right) != order.descending else 1
    return 0


def sort_key(orders: Sequence[OrderType], types: Sequence[DataType] | None = None):
    return functools.cmp_to_key(lambda a, b: compare_rows(a, b, orders, types))


def columns_of(types: list[DataType], rows: list[tuple]) -> tuple[Column, ...]:
    """The rows as columns."""
    schema = Schema.of(**{f"c{index}": data_type for index, data_type in enumerate(types)})
    return DataChunk.from_rows(schema, rows).columns


def mutated(rng: random.Random, key: bytes) -> bytes:
    """The bytes after one or two random bit flips, byte writes, deletions or insertions."""
    key = bytearray(key)
    for _ in range(rng.randrange(1, 3)):
        kind = rng.randrange(4)
        at = rng.randrange(len(key)) if key else 0
        if kind == 0 and key:
            key[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and key:
            key[at] = rng.choice([0, 1, 8, 9, 10, 0x7F, 0x80, 0xFE, 0xFF, rng.randrange(256)])
        elif kind == 2:
            del key[at : at + rng.randrange(1, 4)]
        else:
            key[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 10)))
    return bytes(key)
