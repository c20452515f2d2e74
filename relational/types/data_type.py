"""SQL's primitive types and their Arrow twins.

Every column of a type has exactly one Arrow layout here, so that kernels meet one layout per type; other
Arrow layouts of the same values (large strings, dictionaries, other time units) are converted at the door.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

import pyarrow as pa

from relational.errors import BindError

MAX_PRECISION = 38
DEFAULT_SCALE = 10


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


@dataclass(frozen=True, slots=True)
class DataType:
    """A type. `precision` and `scale` (0 <= scale <= precision <= 38) are NUMERIC's and None elsewhere."""

    kind: TypeKind
    precision: int | None = None
    scale: int | None = None

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

    def __post_init__(self) -> None:
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
    def parse(cls, text: str) -> DataType:
        """The type that SQL writes so, e.g. `numeric(10, 2)`; BindError where there is none."""
        match = _SPELLING.fullmatch(text.strip().lower())
        kind = _KIND_OF_NAME.get(" ".join(match["name"].split())) if match else None
        if match is None or kind is None:
            raise BindError(f"there is no type {text.strip()!r}")
        if match["precision"] is None:
            return cls(kind)
        if kind is not TypeKind.NUMERIC:
            raise BindError(f"{kind.name} takes no length: {text.strip()!r}")
        return cls(kind, int(match["precision"]), int(match["scale"] or 0))

    @classmethod
    def from_arrow(cls, arrow: pa.DataType) -> DataType:
        """The type for columns of an Arrow type (times are cut to microseconds), or BindError."""
        if pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow):
            return cls.from_arrow(arrow.value_type)
        if pa.types.is_decimal(arrow):
            return cls.numeric(arrow.precision, arrow.scale)
        if pa.types.is_timestamp(arrow):
            return cls.TIMESTAMP if arrow.tz is None else cls.TIMESTAMPTZ
        kind = _KIND_OF_ARROW.get(arrow)
        if kind is not None:
            return cls(kind)
        if arrow == pa.uint64():
            return cls.numeric(20, 0)
        raise BindError(f"no SQL type holds Arrow's {arrow}")

    @property
    def arrow(self) -> pa.DataType:
        """The one Arrow type of columns of this type."""
        if self.kind is TypeKind.NUMERIC:
            return pa.decimal128(self.precision, self.scale)
        return _ARROW_OF_KIND[self.kind]

    @property
    def is_numeric(self) -> bool:
        """Arithmetic is defined on it."""
        return TypeKind.SMALLINT <= self.kind <= TypeKind.DOUBLE

    @property
    def is_integer(self) -> bool:
        return TypeKind.SMALLINT <= self.kind <= TypeKind.BIGINT

    @property
    def is_float(self) -> bool:
        return self.kind in (TypeKind.REAL, TypeKind.DOUBLE)

    def __str__(self) -> str:
        if self.kind is TypeKind.NUMERIC:
            return f"NUMERIC({self.precision}, {self.scale})"
        return self.kind.name

    def __repr__(self) -> str:
        return f"DataType({str(self)!r})"


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
}

_KIND_OF_ARROW = {arrow: kind for kind, arrow in _ARROW_OF_KIND.items()} | {
    pa.int8(): TypeKind.SMALLINT,
    pa.uint8(): TypeKind.SMALLINT,
    pa.uint16(): TypeKind.INT,
    pa.uint32(): TypeKind.BIGINT,
    pa.float16(): TypeKind.REAL,
    pa.large_utf8(): TypeKind.VARCHAR,
    pa.string_view(): TypeKind.VARCHAR,
    pa.date64(): TypeKind.DATE,
    pa.time32("s"): TypeKind.TIME,
    pa.time32("ms"): TypeKind.TIME,
    pa.time64("ns"): TypeKind.TIME,
}

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
        TypeKind.TIMESTAMP: ("timestamp", "timestamp without time zone"),
        TypeKind.TIMESTAMPTZ: ("timestamptz", "timestamp with time zone"),
        TypeKind.INTERVAL: ("interval",),
    }.items()
    for name in names
}

_SPELLING = re.compile(
    r"(?P<name>[a-z][a-z0-9 ]*?)\s*(?:\(\s*(?P<precision>\d+)\s*(?:,\s*(?P<scale>\d+)\s*)?\))?"
)

for _kind in TypeKind:
    setattr(DataType, _kind.name, DataType(_kind))
