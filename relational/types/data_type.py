"""SQL's types and their Arrow counterparts.

Every column of a type has exactly one Arrow layout here, so that kernels handle one layout per type; other Arrow
layouts of the same values (large strings, dictionaries, list views, other time units) are converted on import.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import IntEnum
from functools import lru_cache
from typing import ClassVar

import pyarrow as pa

from relational.errors import BindError
from relational.types.arrow_types import JSONB_ARROW, plain_kind, what_to_do

MAX_PRECISION = 38
DEFAULT_SCALE = 10
MAX_NESTING = 64
"""Maximum nesting depth of lists and structs."""


class TypeKind(IntEnum):
    """The kinds. The numbers are those of `Kind` in chunk/column.pxd; they are never stored."""

    BOOLEAN = 0
    SMALLINT = 1
    INT = 2
    BIGINT = 3
    NUMERIC = 4
    REAL = 5
    DOUBLE = 6
    VARCHAR = 7
    DATE = 8
    TIME = 9
    TIMESTAMP = 10
    TIMESTAMPTZ = 11
    INTERVAL = 12
    BYTEA = 13
    JSONB = 14
    STRUCT = 15
    LIST = 16


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a row or a field of a STRUCT: its name and its type. It may always hold NULL."""

    name: str
    data_type: DataType

    def __str__(self) -> str:
        return f"{self.name} {self.data_type}"


