"""PostgreSQL's names and numbers of our types, by which its clients know them."""

from __future__ import annotations

from typing import NamedTuple

from relational.types.data_type import DataType, TypeKind


class PostgresType(NamedTuple):
    """`oid`: in pg_type; `list_oid`: that of its arrays; `name`: as format_type writes it; `internal_name`: typname;
    `category`, `size`: typcategory and typlen.
    """

    oid: int
    list_oid: int
    name: str
    internal_name: str
    category: str
    size: int


POSTGRES_TYPES = {
    TypeKind.BOOLEAN: PostgresType(16, 1000, "boolean", "bool", "B", 1),
    TypeKind.BYTEA: PostgresType(17, 1001, "bytea", "bytea", "U", -1),
    TypeKind.BIGINT: PostgresType(20, 1016, "bigint", "int8", "N", 8),
    TypeKind.SMALLINT: PostgresType(21, 1005, "smallint", "int2", "N", 2),
    TypeKind.INT: PostgresType(23, 1007, "integer", "int4", "N", 4),
    TypeKind.REAL: PostgresType(700, 1021, "real", "float4", "N", 4),
    TypeKind.DOUBLE: PostgresType(701, 1022, "double precision", "float8", "N", 8),
    TypeKind.VARCHAR: PostgresType(1043, 1015, "character varying", "varchar", "S", -1),
    TypeKind.DATE: PostgresType(1082, 1182, "date", "date", "D", 4),
    TypeKind.TIME: PostgresType(1083, 1183, "time without time zone", "time", "D", 8),
    TypeKind.TIMESTAMP: PostgresType(1114, 1115, "timestamp without time zone", "timestamp", "D", 8),
    TypeKind.TIMESTAMPTZ: PostgresType(1184, 1185, "timestamp with time zone", "timestamptz", "D", 8),
    TypeKind.INTERVAL: PostgresType(1186, 1187, "interval", "interval", "T", 16),
    TypeKind.NUMERIC: PostgresType(1700, 1231, "numeric", "numeric", "N", -1),
    TypeKind.STRUCT: PostgresType(2249, 2287, "record", "record", "P", -1),
    TypeKind.JSONB: PostgresType(3802, 3807, "jsonb", "jsonb", "U", -1),
}


def type_name(data_type: DataType) -> str:
    """`integer`, `numeric(10,2)`, `character varying[]`; a list of lists has as many brackets as it has levels."""
    if data_type.element is not None:
        return type_name(data_type.element) + "[]"
    name = POSTGRES_TYPES[data_type.kind].name
    if data_type.kind is TypeKind.NUMERIC and data_type != DataType.NUMERIC:
        return f"{name}({data_type.precision},{data_type.scale})"
    return name


def type_oid(data_type: DataType) -> int:
    """A list of lists has the number of a list, as in PostgreSQL."""
    element = data_type
    while element.element is not None:
        element = element.element
    known = POSTGRES_TYPES[element.kind]
    return known.oid if element is data_type else known.list_oid


def name_of_oid(oid: int) -> str | None:
    """The name of a type by its number; None for a number of no type here."""
    for known in POSTGRES_TYPES.values():
        if oid == known.oid:
            return known.name
        if oid == known.list_oid:
            return f"{known.name}[]"
    return None