@dataclass(frozen=True, slots=True)
class DataType:
    """A type. `precision` and `scale` (0 <= scale <= precision <= 38) apply to NUMERIC, `fields` to STRUCT (at least
    one, with distinct names), `element` to LIST; None or empty otherwise.

        stream.DataType.parse("numeric(10, 2)").scale       # 2
    """

    kind: TypeKind
    precision: int | None = None
    scale: int | None = None
    fields: tuple[Field, ...] = ()
    element: DataType | None = None

    BOOLEAN: ClassVar[DataType]
    SMALLINT: ClassVar[DataType]
    INT: ClassVar[DataType]
    BIGINT: ClassVar[DataType]
    NUMERIC: ClassVar[DataType]
    REAL: ClassVar[DataType]
    DOUBLE: ClassVar[DataType]
    VARCHAR: ClassVar[DataType]
    DATE: ClassVar[DataType]
    TIME: ClassVar[DataType]
    TIMESTAMP: ClassVar[DataType]
    TIMESTAMPTZ: ClassVar[DataType]
    INTERVAL: ClassVar[DataType]
    BYTEA: ClassVar[DataType]
    JSONB: ClassVar[DataType]

    def __post_init__(self) -> None:
        if bool(self.fields) != (self.kind is TypeKind.STRUCT):
            raise BindError("a STRUCT has at least one field, and no other type has any")
        if (self.element is None) == (self.kind is TypeKind.LIST):
            raise BindError("a LIST has an element type, and no other type has one")
        names = [field.name for field in self.fields]
        if len(set(names)) < len(names):
            raise BindError(f"two fields of a STRUCT have one name: {', '.join(names)}")
        if self.kind is not TypeKind.NUMERIC:
            if self.precision is not None or self.scale is not None:
                raise BindError(f"{self.kind.name} has neither precision nor scale")
            return
        precision, scale = self.precision, self.scale
        if scale is None:
            scale = DEFAULT_SCALE if precision is None else 0
        if precision is None:
            precision = MAX_PRECISION
        object.__setattr__(self, "precision", precision)
        object.__setattr__(self, "scale", scale)
        if not (1 <= precision <= MAX_PRECISION and 0 <= scale <= precision):
            raise BindError(f"NUMERIC({precision}, {scale}): precision is 1 to 38, scale is 0 to precision")

    @classmethod
    def numeric(cls, precision: int, scale: int = 0) -> DataType:
        """NUMERIC(precision, scale)."""
        return cls(TypeKind.NUMERIC, precision, scale)

    @classmethod
    def struct(cls, fields: Iterable[Field]) -> DataType:
        """STRUCT of `fields`, in their order."""
        return cls(TypeKind.STRUCT, fields=tuple(fields))

    @classmethod
    def list_of(cls, element: DataType) -> DataType:
        """LIST of `element`."""
        return cls(TypeKind.LIST, element=element)

    @classmethod
    def parse(cls, text: str) -> DataType:
        """The type of an SQL type name, e.g. `numeric(10, 2)[]` or `struct<a int, "b c" text>`; BindError if there is
        none.
        """
        if not isinstance(text, str):
            raise BindError(f"a type is the name that it has in SQL, such as 'bigint' or 'varchar', not {text!r}")
        return _Spelling(text).whole()

    @classmethod
    def from_arrow(cls, arrow: pa.DataType) -> DataType:
        """The type for columns of an Arrow type (times are truncated to microseconds), or BindError with a hint. A map
        is a list of structs of key and value.
        """
        types = pa.types
        if types.is_dictionary(arrow) or types.is_run_end_encoded(arrow):
            return cls.from_arrow(arrow.value_type)
        if types.is_decimal(arrow) and arrow.precision <= MAX_PRECISION and 0 <= arrow.scale <= arrow.precision:
            return cls.numeric(arrow.precision, arrow.scale)
        if types.is_timestamp(arrow):
            return cls.TIMESTAMP if arrow.tz is None else cls.TIMESTAMPTZ
        if types.is_struct(arrow) and arrow.num_fields:
            return cls.struct(Field(field.name, cls.from_arrow(field.type)) for field in arrow)
        if types.is_map(arrow):
            pair = (Field("key", cls.from_arrow(arrow.key_type)), Field("value", cls.from_arrow(arrow.item_type)))
            return cls.list_of(cls.struct(pair))
        if any(is_list(arrow) for is_list in _LISTS):
            return cls.list_of(cls.from_arrow(arrow.value_type))
        if arrow == pa.uint64():
            return cls.numeric(20, 0)
        name = plain_kind(arrow)
        if name is None:
            raise BindError(f"no SQL type holds Arrow's {arrow}: {what_to_do(arrow)}")
        return cls(TypeKind[name])

    @property
    def arrow(self) -> pa.DataType:
        """The one Arrow type of columns of this type."""
        return _ARROW_OF_KIND.get(self.kind) or _arrow_of(self)

    @property
    def is_numeric(self) -> bool:
        """Whether arithmetic is defined on it."""
        return TypeKind.SMALLINT <= self.kind <= TypeKind.DOUBLE

    @property
    def is_integer(self) -> bool:
        """SMALLINT, INTEGER or BIGINT."""
        return TypeKind.SMALLINT <= self.kind <= TypeKind.BIGINT

    @property
    def is_float(self) -> bool:
        """REAL or DOUBLE."""
        return self.kind in (TypeKind.REAL, TypeKind.DOUBLE)

    @property
    def is_word(self) -> bool:
        """Whether it is a number, a date or a time whose values have at most 64 bits."""
        return (self.is_numeric and self.kind is not TypeKind.NUMERIC) or (
            TypeKind.DATE <= self.kind <= TypeKind.TIMESTAMPTZ
        )

    @property
    def is_nested(self) -> bool:
        """STRUCT or LIST."""
        return self.kind in (TypeKind.STRUCT, TypeKind.LIST)

    @property
    def children(self) -> tuple[DataType, ...]:
        """The types of a STRUCT's fields or of a LIST's element; empty elsewhere."""
        return (self.element,) if self.element is not None else tuple(field.data_type for field in self.fields)

    def contains(self, kind: TypeKind) -> bool:
        """Whether it or a nested type is of `kind`."""
        return self.kind is kind or any(child.contains(kind) for child in self.children)

    def __str__(self) -> str:
        if self.kind is TypeKind.NUMERIC:
            return f"NUMERIC({self.precision}, {self.scale})"
        if self.kind is TypeKind.LIST:
            return f"{self.element}[]"
        if self.kind is TypeKind.STRUCT:
            return f"STRUCT<{', '.join(f'{_quoted(field.name)} {field.data_type}' for field in self.fields)}>"
        return self.kind.name

    def __repr__(self) -> str:
        return f"DataType({str(self)!r})"


_LISTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)

_ARROW_OF_KIND = {
    TypeKind.BOOLEAN: pa.bool_(),
    TypeKind.SMALLINT: pa.int16(),
    TypeKind.INT: pa.int32(),
    TypeKind.BIGINT: pa.int64(),
    TypeKind.REAL: pa.float32(),
    TypeKind.DOUBLE: pa.float64(),
    TypeKind.VARCHAR: pa.utf8(),
    TypeKind.DATE: pa.date32(),
    TypeKind.TIME: pa.time64("us"),
    TypeKind.TIMESTAMP: pa.timestamp("us"),
    TypeKind.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
    TypeKind.INTERVAL: pa.month_day_nano_interval(),
    TypeKind.BYTEA: pa.binary(),
    TypeKind.JSONB: JSONB_ARROW,
}


@lru_cache(1024)
def _arrow_of(data_type: DataType) -> pa.DataType:
    if data_type.kind is TypeKind.NUMERIC:
        return pa.decimal128(data_type.precision, data_type.scale)
    if data_type.element is not None:
        return pa.list_(data_type.element.arrow)
    if data_type.kind is TypeKind.STRUCT:
        return pa.struct([pa.field(field.name, field.data_type.arrow) for field in data_type.fields])
    raise AssertionError(f"{data_type.kind.name} has no parameters")


_KIND_OF_NAME = {
    name: kind
    for kind, names in {
        TypeKind.BOOLEAN: ("boolean", "bool"),
        TypeKind.SMALLINT: ("smallint", "int2"),
        TypeKind.INT: ("int", "integer", "int4"),
        TypeKind.BIGINT: ("bigint", "int8"),
        TypeKind.NUMERIC: ("numeric", "decimal"),
        TypeKind.REAL: ("real", "float4"),
        TypeKind.DOUBLE: ("double", "double precision", "float8", "float"),
        TypeKind.VARCHAR: ("varchar", "character varying", "text", "string"),
        TypeKind.DATE: ("date",),
        TypeKind.TIME: ("time", "time without time zone"),
        TypeKind.TIMESTAMP: ("timestamp", "timestamp without time zone", "datetime"),
        TypeKind.TIMESTAMPTZ: ("timestamptz", "timestamp with time zone"),
        TypeKind.INTERVAL: ("interval",),
        TypeKind.BYTEA: ("bytea",),
        TypeKind.JSONB: ("jsonb",),
    }.items()
    for name in names
}

_ELSEWHERE = {
    "str": "varchar", "object": "varchar", "uuid": "varchar", "int16": "smallint", "int32": "int", "int64": "bigint",
    "long": "bigint", "float32": "real", "float64": "double", "number": "numeric", "datetime64": "timestamp",
    "json": "jsonb", "dict": "jsonb", "bytes": "bytea", "binary": "bytea", "blob": "bytea",
}
"""Names of types elsewhere, by the name here."""

_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_TOKEN = re.compile(r'\s*(?:(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<quoted>"(?:[^"]|"")*")|(?P<rest>\d+|.))', re.DOTALL)


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else '"' + name.replace('"', '""') + '"'


class _Spelling:
    """A parser of a type's text."""

    def __init__(self, text: str):
        self.text = text
        self.tokens = [match.group().strip() for match in _TOKEN.finditer(text.strip())]
        self.tokens.append("")
        self.at = self.level = 0

    def fail(self) -> BindError:
        name = self.text.strip()
        near = get_close_matches(name.lower(), _KIND_OF_NAME, 1) if name.isidentifier() and len(name) < 64 else []
        meant = _ELSEWHERE.get(name.lower()) or next(iter(near), None)
        return BindError(f"there is no type {name!r}" + (f"; did you mean {meant!r}?" if meant else ""))

    def next(self) -> str:
        token = self.tokens[self.at]
        self.at += token != ""
        return token

    def accept(self, token: str) -> bool:
        found = self.tokens[self.at].lower() == token
        self.at += found
        return found

    def whole(self) -> DataType:
        data_type = self.one()
        if self.at != len(self.tokens) - 1:
            raise self.fail()
        return data_type

    def one(self) -> DataType:
        level = self.level
        self.descend()
        data_type = self.struct() if self.accept("struct") else self.plain()
        while self.accept("["):
            self.descend()
            if not self.accept("]"):
                raise self.fail()
            data_type = DataType.list_of(data_type)
        self.level = level
        return data_type

    def descend(self) -> None:
        self.level += 1
        if self.level > MAX_NESTING:
            raise BindError(f"a type is nested at most {MAX_NESTING} levels deep")

    def struct(self) -> DataType:
        fields: list[Field] = []
        if not self.accept("<"):
            raise self.fail()
        while not fields or self.accept(","):
            name = self.next()
            if name.startswith('"') and len(name) > 1:
                name = name[1:-1].replace('""', '"')
            elif _PLAIN_NAME.fullmatch(name := name.lower()) is None:
                raise self.fail()
            fields.append(Field(name, self.one()))
        if not self.accept(">"):
            raise self.fail()
        return DataType.struct(fields)

    def plain(self) -> DataType:
        words = []
        while _PLAIN_NAME.fullmatch(self.tokens[self.at].lower()):
            words.append(self.next().lower())
        kind = _KIND_OF_NAME.get(" ".join(words))
        if kind is None:
            raise self.fail()
        if not self.accept("("):
            return DataType(kind)
        digits = [self.next()]
        if self.accept(","):
            digits.append(self.next())
        if not self.accept(")") or not all(each.isdecimal() and len(each) <= 9 for each in digits):
            raise self.fail()
        if kind is not TypeKind.NUMERIC:
            raise BindError(f"{kind.name} takes no length: {self.text.strip()!r}")
        return DataType.numeric(*map(int, digits))


for _kind in TypeKind:
    if _kind not in (TypeKind.STRUCT, TypeKind.LIST):
        setattr(DataType, _kind.name, DataType(_kind))
